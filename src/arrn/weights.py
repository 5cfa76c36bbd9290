"""The tensors of a network: gathered for a safetensors file, read from it, put back with the dtypes they had."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from torch import nn

from arrn.errors import ArrnError
from arrn.nn.unwrapping import COMPILED

__all__ = ["cast_unsaved_buffers", "dtypes_of_unsaved_buffers", "fill", "gather_tensors", "read_tensors"]


def _own_name(name: str) -> str:
    """A tensor's or module's name as if nothing were compiled: that must not decide what a file looks like."""
    return ".".join(part for part in name.split(".") if part != COMPILED)


def gather_tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    """The tensors of `state_dict` as safetensors takes them: on the CPU, contiguous, no two of them in one memory.

    A tensor of two names, of a layer that is used twice, is written twice; both go into the one when it is filled.
    """
    tensors: dict[str, torch.Tensor] = {}
    taken: set[int] = set()
    for name, value in model.state_dict().items():
        if not isinstance(value, torch.Tensor):
            raise ArrnError(f"{name} is a {type(value).__name__}: only tensors of a network can be saved")
        tensor = value.detach().cpu().contiguous()
        if tensor.untyped_storage().data_ptr() in taken:
            tensor = tensor.clone()
        taken.add(tensor.untyped_storage().data_ptr())
        tensors[_own_name(name)] = tensor
    return tensors


def read_tensors(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of a safetensors file.

    Raises:
        ArrnError: for a file that is missing, truncated or a pickle.
    """
    try:
        with path.open("rb") as file:
            start = file.read(2)
        if start in (b"PK", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"):
            raise ArrnError(f"{path} is a pickle, which could run any code; arrn reads safetensors only")
        # Names are cleaned here too, for files that were written before they were.
        return {_own_name(name): tensor for name, tensor in safetensors.torch.load_file(path).items()}
    except FileNotFoundError:
        raise ArrnError(f"{path} is missing") from None
    except OSError as error:
        raise ArrnError(f"cannot read {path}: {error.strerror or error}") from error
    except safetensors.SafetensorError as error:
        raise ArrnError(f"{path} is truncated or not a safetensors file: {error}") from None


def fill(model: nn.Module, tensors: Mapping[str, torch.Tensor], source: str, keep_dtypes: bool) -> None:
    """Puts all `tensors` into the network, or none.

    Args:
        model: the network.
        tensors: one for each name in its `state_dict`.
        source: where they are from and what they should fit, for the error.
        keep_dtypes: the network's tensors take the dtypes of `tensors`; otherwise these are cast.

    Raises:
        ArrnError: for tensors that are missing, of another shape, or not the network's.
    """
    state = {_own_name(name): tensor for name, tensor in model.state_dict(keep_vars=True).items()}
    wrong = [
        f"{name} has shape {tuple(tensors[name].shape)}, expected {tuple(state[name].shape)}"
        for name in state
        if name in tensors and tensors[name].shape != state[name].shape
    ]
    wrong += [f"{name} is missing" for name in state if name not in tensors]
    wrong += [f"{name} does not belong to the model" for name in tensors if name not in state]
    if wrong:
        more = f" (and {len(wrong) - 3} more)" if len(wrong) > 3 else ""
        raise ArrnError(f"{source}: {'; '.join(wrong[:3])}{more}")
    if keep_dtypes:
        for name, tensor in state.items():
            # In place: a tensor that two layers share stays shared, as it would not with `assign=True`.
            if _kind(tensor) == _kind(tensors[name]):
                tensor.data = tensor.data.to(tensors[name].dtype)
    model.load_state_dict({name: tensors[_own_name(name)] for name in model.state_dict()})


def _kind(tensor: torch.Tensor) -> tuple[bool, bool]:
    """Real, complex or whole numbers: a parameter with a gradient cannot become whole numbers."""
    return tensor.is_floating_point(), tensor.is_complex()


def dtypes_of_unsaved_buffers(model: nn.Module) -> dict[str, torch.dtype]:
    """The dtype of each module's buffers that are not in `state_dict`, such as the matrices of `Resampling`."""
    saved = model.state_dict()
    dtypes: dict[str, torch.dtype] = {}
    for name, buffer in model.named_buffers(remove_duplicate=False):
        if name not in saved and buffer.is_floating_point():
            dtypes.setdefault(_own_name(name.rpartition(".")[0]), buffer.dtype)
    return dtypes


def cast_unsaved_buffers(model: nn.Module, usual: torch.dtype, others: Mapping[str, torch.dtype]) -> None:
    """Gives the modules of `dtypes_of_unsaved_buffers` the `usual` dtype, but for `others`, by module."""
    modules = {_own_name(name): module for name, module in model.named_modules(remove_duplicate=False)}
    for name, present in dtypes_of_unsaved_buffers(model).items():
        dtype = others.get(name, usual)
        if dtype != present:
            # As `.to` does it, which would also reach the modules below: `Resampling` then casts from float64.
            modules[name]._apply(
                lambda tensor, dtype=dtype: tensor.to(dtype) if tensor.is_floating_point() else tensor, recurse=False
            )
