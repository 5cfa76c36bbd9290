"""Turning a fixed-resolution network into an adaptive one: trace, pad, probe, cut, nest."""

from arrn.models.transplanting.transplant import TRANSPLANTS, transplant, transplant_builder

__all__ = ["TRANSPLANTS", "transplant", "transplant_builder"]
