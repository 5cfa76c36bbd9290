"""Saving and loading networks: a directory with `model.safetensors` and `config.json`.

Nothing is ever unpickled: weights are read as plain tensors, the architecture as JSON.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import nn

from arrn.documents import read_document, write_document
from arrn.errors import ArrnError
from arrn.models import create_model
from arrn.nn.config import config_of
from arrn.writing import write_atomically

__all__ = ["FORMAT_VERSION", "Metadata", "create_pretrained", "load", "save"]

FORMAT, FORMAT_VERSION = "arrn", 1
WEIGHTS, CONFIG = "model.safetensors", "config.json"


@dataclass(frozen=True)
class Metadata:
    """What a network expects of its inputs, and what its outputs mean.

    Attributes:
        mean, std: the normalisation of the inputs, one number per channel (None: not known).
        resampler: how inputs were brought to lower resolutions, a name or `kernel_options`.
        class_names: a name for each output.
        window: seconds of sound that an input spans; None for what is no sound.
    """

    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    resampler: str | Mapping[str, Any] | None = None
    class_names: tuple[str, ...] | None = None
    window: float | None = None


def save(model: nn.Module, path: str | os.PathLike[str], metadata: Metadata | None = None) -> None:
    """Writes a network that `create_model` built to the directory `path`.

    Args:
        model: the network.
        path: the directory, made if need be.
        metadata: normalisation, resampler and class names; by default ``model.metadata``.
    """
    config = getattr(model, "config", None)
    if config is None:
        raise ArrnError(
            "only networks made by arrn.create_model can be saved, since the file holds their name and options: "
            "register a builder for your own with arrn.models.register(name, builder)"
        )
    metadata = metadata or getattr(model, "metadata", None) or Metadata()
    document = {
        "model": config,
        "dtype": str(next(model.parameters()).dtype).removeprefix("torch."),
        "inputs": asdict(metadata),
    }
    # safetensors refuses tensors that are not contiguous, channels-last ones included.
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    directory = Path(path)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        write_atomically(directory / WEIGHTS, safetensors.torch.save(tensors))
        write_document(directory / CONFIG, FORMAT, FORMAT_VERSION, document)
    except OSError as error:
        raise ArrnError(f"cannot write {directory}: {error.strerror or error}") from error


def load(path: str | os.PathLike[str]) -> nn.Module:
    """Reads a network that `save` wrote; it is in evaluation mode, on the CPU, with its `metadata`.

    Raises:
        ArrnError: for a missing, truncated, foreign or newer file, a pickle, or a wrong tensor shape.
    """
    directory = Path(path)
    if not directory.is_dir():
        raise ArrnError(
            f"{directory} is not a directory: arrn.load takes the directory that holds {WEIGHTS} and {CONFIG}"
        )
    document = read_document(directory / CONFIG, FORMAT, FORMAT_VERSION)
    try:
        model = create_model(document["model"]["name"], **document["model"]["options"])
        model = model.to(getattr(torch, document["dtype"]))
        metadata = _read_metadata(document["inputs"])
    except ArrnError as error:
        raise ArrnError(f"{directory / CONFIG}: {error}") from error
    except (AttributeError, KeyError, TypeError, RuntimeError) as error:
        raise ArrnError(f"{directory / CONFIG} does not describe a model: {type(error).__name__}: {error}") from error
    _fill(model, _read_weights(directory / WEIGHTS), directory / WEIGHTS)
    model.metadata = metadata  # type: ignore[assignment]  # nn.Module takes any attribute
    return model.eval()


def create_pretrained(name: str, path: str | os.PathLike[str], options: Mapping[str, Any]) -> nn.Module:
    """The network `name` with the weights, and but for `options` the options, that `path` holds; see `create_model`.

    Raises:
        ArrnError: for what `load` refuses, and for the weights of another model.
    """
    saved = load(path)
    config = config_of(saved)
    if config["name"] != name:
        raise ArrnError(f"{path} holds the weights of {config['name']!r}, not of {name!r}")
    given = dict(options)
    classes, saved_classes = given.pop("num_classes", None), config["options"].get("num_classes")
    model = create_model(name, **{**config["options"], **given})
    weights = {key: t.float() if t.is_floating_point() else t for key, t in saved.state_dict().items()}
    _fill(model, weights, Path(path) / WEIGHTS)
    if classes is not None and classes != saved_classes:
        reset = getattr(model, "reset_classifier", None)  # every network of the library has it; others may not
        if reset is None:
            raise ArrnError(f"{path} holds a network of {saved_classes} classes, whose head cannot be changed")
        reset(classes)
    model.metadata = saved.metadata
    return model


def _read_metadata(inputs: Mapping[str, Any]) -> Metadata:
    def numbers(name: str) -> tuple[float, ...] | None:
        values = inputs.get(name)
        if values is None:
            return None
        if not isinstance(values, list) or not all(isinstance(v, int | float) and math.isfinite(v) for v in values):
            raise ArrnError(f"{name} must be a list of numbers, got {values!r}")
        return tuple(map(float, values))

    names: Sequence[str] | None = inputs.get("class_names")
    if names is not None and not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        raise ArrnError(f"class_names must be a list of names, got {names!r}")
    window = inputs.get("window")
    if window is not None and not (isinstance(window, int | float) and math.isfinite(window) and window > 0):
        raise ArrnError(f"window must be a number of seconds above 0, got {window!r}")
    class_names = None if names is None else tuple(names)
    return Metadata(numbers("mean"), numbers("std"), inputs.get("resampler"), class_names, window)


def _read_weights(path: Path) -> dict[str, torch.Tensor]:
    try:
        with path.open("rb") as file:
            start = file.read(2)
        if start in (b"PK", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"):
            raise ArrnError(f"{path} is a pickle, which could run any code; arrn reads safetensors only")
        return safetensors.torch.load_file(path)
    except FileNotFoundError:
        raise ArrnError(f"{path} is missing") from None
    except OSError as error:
        raise ArrnError(f"cannot read {path}: {error.strerror or error}") from error
    except safetensors.SafetensorError as error:
        raise ArrnError(f"{path} is truncated or not a safetensors file: {error}") from None


def _fill(model: nn.Module, tensors: Mapping[str, torch.Tensor], path: Path) -> None:
    state = model.state_dict()
    wrong = [
        f"{name} has shape {tuple(tensors[name].shape)}, expected {tuple(state[name].shape)}"
        for name in state
        if name in tensors and tensors[name].shape != state[name].shape
    ]
    wrong += [f"{name} is missing" for name in state if name not in tensors]
    wrong += [f"{name} does not belong to the model" for name in tensors if name not in state]
    if wrong:
        more = f" (and {len(wrong) - 3} more)" if len(wrong) > 3 else ""
        raise ArrnError(f"{path} does not fit its {CONFIG}: {'; '.join(wrong[:3])}{more}")
    model.load_state_dict(dict(tensors))
