"""Prediction without torch: inputs of any kind decoded, grouped by level, answered in order.

Modules here import each other, `errors` and `reading` by relative names, and numpy and Pillow: the small distribution
for running exported networks holds this package under another name.
"""

from .answers import Answer, AnswerList
from .aspect import ASPECTS, Aspect
from .cascade import Cascade
from .files import BadSample
from .levels import Grid, Policy
from .manifest import Manifest, read_manifest
from .onnx_engine import OnnxPredictor
from .predictor import Predictor
from .signals import Reader, Signal, to_unit_scale

__all__ = [
    "ASPECTS",
    "Answer",
    "AnswerList",
    "Aspect",
    "BadSample",
    "Cascade",
    "Grid",
    "Manifest",
    "OnnxPredictor",
    "Policy",
    "Predictor",
    "Reader",
    "Signal",
    "read_manifest",
    "to_unit_scale",
]
