"""Operators that have a kernel of their own on a GPU, each beside PyTorch's own as its reference.

The kernels themselves are in the files that end in `_kernels`, which need Triton and are imported when first used.
"""

from arrn.gpu.depthwise import cast_depthwise, reference_depthwise, replicate_depthwise, silu_depthwise_silu
from arrn.gpu.replay import Replay
from arrn.gpu.switch import as_precise_as, fast_path, is_fast, kernels_serve, product_dtype, reference_path

__all__ = [
    "Replay",
    "as_precise_as",
    "cast_depthwise",
    "fast_path",
    "is_fast",
    "kernels_serve",
    "product_dtype",
    "reference_depthwise",
    "reference_path",
    "replicate_depthwise",
    "silu_depthwise_silu",
]
