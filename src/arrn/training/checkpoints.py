"""Checkpoints: a run's whole state in one safetensors file, written whole or not at all.

File names depend on the epoch (and the step within it), never on the time. The two latest are kept, so
that a damaged last one costs no more than the work since the one before.
"""

from __future__ import annotations

import json
import logging
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch

from arrn.errors import ArrnError, RunError, plain
from arrn.reading import check_regular, parse_json
from arrn.training.step import TrainingStep
from arrn.writing import remove_leftovers, write_atomically

FORMAT, FORMAT_VERSION = "arrn-checkpoint", 1
_OLD_FORMAT = "arrn checkpoint"
_KEPT = 2
_NAME = re.compile(r"checkpoint-(\d{4,9})(?:-(\d{6,9}))?\.safetensors", re.ASCII)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Checkpoint:
    """What a run needs to go on.

    Attributes:
        epoch: epochs completed.
        step: steps taken in the epoch that follows.
        tensors: weights and optimiser state by name.
        facts: anything else, as JSON holds it.
    """

    epoch: int
    step: int
    tensors: Mapping[str, torch.Tensor]
    facts: Mapping[str, Any]

    @property
    def file_name(self) -> str:
        """Where it is kept."""
        return f"checkpoint-{self.epoch:04d}" + (f"-{self.step:06d}" if self.step else "") + ".safetensors"


class Checkpoints:
    """The checkpoints of a run, in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, checkpoint: Checkpoint) -> Path:
        """Writes a checkpoint and removes all but the two latest up to it.

        Later ones are there only when they could not be read and the run went back.

        Raises:
            RunError: when it cannot be written; the ones before are untouched.
        """
        path = self.folder / checkpoint.file_name
        try:
            write_checkpoint(path, checkpoint)
            present = self._paths()
            kept = present[present.index(path) :][:_KEPT]
            for other in present:
                if other not in kept:
                    other.unlink(missing_ok=True)
        except OSError as error:
            latest = next((p.name for p in self._paths()), "none")
            raise RunError(
                f"cannot write {path}: {error.strerror or error}; the latest checkpoint is {latest}: "
                "make room and go on with --resume"
            ) from error
        return path

    def read_latest(self) -> Checkpoint | None:
        """The latest checkpoint that can be read, None where there is none yet.

        Damaged ones after it are reported.

        Raises:
            ArrnError: when there are checkpoints and all are damaged.
        """
        damaged = []
        for path in self._paths():
            try:
                checkpoint = read_checkpoint(path)
                if (checkpoint.epoch, checkpoint.step) != _position(path):
                    raise ArrnError(f"{path} is misnamed: it holds {checkpoint.file_name}")
            except ArrnError as error:
                damaged.append(str(error))
                continue
            for reason in damaged:
                logger.warning("%s; going back to %s", plain(reason), path.name)
            return checkpoint
        if damaged:
            raise ArrnError(
                f"no checkpoint in {self.folder} can be read; remove them to start afresh: {'; '.join(damaged)}"
            )
        return None

    def epochs(self) -> list[int]:
        """The epochs from which a run may go on with what is here, latest first."""
        return [_position(path)[0] for path in self._paths()]

    def _paths(self) -> list[Path]:
        """The files, latest first."""
        found = [path for path in self.folder.glob("checkpoint-*") if _NAME.fullmatch(path.name) and path.is_file()]
        return sorted(found, key=_position, reverse=True)


def _position(path: Path) -> tuple[int, int]:
    name = _NAME.fullmatch(path.name)
    assert name is not None
    return int(name[1]), int(name[2] or 0)


def write_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Writes a checkpoint as a file, made with its folder if need be, whole or not at all."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in checkpoint.tensors.items()}
    facts = json.dumps({"epoch": checkpoint.epoch, "step": checkpoint.step, "facts": dict(checkpoint.facts)})
    header = {
        "format": FORMAT,
        "format_version": str(FORMAT_VERSION),
        "facts": facts,
        "checksum": _checksum(tensors, facts),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(path.parent)
    write_atomically(path, safetensors.torch.save(tensors, header))


def read_checkpoint(path: Path) -> Checkpoint:
    """What `write_checkpoint` wrote.

    Raises:
        ArrnError: for a file that is damaged, or is none.
    """
    try:
        check_regular(path)
        with safetensors.safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # not a dictionary
        if header.get("format") not in (FORMAT, _OLD_FORMAT):
            raise ArrnError(f"{path} is not an arrn checkpoint")
        if header.get("format_version") != str(FORMAT_VERSION):
            raise ArrnError(
                f"{path} has format version {header.get('format_version')}, this arrn reads {FORMAT_VERSION}"
            )
        if header["checksum"] != _checksum(tensors, header["facts"]):
            raise ArrnError(f"{path} is damaged: its checksum does not match")
        told = parse_json(header["facts"])
        for name in ("epoch", "step"):
            if type(told[name]) is not int or told[name] < 0:
                raise ValueError(f"{name} must be a whole number of at least 0, got {told[name]!r:.80}")
        return Checkpoint(told["epoch"], told["step"], tensors, dict(told["facts"]))
    except OSError as error:
        raise ArrnError(f"cannot read {path}: {error.strerror or error}") from error
    except ArrnError:
        raise
    except Exception as error:  # readers of damaged bytes raise anything
        raise ArrnError(f"{path} is damaged: {error or type(error).__name__}") from None


def _checksum(tensors: Mapping[str, torch.Tensor], facts: str) -> str:
    """A checksum of everything but itself: safetensors notices only a wrong length."""
    value = zlib.crc32(facts.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        value = zlib.crc32(f"{name} {tensor.dtype} {list(tensor.shape)}".encode(), value)
        value = zlib.crc32(tensor.reshape(-1).view(torch.uint8).numpy().data, value)
    return f"{value:08x}"


_MODEL, _OPTIMIZER, _AVERAGE = "model.", "optimizer.", "average."
# What each keeps of a parameter.
_KEPT_BY: dict[type[torch.optim.Optimizer], tuple[str, ...]] = {
    torch.optim.AdamW: ("step", "exp_avg", "exp_avg_sq"),
    torch.optim.SGD: ("momentum_buffer",),
}


def _as_index(text: str, items: Sequence[object]) -> int:
    if not (text.isdecimal() and len(text) < 9 and int(text) < len(items)):
        raise ValueError(f"there is no parameter {text:.80}")
    return int(text)


def state_tensors(step: TrainingStep) -> dict[str, torch.Tensor]:
    """Weights, batch-norm statistics, their averages where there are any, and the optimiser's state, by name."""
    tensors = {_MODEL + name: tensor for name, tensor in step.model.state_dict().items()}
    if step.result is not step.model:
        tensors |= {_AVERAGE + name: tensor for name, tensor in step.result.state_dict().items()}
    for index, state in step.optimizer.state_dict()["state"].items():
        for key, value in state.items():
            if isinstance(value, torch.Tensor):  # SGD without momentum keeps a None
                tensors[f"{_OPTIMIZER}{index}.{key}"] = value
    return tensors


def _under(prefix: str, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def result_tensors(checkpoint: Checkpoint) -> dict[str, torch.Tensor]:
    """The weights of the network that a run would save if it ended at a checkpoint: averaged ones where it has them."""
    return _under(_AVERAGE, checkpoint.tensors) or _under(_MODEL, checkpoint.tensors)


def restore_state(step: TrainingStep, tensors: Mapping[str, torch.Tensor]) -> None:
    """Puts the state of `state_tensors` back, on the device and in the memory order of the weights.

    Raises:
        ArrnError: when the tensors are not those of this network.
    """
    parameters = [parameter for group in step.optimizer.param_groups for parameter in group["params"]]
    try:
        step.model.load_state_dict(_under(_MODEL, tensors))
        if step.result is not step.model:
            if not (averages := _under(_AVERAGE, tensors)):
                raise ValueError("it holds no average of the weights, which the recipe asks for")
            step.result.load_state_dict(averages)
        for name, value in tensors.items():
            if not name.startswith(_OPTIMIZER):
                continue
            index, _, key = name.removeprefix(_OPTIMIZER).partition(".")
            parameter = parameters[_as_index(index, parameters)]
            known = _KEPT_BY[type(step.optimizer)]
            if key not in known:
                raise ValueError(f"{name:.80} does not belong to this optimiser, which keeps {', '.join(known)}")
            expected = torch.Size() if key == "step" else parameter.shape
            if value.shape != expected:
                raise ValueError(f"{name} has shape {tuple(value.shape)}, expected {tuple(expected)}")
            like = torch.empty((), dtype=torch.float32) if key == "step" else torch.empty_like(parameter)
            step.optimizer.state[parameter][key] = like.to(parameter.device).copy_(value)
        if any(len(state) < len(_KEPT_BY[type(step.optimizer)]) for state in step.optimizer.state.values()):
            raise ValueError("the state of the optimiser is incomplete")
    except (RuntimeError, ValueError, IndexError) as error:
        raise ArrnError(f"the checkpoint does not belong to this network: {' '.join(str(error).split())}") from None
