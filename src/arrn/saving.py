"""A network as a directory: its tensors in `model.safetensors`, all else about it in `config.json`.

`save` writes it; `load` reads it, and so does `arrn.creating` for the weights that a new network starts from.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import safetensors.torch
import torch
from torch import nn

from arrn.errors import ArrnError, first_line, unknown_name
from arrn.hub import hub_address, locate
from arrn.metadata import Metadata, read_metadata
from arrn.model_folder import (
    CONFIG,
    DTYPES,
    check_weights,
    checksum_in,
    find_weights,
    read_config,
    read_shapes,
    read_tensors,
    write_model,
)
from arrn.models import registry
from arrn.models.limits import built_within, check_memory, check_options, seems_large
from arrn.models.rebuilding import config_for
from arrn.nn.introspection import COMPILED, first_not_finite, unwrap
from arrn.nn.network import CHANGEABLE, change_option, channels_of, classes_of, plain_option


def save(
    model: nn.Module,
    path: str | os.PathLike[str],
    metadata: Metadata | None = None,
    *,
    builder: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> None:
    """Writes a network to the directory `path`, whole or not at all.

    The files hold the weights, and the name and options by which the network is built again: those of `create_model`,
    those of a transplant's source in timm or torchvision, or those of a builder of your own. If a network was saved
    there before, a crash leaves either the old network or the new one, never a mixture.

    Args:
        model: the network; wrappers of `torch.compile` and of data parallelism are left out.
        path: the directory, which is made if it does not exist.
        metadata: normalisation, resampler and class names; by default ``model.metadata``.
        builder: for a network of your own, the function that builds it, as ``"package.module:function"``. The module
            is imported and the function called, to check that it builds this network; `load` then needs `imports`.
        options: keyword arguments of that function, made of numbers, text, lists and dictionaries.

    Raises:
        ArrnError: before anything is written, for a network that cannot be saved or has parameters that are not finite.
    """
    model = unwrap(model)
    config = config_for(model, builder, options)
    document = describe(model, config, metadata or getattr(model, "metadata", None) or Metadata())
    # Buffers may: a mask for what is not to be seen, for example.
    if (name := first_not_finite(dict(model.named_parameters()))) is not None:
        raise ArrnError(f"{_uncompiled(name)} holds NaN or infinity: this network cannot compute anything")
    content = safetensors.torch.save(_gather_tensors(model))
    directory = Path(path)
    try:
        write_model(directory, content, document)
    except OSError as error:
        raise ArrnError(f"cannot write {directory}: {error.strerror or error}") from error


def load(
    path: str | os.PathLike[str],
    dtype: torch.dtype | Literal["saved"] | None = None,
    *,
    imports: Sequence[str] = (),
) -> nn.Module:
    """Reads a network that `save` wrote; it is in evaluation mode, on the CPU, with its `metadata`.

    Args:
        path: the directory; or ``"hf://OWNER/NAME"``, a repository on the Hugging Face hub, with ``@REVISION`` for a
            branch, a tag or a commit. The network then has a `hub_address`, which names the commit.
        dtype: the dtype of the loaded network. None gives float32 for tensors that were saved in half precision, and
            leaves other tensors as they were saved. ``"saved"`` keeps half precision too. A dtype such as
            ``torch.bfloat16`` or ``torch.float64`` is given to every tensor of real numbers.
        imports: modules of your own, such as ``["package.module"]``, that build networks. Code that a file names runs
            only if its module is here.

    Raises:
        ArrnError: for a missing, truncated, damaged, foreign or newer file, a pickle, a wrong tensor shape, weights
            that are not finite, or names for another number of classes than the network has; for a `dtype` that is not
            for real numbers; for a hub that cannot be reached, and a repository that does not exist.
    """
    if not (dtype in (None, "saved") or (isinstance(dtype, torch.dtype) and dtype in DTYPES)):
        raise ArrnError(
            f"dtype must be a dtype for real numbers, such as torch.float32, or 'saved' or None, got {dtype!r:.80}"
        )
    with registry.importing(imports):
        return _load_there(locate(path), dtype)


def _load_there(directory: Path, dtype: torch.dtype | Literal["saved"] | None) -> nn.Module:
    saved = read_saved(directory)
    weights = saved.weights
    try:
        return _load(saved, dtype)
    except ArrnError:
        again = read_saved(directory)
        if (again, again.weights) == (saved, weights):
            raise
        return _load(again, dtype)  # somebody saved a network there meanwhile


def _load(saved: Saved, dtype: torch.dtype | Literal["saved"] | None) -> nn.Module:
    model = saved.build({})
    as_read = _as_saved if dtype == "saved" else _widened
    buffer_dtypes = {module: as_read(own) for module, own in saved.buffer_dtypes.items()}
    _cast_unsaved_buffers(model, as_read(saved.dtype), buffer_dtypes)
    saved.fill(model, as_read)
    if isinstance(dtype, torch.dtype):
        _cast(model, dtype)
    if (address := hub_address(saved.directory)) is not None:
        model.hub_address = address  # type: ignore[assignment]  # nn.Module takes any attribute
    return model.eval()


def _cast(module: nn.Module, dtype: torch.dtype, *, recurse: bool = True) -> None:
    """As `.to(dtype)` does it, which would also make complex numbers real, and always reach the modules below."""
    module._apply(  # type: ignore[no-untyped-call]
        lambda tensor: tensor.to(dtype) if tensor.is_floating_point() else tensor, recurse=recurse
    )


def _as_saved(dtype: torch.dtype) -> torch.dtype:
    return dtype


def _widened(dtype: torch.dtype) -> torch.dtype:
    """At least single precision."""
    return torch.float32 if dtype.is_floating_point and dtype.itemsize < torch.float32.itemsize else dtype


# What builders raise for options that mean nothing.
_NO_MODEL = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    RuntimeError,
    TypeError,
    ValueError,
)


def _in_short(error: Exception) -> str:
    return f"{type(error).__name__}: {first_line(error):.200}"


@dataclass(frozen=True, kw_only=True)
class Saved:
    """What `CONFIG` says: builder and options, what was changed after building, dtypes, metadata, checksum."""

    directory: Path
    name: str
    options: Mapping[str, Any]
    changed: Mapping[str, Any]
    dtype: torch.dtype
    buffer_dtypes: Mapping[str, torch.dtype]
    metadata: Metadata
    checksum: str | None

    @property
    def weights(self) -> Path:
        """The file of its tensors."""
        return find_weights(self.directory, self.checksum)

    def build(self, given: Mapping[str, Any]) -> nn.Module:
        """The network without its weights, with its metadata; options that are `given` replace the saved ones."""
        place = f"{self.directory / CONFIG}{f' with {dict(given)}' if given else ''}"
        if self.name not in registry.list_models() and ":" not in str(self.name):
            unknown = unknown_name("model", self.name, registry.list_models())
            raise ArrnError(
                f"{place}: {unknown}; if it is a network of your own, register its builder before: "
                f"arrn.models.register({self.name!r}, builder)"
            )
        try:
            changed = {option: given.get(option, value) for option, value in self.changed.items()}
            options = {**self.options, **{option: value for option, value in given.items() if option not in changed}}
            for option in CHANGEABLE:  # files written before `changed` was have all of it among the options
                if option in options and not registry.takes_option(self.name, option):
                    changed[option] = options.pop(option)
            model = self._within_weights(options, changed)
            self.metadata.check_classes(classes_of(model))
            self.metadata.check_channels(channels_of(model))
        except ArrnError as error:
            raise ArrnError(f"{place}: {error}") from error
        except _NO_MODEL as error:
            raise ArrnError(f"{place} does not describe a model: {_in_short(error)}") from error
        model.metadata = self.metadata  # type: ignore[assignment]  # nn.Module takes any attribute
        return model

    def _within_weights(self, options: Mapping[str, Any], changed: Mapping[str, Any]) -> nn.Module:
        """Builds the network; one of the library's may not have many more parameters than the file has numbers."""

        def make() -> nn.Module:
            model = registry.create_model(self.name, **options)
            for option, value in changed.items():
                change_option(model, option, value)
            return model

        if not registry.is_builtin(self.name):
            return make()
        check_options(self.name, changed)
        elements = sum(map(math.prod, read_shapes(self.weights).values()))
        if seems_large({**options, **changed}) and not registry.is_of_library(self.name):
            with torch.device("meta"), built_within(elements):  # where parameters take no memory
                make()
        with built_within(elements):
            model = make()
        check_memory(model)
        return model

    def fill(self, model: nn.Module, as_read: Callable[[torch.dtype], torch.dtype] | None) -> None:
        """Puts all of the saved tensors into a network, or none.

        Args:
            model: the network.
            as_read: from the dtype of a tensor in the file to its dtype in the network; None leaves the network's own.

        Raises:
            ArrnError: for tensors that are missing, of another shape, not the network's, damaged, or not finite.
        """
        path = self.weights
        # Names are cleaned here too, for files that were written before they were.
        shapes = {_uncompiled(name): shape for name, shape in read_shapes(path).items()}
        state = {_uncompiled(name): tensor for name, tensor in model.state_dict(keep_vars=True).items()}
        wrong = [
            f"{name} has shape {shapes[name]}, expected {tuple(state[name].shape)}"
            for name in state
            if name in shapes and shapes[name] != tuple(state[name].shape)
        ]
        wrong += [f"{name} is missing" for name in state if name not in shapes]
        wrong += [f"{name:.80} does not belong to the model" for name in shapes if name not in state]
        if wrong:
            more = f" (and {len(wrong) - 3} more)" if len(wrong) > 3 else ""
            raise ArrnError(f"{path} does not fit its {CONFIG}: {'; '.join(wrong[:3])}{more}")
        check_weights(path, self.checksum)
        tensors = {_uncompiled(name): tensor for name, tensor in read_tensors(path).items()}
        for name, own in state.items():
            if _kind(own.dtype) != _kind(tensors[name].dtype):
                raise ArrnError(f"{path}: {name} is of {tensors[name].dtype}, expected {own.dtype} or alike")
        # What a network is built with, such as a mask, may be infinite.
        learnt = {name: tensor for name, tensor in tensors.items() if first_not_finite({name: state[name]}) is None}
        if (odd := first_not_finite(learnt)) is not None:
            raise ArrnError(f"{path}: {odd} holds NaN or infinity: the training of this network diverged")
        if as_read is not None:
            for name, own in state.items():
                # In place: a tensor that two layers share stays shared, as it would not with `assign=True`.
                own.data = own.data.to(as_read(tensors[name].dtype))
        model.load_state_dict({name: tensors[_uncompiled(name)] for name in model.state_dict()})


def read_saved(directory: Path) -> Saved:
    """What the configuration of a saved network says, without its weights."""
    document = read_config(directory)
    try:
        model = document["model"]
        return Saved(
            directory=directory,
            name=model["name"],
            options={**model["options"]},
            changed={**model.get("changed", {})},
            dtype=_as_dtype(document["dtype"]),
            buffer_dtypes={module: _as_dtype(name) for module, name in document.get("buffer_dtypes", {}).items()},
            metadata=read_metadata(document["inputs"]),
            checksum=checksum_in(document),
        )
    except ArrnError as error:
        raise ArrnError(f"{directory / CONFIG}: {error}") from error
    except _NO_MODEL as error:
        raise ArrnError(f"{directory / CONFIG} does not describe a model: {_in_short(error)}") from error


def describe(model: nn.Module, config: Mapping[str, Any], metadata: Metadata) -> dict[str, Any]:
    """What `CONFIG` holds, but for the checksum of the weights.

    Args:
        model: the network.
        config: what rebuilds it.
        metadata: what it expects of its inputs.

    Raises:
        ArrnError: for what cannot be written.
    """
    config = {key: plain_option(value) for key, value in config.items()}
    if not isinstance(metadata, Metadata):
        raise ArrnError(f"the metadata of a network must be an arrn.saving.Metadata, got {metadata!r}")
    metadata.check_classes(classes_of(model))
    metadata.check_channels(channels_of(model))
    inputs = {field.name: plain_option(getattr(metadata, field.name)) for field in dataclasses.fields(metadata)}
    for option, value in (config["options"] | config.get("changed", {})).items():
        _check_writable(f"option {option!r} of model {config['name']!r}", value)
    for name, value in inputs.items():
        _check_writable(f"{name} of the metadata", value)
    # Tensors in the file have dtypes of their own: this is for buffers that are not in it.
    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.get_default_dtype())
    others = {name: _dtype_name(own) for name, own in _dtypes_of_unsaved_buffers(model).items() if own != dtype}
    mixed = {"buffer_dtypes": others} if others else {}
    return {"model": config, "dtype": _dtype_name(dtype), **mixed, "inputs": inputs}


def _check_writable(what: str, value: object) -> None:
    try:
        json.dumps(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise ArrnError(
            f"{what} is {value!r}, which cannot be written to a file: it should be made of numbers, text, True, False, "
            "None, lists and dictionaries, or be one of arrn's kernels"
        ) from error


def _kind(dtype: torch.dtype) -> tuple[bool, bool]:
    """Whether numbers are real, or complex; else they are whole."""
    return dtype.is_floating_point, dtype.is_complex


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _as_dtype(name: object) -> torch.dtype:
    dtype = getattr(torch, name, None) if isinstance(name, str) else None
    if not isinstance(dtype, torch.dtype) or dtype not in DTYPES:
        raise ArrnError(f"a dtype must be one of torch's for real numbers, such as 'float32', got {name!r}")
    return dtype


def _gather_tensors(model: nn.Module) -> dict[str, torch.Tensor]:
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
        tensors[_uncompiled(name)] = tensor
    return tensors


def _dtypes_of_unsaved_buffers(model: nn.Module) -> dict[str, torch.dtype]:
    """The dtype of each module's buffers that are not in `state_dict`, such as the matrices of `Resampling`."""
    saved = model.state_dict()
    dtypes: dict[str, torch.dtype] = {}
    for name, buffer in model.named_buffers(remove_duplicate=False):
        if name not in saved and buffer.is_floating_point():
            dtypes.setdefault(_uncompiled(name.rpartition(".")[0]), buffer.dtype)
    return dtypes


def _cast_unsaved_buffers(model: nn.Module, usual: torch.dtype, others: Mapping[str, torch.dtype]) -> None:
    """Gives the modules of `_dtypes_of_unsaved_buffers` the `usual` dtype, but for `others`, by module."""
    modules = {_uncompiled(name): module for name, module in model.named_modules(remove_duplicate=False)}
    for name, present in _dtypes_of_unsaved_buffers(model).items():
        dtype = others.get(name, usual)
        if dtype != present:
            _cast(modules[name], dtype, recurse=False)  # `Resampling` then casts from float64


def _uncompiled(name: str) -> str:
    """A tensor's or module's name as if nothing were compiled: that must not decide what a file looks like."""
    return ".".join(part for part in name.split(".") if part != COMPILED)
