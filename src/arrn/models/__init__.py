"""Networks by name."""

from arrn.models.generic import build_arrn
from arrn.models.registry import create_model, list_models, register

__all__ = ["build_arrn", "create_model", "list_models", "register"]

register("arrn", build_arrn)
