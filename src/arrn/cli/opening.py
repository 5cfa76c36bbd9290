"""The predictor over a folder that is named on the command line: a saved network, or an exported one."""

from __future__ import annotations

from pathlib import Path

from arrn.errors import ArrnError
from arrn.runtime import OnnxPredictor, Predictor
from arrn.runtime.levels import as_policy
from arrn.runtime.manifest import MANIFEST


def open_predictor(
    folder: Path,
    *,
    device: str = "auto",
    policy: str | None = None,
    max_pixels: int | None = None,
    aspect: str | None = None,
) -> Predictor:
    """The predictor over a saved network, by torch, or over an export, by ONNX Runtime and without torch.

    Args:
        folder: what `arrn.save`, `arrn train` or `arrn export --to onnx` wrote.
        device: "auto", "cpu", "cuda" or "mps"; an export runs on the CPU.
        policy, max_pixels, aspect: as `arrn.Predictor` takes them.
    """
    chosen = None if policy is None else as_policy(policy)
    if (folder / MANIFEST).exists():
        if device not in ("auto", "cpu"):
            raise ArrnError(f"{folder} is an export, which runs on the CPU: leave out --device {device}")
        return OnnxPredictor(folder, policy=chosen, max_pixels=max_pixels, aspect=aspect)
    from arrn.deploy import Predictor as TorchPredictor

    return TorchPredictor(folder, device=device, policy=chosen, max_pixels=max_pixels, aspect=aspect)
