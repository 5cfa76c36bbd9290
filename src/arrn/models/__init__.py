"""Networks by name: ARRNs, the paper's fixed-resolution baselines, and stronger rivals."""

from arrn.models.baselines import BASELINES, baseline_builder
from arrn.models.fixed import FixedResolution
from arrn.models.fourier import FourierClassifier, SpectralConv2d, build_fourier_operator
from arrn.models.generic import build_arrn
from arrn.models.registry import create_model, list_models, register
from arrn.models.rivals import (
    SwitchableBatchNorm2d,
    SwitchableNetwork,
    build_resnet18_small_stem,
    build_resnet18_switchable,
)
from arrn.models.summary import ModelSummary, summarise

__all__ = [
    "FixedResolution",
    "FourierClassifier",
    "ModelSummary",
    "SpectralConv2d",
    "SwitchableBatchNorm2d",
    "SwitchableNetwork",
    "build_arrn",
    "create_model",
    "list_models",
    "register",
    "summarise",
]

register("arrn", build_arrn)
for _name in BASELINES:
    register(_name, baseline_builder(_name))
register("resnet18_small_stem", build_resnet18_small_stem)
register("resnet18_switchable", build_resnet18_switchable)
register("fourier_operator", build_fourier_operator)
