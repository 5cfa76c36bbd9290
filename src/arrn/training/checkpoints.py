"""Checkpoints: a run's whole state in one safetensors file, written whole or not at all.

File names depend on the epoch (and the step within it), never on the time. The two latest are kept, so
that a damaged last one costs no more than the work since the one before.
"""

from __future__ import annotations

import json
import logging
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch

from arrn.errors import ArrnError, RunError
from arrn.saving import write_atomically

__all__ = ["Checkpoint", "Checkpoints"]

FORMAT_VERSION = 1
_KEPT = 2
_NAME = re.compile(r"checkpoint-(\d{4,})(?:-(\d{6,}))?\.safetensors")

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
        """Writes a checkpoint and removes all but the latest two.

        Raises:
            RunError: when it cannot be written; the ones before are untouched.
        """
        path = self.folder / checkpoint.file_name
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in checkpoint.tensors.items()}
        facts = {
            "format": "arrn checkpoint",
            "format_version": str(FORMAT_VERSION),
            "facts": json.dumps(dict(checkpoint.facts)),
            "checksum": _checksum(tensors),
        }
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_atomically(path, safetensors.torch.save(tensors, facts))
            for old in self._paths()[_KEPT:]:
                old.unlink(missing_ok=True)
        except OSError as error:
            latest = next((p.name for p in self._paths()), "none")
            raise RunError(
                f"cannot write {path}: {error.strerror or error}; the latest checkpoint is {latest}: "
                "make room and go on with --resume"
            ) from error
        return path

    def read_latest(self) -> Checkpoint | None:
        """The latest checkpoint that can be read, None where there is none yet.

        A damaged one is reported, and the one before taken.

        Raises:
            ArrnError: when there are checkpoints and all are damaged.
        """
        damaged = []
        for path in self._paths():
            try:
                checkpoint = _read(path)
            except ArrnError as error:
                damaged.append(str(error))
                logger.warning("%s; going back to the checkpoint before", error)
                continue
            return checkpoint
        if damaged:
            raise ArrnError(f"no checkpoint in {self.folder} can be read: {'; '.join(damaged)}")
        return None

    def _paths(self) -> list[Path]:
        """The files, latest first."""
        found = [(match, path) for path in self.folder.glob("*") if (match := _NAME.fullmatch(path.name))]
        return [path for match, path in sorted(found, key=lambda pair: _position(pair[0]), reverse=True)]


def _position(name: re.Match[str]) -> tuple[int, int]:
    return int(name[1]), int(name[2] or 0)


def _read(path: Path) -> Checkpoint:
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            facts = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # not a dictionary
        if facts.get("format") != "arrn checkpoint":
            raise ArrnError(f"{path} is not an arrn checkpoint")
        if facts.get("format_version") != str(FORMAT_VERSION):
            raise ArrnError(
                f"{path} has format version {facts.get('format_version')}, this arrn reads {FORMAT_VERSION}"
            )
        if facts.get("checksum") != _checksum(tensors):
            raise ArrnError(f"{path} is damaged: its checksum does not match")
        name = _NAME.fullmatch(path.name)
        assert name is not None
        epoch, step = _position(name)
        return Checkpoint(epoch, step, tensors, json.loads(facts["facts"]))
    except OSError as error:
        raise ArrnError(f"cannot read {path}: {error.strerror or error}") from error
    except (safetensors.SafetensorError, ValueError, KeyError) as error:
        if isinstance(error, ArrnError):
            raise
        raise ArrnError(f"{path} is damaged: {error}") from None


def _checksum(tensors: Mapping[str, torch.Tensor]) -> str:
    """A checksum of names and numbers: safetensors itself notices only a wrong length."""
    value = 0
    for name in sorted(tensors):
        value = zlib.crc32(name.encode(), value)
        value = zlib.crc32(tensors[name].reshape(-1).view(torch.uint8).numpy().data, value)
    return f"{value:08x}"
