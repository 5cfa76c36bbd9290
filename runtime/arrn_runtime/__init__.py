"""Networks that `arrn export --to onnx` wrote, run by ONNX Runtime: inputs of any and different sizes, without PyTorch.

>>> from arrn_runtime import Predictor
>>> predictor = Predictor("out/small-onnx")  # doctest: +SKIP
>>> predictor(["cat.jpg", "dog.png"], top=3)  # doctest: +SKIP
"""

from importlib.metadata import version

__version__ = version("arrn-runtime")

from .errors import ArrnError
from .runtime import Answer, AnswerList, Manifest, Policy, Signal, read_manifest
from .runtime import OnnxPredictor as Predictor

__all__ = [
    "Answer",
    "AnswerList",
    "ArrnError",
    "Manifest",
    "Policy",
    "Predictor",
    "Signal",
    "__version__",
    "read_manifest",
]
