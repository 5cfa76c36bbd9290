"""Saving and loading networks: a directory with `model.safetensors` and `config.json`.

Nothing is ever unpickled: weights are read as plain tensors, the architecture as JSON.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import nn

from arrn.documents import read_document, write_document
from arrn.errors import ArrnError, unknown_name
from arrn.metadata import Metadata, read_metadata
from arrn.models.registry import build_model, list_models, takes_option
from arrn.nn.config import CHANGEABLE, change_option, classes_of, config_of, plain_option
from arrn.nn.unwrapping import unwrap
from arrn.weights import (
    cast_unsaved_buffers,
    dtypes_of_unsaved_buffers,
    fill,
    gather_tensors,
    read_tensors,
)
from arrn.writing import write_atomically

__all__ = ["FORMAT_VERSION", "Metadata", "create_pretrained", "load", "save"]

FORMAT, FORMAT_VERSION = "arrn", 1
WEIGHTS, CONFIG = "model.safetensors", "config.json"


def save(model: nn.Module, path: str | os.PathLike[str], metadata: Metadata | None = None) -> None:
    """Writes a network that `create_model` built to the directory `path`.

    Args:
        model: the network; what `torch.compile` or data parallelism put around it is left out.
        path: the directory, made if need be.
        metadata: normalisation, resampler and class names; by default ``model.metadata``.

    Raises:
        ArrnError: for what cannot be written, before anything is.
    """
    model = unwrap(model)
    if getattr(model, "config", None) is None:
        raise ArrnError(
            "only networks made by arrn.create_model can be saved, since the file holds their name and options: "
            "register a builder for your own with arrn.models.register(name, builder)"
        )
    document = _describe(model, metadata or getattr(model, "metadata", None) or Metadata())
    content = safetensors.torch.save(gather_tensors(model))
    directory = Path(path)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        write_atomically(directory / WEIGHTS, content)
        write_document(directory / CONFIG, FORMAT, FORMAT_VERSION, document)
    except OSError as error:
        raise ArrnError(f"cannot write {directory}: {error.strerror or error}") from error


def load(path: str | os.PathLike[str]) -> nn.Module:
    """Reads a network that `save` wrote; it is in evaluation mode, on the CPU, with its `metadata`.

    Every tensor has the dtype that it was saved with.

    Raises:
        ArrnError: for a missing, truncated, foreign or newer file, a pickle, a wrong tensor shape, or names for
            another number of classes than the network has.
    """
    saved = _read(Path(path))
    model = saved.build({})
    cast_unsaved_buffers(model, saved.dtype, saved.buffer_dtypes)
    saved.fill(model, keep_dtypes=True)
    return model.eval()


def create_pretrained(name: str, path: str | os.PathLike[str], options: Mapping[str, Any]) -> nn.Module:
    """The network `name` with the weights, and but for `options` the options, that `path` holds; see `create_model`.

    Raises:
        ArrnError: for what `load` refuses, and for the weights of another model.
    """
    saved = _read(Path(path))
    if saved.name != name:
        raise ArrnError(f"{path} holds the weights of {saved.name!r}, not of {name!r}")
    given = dict(options)
    classes = given.pop("num_classes", None)  # the saved classifier must fit the saved weights first
    model = saved.build(given)
    saved.fill(model, keep_dtypes=False)
    if classes is not None and classes != classes_of(model):
        change_option(model, "num_classes", classes)
    return model


@dataclass(frozen=True)
class _Saved:
    """What `CONFIG` says: the builder's name and options, what was changed after building, dtypes, metadata."""

    directory: Path
    name: str
    options: Mapping[str, Any]
    changed: Mapping[str, Any]
    dtype: torch.dtype
    buffer_dtypes: Mapping[str, torch.dtype]
    metadata: Metadata

    def build(self, given: Mapping[str, Any]) -> nn.Module:
        """The network without its weights, with its metadata; options that are `given` replace the saved ones."""
        place = f"{self.directory / CONFIG}{f' with {dict(given)}' if given else ''}"
        if self.name not in list_models():
            raise ArrnError(
                f"{place}: {unknown_name('model', self.name, list_models())}; if it is a network of your own, register "
                f"its builder before: arrn.models.register({self.name!r}, builder)"
            )
        try:
            changed = {option: given.get(option, value) for option, value in self.changed.items()}
            options = {**self.options, **{option: value for option, value in given.items() if option not in changed}}
            for option in CHANGEABLE:  # files written before `changed` was have all of it among the options
                if option in options and not takes_option(self.name, option):
                    changed[option] = options.pop(option)
            model = build_model(self.name, options)
            for option, value in changed.items():
                change_option(model, option, value)
            self.metadata.check_classes(classes_of(model))
        except ArrnError as error:
            raise ArrnError(f"{place}: {error}") from error
        except (AttributeError, KeyError, TypeError, RuntimeError) as error:
            raise ArrnError(f"{place} does not describe a model: {type(error).__name__}: {error}") from error
        model.metadata = self.metadata  # type: ignore[assignment]  # nn.Module takes any attribute
        return model

    def fill(self, model: nn.Module, keep_dtypes: bool) -> None:
        """Puts the saved weights into a network, with the dtypes of the file or of the network."""
        path = self.directory / WEIGHTS
        fill(model, read_tensors(path), f"{path} does not fit its {CONFIG}", keep_dtypes)


def _read(directory: Path) -> _Saved:
    if not directory.is_dir():
        raise ArrnError(
            f"{directory} is not a directory: arrn.load takes the directory that holds {WEIGHTS} and {CONFIG}"
        )
    document = read_document(directory / CONFIG, FORMAT, FORMAT_VERSION)
    try:
        model = document["model"]
        return _Saved(
            directory,
            model["name"],
            {**model["options"]},
            {**model.get("changed", {})},
            _as_dtype(document["dtype"]),
            {module: _as_dtype(name) for module, name in document.get("buffer_dtypes", {}).items()},
            read_metadata(document["inputs"]),
        )
    except ArrnError as error:
        raise ArrnError(f"{directory / CONFIG}: {error}") from error
    except (AttributeError, KeyError, TypeError) as error:
        raise ArrnError(f"{directory / CONFIG} does not describe a model: {type(error).__name__}: {error}") from error


def _describe(model: nn.Module, metadata: Metadata) -> dict[str, Any]:
    """What `CONFIG` holds."""
    config = {key: plain_option(value) for key, value in config_of(model).items()}
    if not isinstance(metadata, Metadata):
        raise ArrnError(f"the metadata of a network must be an arrn.saving.Metadata, got {metadata!r}")
    metadata.check_classes(classes_of(model))
    inputs = {field.name: plain_option(getattr(metadata, field.name)) for field in fields(metadata)}
    for option, value in (config["options"] | config.get("changed", {})).items():
        _check_writable(f"option {option!r} of model {config['name']!r}", value)
    for name, value in inputs.items():
        _check_writable(f"{name} of the metadata", value)
    # Tensors in the file have dtypes of their own: this is for buffers that are not in it.
    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.get_default_dtype())
    others = {name: _name(own) for name, own in dtypes_of_unsaved_buffers(model).items() if own != dtype}
    mixed = {"buffer_dtypes": others} if others else {}
    return {"model": config, "dtype": _name(dtype), **mixed, "inputs": inputs}


def _check_writable(what: str, value: object) -> None:
    try:
        json.dumps(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise ArrnError(
            f"{what} is {value!r}, which cannot be written to a file: it should be made of numbers, text, True, False, "
            "None, lists and dictionaries, or be one of arrn's kernels"
        ) from error


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _as_dtype(name: object) -> torch.dtype:
    dtype = getattr(torch, name, None) if isinstance(name, str) else None
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise ArrnError(f"a dtype must be one of torch's for real numbers, such as 'float32', got {name!r}")
    return dtype
