"""From a fixed-resolution network to an ARRN, a step a file:

tracing.py       its layers as a graph
layout.py        where in the graph one signal is alive alone, and where the resolution falls
replacements.py  padding, dropout and the classifier, as an ARRN needs them
cutting.py       the graph in pieces: a run of layers for each resolution, a head
fitting.py       the ARRN that comes of it, and its projections fitted to what the layers gave
transplant.py    each run in a Laplacian residual, all of them in an ARRN
libraries.py     transplants by name: the paper's architectures, and any network of torchvision or timm
"""

from arrn.models.transplanting.fitting import Transplant
from arrn.models.transplanting.libraries import (
    LIBRARIES,
    TRANSPLANTS,
    library_builder,
    source_network,
    transplant_builder,
)
from arrn.models.transplanting.transplant import transplant

__all__ = [
    "LIBRARIES",
    "TRANSPLANTS",
    "Transplant",
    "library_builder",
    "source_network",
    "transplant",
    "transplant_builder",
]
