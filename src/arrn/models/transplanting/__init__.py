"""Turning a fixed-resolution network into an adaptive one: trace, pad, probe, cut, nest."""

from arrn.models.transplanting.named import TRANSPLANTS, transplant_builder
from arrn.models.transplanting.transplant import transplant

__all__ = ["TRANSPLANTS", "transplant", "transplant_builder"]
