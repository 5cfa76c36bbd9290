"""A step's state as named tensors, and back: what a checkpoint holds."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from arrn.errors import ArrnError
from arrn.training.step import TrainingStep

__all__ = ["restore_state", "state_tensors"]

_MODEL, _OPTIMIZER = "model.", "optimizer."


def state_tensors(step: TrainingStep) -> dict[str, torch.Tensor]:
    """Weights, batch-norm statistics and the optimiser's state, by name."""
    tensors = {_MODEL + name: tensor for name, tensor in step.model.state_dict().items()}
    for index, state in step.optimizer.state_dict()["state"].items():
        for key, value in state.items():
            if isinstance(value, torch.Tensor):  # SGD without momentum keeps a None
                tensors[f"{_OPTIMIZER}{index}.{key}"] = value
    return tensors


def restore_state(step: TrainingStep, tensors: Mapping[str, torch.Tensor]) -> None:
    """Puts the state of `state_tensors` back, on the device and in the memory order of the weights.

    Raises:
        ArrnError: when the tensors are not those of this network.
    """
    weights = {name.removeprefix(_MODEL): t for name, t in tensors.items() if name.startswith(_MODEL)}
    parameters = [parameter for group in step.optimizer.param_groups for parameter in group["params"]]
    try:
        step.model.load_state_dict(weights)
        for name, value in tensors.items():
            if not name.startswith(_OPTIMIZER):
                continue
            index, _, key = name.removeprefix(_OPTIMIZER).partition(".")
            parameter = parameters[int(index)]
            if value.ndim and value.shape != parameter.shape:
                raise ValueError(f"{name} has shape {tuple(value.shape)}, expected {tuple(parameter.shape)}")
            like = torch.empty_like(parameter) if value.ndim else torch.empty_like(value)
            step.optimizer.state[parameter][key] = like.to(parameter.device).copy_(value)
    except (RuntimeError, ValueError, IndexError) as error:
        raise ArrnError(f"the checkpoint is not of this network: {' '.join(str(error).split())}") from None
