"""Networks by name: ARRNs, the paper's fixed-resolution baselines, and stronger rivals."""

from arrn.models.designs import DESIGNS, Design, design_builder
from arrn.models.fixed import BASELINES, FixedResolution, fixed_builder
from arrn.models.gated import GATED_DESIGNS, GatedOptions, gated_builders
from arrn.models.generic import LadderOptions, build_arrn
from arrn.models.registry import create_model, list_models, model_options, register, register_library
from arrn.models.rivals import (
    FourierClassifier,
    SpectralConv2d,
    SwitchableBatchNorm2d,
    SwitchableNetwork,
    build_fourier_operator,
    build_resnet18_small_stem,
    build_resnet18_switchable,
)
from arrn.models.summary import ModelSummary, summarise
from arrn.models.tied import TIED_DESIGNS, TiedOptions, tied_builders
from arrn.models.transplanting import (
    LIBRARIES,
    TRANSPLANTS,
    Transplant,
    library_builder,
    transplant,
    transplant_builder,
)
from arrn.nn.network import entry_grid, entry_kernel, signal_axes

__all__ = [
    "DESIGNS",
    "Design",
    "FixedResolution",
    "GATED_DESIGNS",
    "GatedOptions",
    "FourierClassifier",
    "LadderOptions",
    "ModelSummary",
    "SpectralConv2d",
    "SwitchableBatchNorm2d",
    "SwitchableNetwork",
    "TIED_DESIGNS",
    "TiedOptions",
    "Transplant",
    "build_arrn",
    "create_model",
    "entry_grid",
    "entry_kernel",
    "list_models",
    "model_options",
    "register",
    "signal_axes",
    "summarise",
    "transplant",
]

register("arrn", build_arrn)
for _name, _design in DESIGNS.items():
    register(_name, design_builder(_design))
for _name, _builder in (gated_builders | tied_builders).items():
    register(_name, _builder)
for _name in BASELINES:
    register(_name, fixed_builder(_name))
for _name, _skip_first in TRANSPLANTS.items():
    register(f"arrn_{_name}", transplant_builder(_name, _skip_first))
register("resnet18_small_stem", build_resnet18_small_stem)
register("resnet18_switchable", build_resnet18_switchable)
register("fourier_operator", build_fourier_operator)
for _name in LIBRARIES:
    register_library(_name, library_builder)
