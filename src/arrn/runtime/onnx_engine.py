"""`OnnxPredictor`: the predictor over a folder that `arrn export --to onnx` made, by ONNX Runtime and without torch."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ArrnError, first_line, needs
from ..reading import read_bytes
from .files import Array
from .levels import Policy, format_grid
from .manifest import ExportedFile, Manifest, read_manifest
from .predictor import Predictor
from .signals import to_unit_scale

_INPUT, _GRID = "signal", "grid"
_STACKED = 2**22  # numbers of signals that run as they are; of more, each is resampled by itself first
_WEIGHTS_OUTSIDE = b"\x0a\x08location"  # how a tensor of an ONNX file names another file that holds its numbers


class OnnxPredictor(Predictor):
    """Classifies inputs of any sizes, mixed, by the files of an exported folder. Threads may share one predictor.

    Each level's file is read, compared with its checksum and set up when it is first needed.

    Args:
        folder: a folder that `arrn export --to onnx` wrote.
        policy: the level for inputs between two grids: "exact" or "cheap". None is the network's own policy.
        int8: whether to run the 8-bit files of the levels that have one.
        threads: the number of threads of ONNX Runtime; None is one for each core.
        max_pixels: refuse images of more pixels, or volumes of more voxels. None is 64 million.
        aspect: how to fit inputs of other proportions than the grids: "stretch", "pad" or "crop". None is the choice
            in the manifest.

    Raises:
        ArrnError: for a folder that holds no export to ONNX.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        policy: Policy | None = None,
        int8: bool = False,
        threads: int | None = None,
        max_pixels: int | None = None,
        aspect: str | None = None,
    ) -> None:
        self.folder = Path(folder)
        self.manifest = manifest = read_manifest(self.folder)
        _check_use(self.folder, manifest)
        if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or threads < 1):
            raise ArrnError(f"threads must be a whole number of at least 1, or None for all cores, got {threads!r}")
        if int8 and not any(level.int8 is not None and level.int8.kept for level in manifest.levels):
            raise ArrnError(f"{self.folder} holds no 8-bit files: export the network with --int8, or leave out int8")
        super().__init__(
            grids=manifest.grids,
            ndim=manifest.ndim,
            channels=manifest.channels,
            class_names=manifest.class_names,
            window=manifest.window,
            policy=policy or manifest.policy,
            costs=[level.multiply_adds for level in manifest.levels],
            cascade=manifest.cascade,
            max_pixels=max_pixels,
            aspect=aspect or manifest.aspect,
        )
        self.int8, self.threads = int8, threads
        self._sessions: dict[str, Any] = {}
        self._lock = threading.Lock()

    def run(self, level: int, signals: Sequence[Array]) -> Array:
        """See `Predictor.run`."""
        stored = [self._stored(signal) for signal in signals]
        batch = self._stack(level, stored)
        answers: Array = self._call(self._file(level), {_INPUT: batch})[0]
        expected = (len(signals), self.manifest.classes)
        if answers.shape != expected or not np.isfinite(answers).all():
            raise ArrnError(
                f"{self.folder / self._file(level).file} answered with shape {answers.shape}, expected {expected} and "
                "finite numbers: export the network again"
            )
        return answers

    def prepare(self, level: int, count: int) -> None:
        """See `Predictor.prepare`."""
        self._session(self._file(level))
        if self.manifest.resampling is not None:  # which batches of mixed sizes need
            self._session(self.manifest.resampling)

    def _file(self, level: int) -> ExportedFile:
        entry = self.manifest.levels[level]
        if self.int8 and entry.int8 is not None and entry.int8.kept is not None:
            return entry.int8.kept
        return entry.exported

    def _stored(self, samples: Array) -> Array:
        """Samples as the files take them: float32, with the manifest's full scale for 1."""
        return to_unit_scale(samples) * np.float32(self.manifest.full_scale)

    def _stack(self, level: int, stored: Sequence[Array]) -> Array:
        """One batch of signals of perhaps different sizes."""
        grid = self.manifest.levels[level].grid
        sizes = {signal.shape[1:] for signal in stored}
        if sizes == {grid} or (self.manifest.any_size and len(sizes) == 1 and sum(map(np.size, stored)) <= _STACKED):
            return np.stack(stored)
        if not self.manifest.any_size:
            other = next(size for size in sizes if size != grid)
            raise ArrnError(
                f"this export takes inputs of {' or '.join(map(format_grid, self.grids))} only, since the network's "
                f"kernel has matrices for these sizes alone, got {format_grid(other)}: resample the input first"
            )
        assert self.manifest.resampling is not None
        target = np.array(grid, np.int64)
        resampled = [
            signal[None]
            if signal.shape[1:] == grid
            else self._call(self.manifest.resampling, {_INPUT: signal[None], _GRID: target})[0]
            for signal in stored
        ]
        return np.concatenate(resampled)

    def _call(self, file: ExportedFile, inputs: dict[str, Array]) -> list[Array]:
        try:
            answers: list[Array] = self._session(file).run(None, inputs)
        except ArrnError:
            raise
        except Exception as error:  # ONNX Runtime's errors are of a dozen types
            raise ArrnError(f"{self.folder / file.file} does not run: {first_line(error)}") from error
        return answers

    def _session(self, file: ExportedFile) -> Any:
        with self._lock:
            if file.file not in self._sessions:
                self._sessions[file.file] = open_session(self.folder, file, self.threads)
            return self._sessions[file.file]


def _check_use(folder: Path, manifest: Manifest) -> None:
    if manifest.target != "onnx":
        raise ArrnError(f"{folder} holds files for {manifest.target}: export with --to onnx for ONNX Runtime")
    if manifest.output != "probabilities":
        raise ArrnError(f"the network in {folder} returns no classes: run its files with ONNX Runtime itself")
    if manifest.any_size and manifest.resampling is None:
        raise ArrnError(f"{folder} takes inputs of any size but names no file for resampling: export it again")


def open_session(folder: Path, file: ExportedFile, threads: int | None = None) -> Any:
    """A session of ONNX Runtime for one file, whose content is what its checksum says.

    Raises:
        ArrnError: for a file that is missing, damaged, or keeps its weights elsewhere.
    """
    with needs("onnxruntime", "running an exported network", "onnx"):
        import onnxruntime
    content = read_checked(folder, file)
    if _WEIGHTS_OUTSIDE in content:
        raise ArrnError(f"{folder / file.file} keeps its weights in other files, which are not read: export it again")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if threads is not None:
        options.intra_op_num_threads = threads
    try:
        return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime's errors are of a dozen types
        raise ArrnError(f"ONNX Runtime cannot load {folder / file.file}: {first_line(error)}") from error


def read_checked(folder: Path, file: ExportedFile) -> bytes:
    """The content of a file of the folder, if it is what its checksum says.

    Raises:
        ArrnError: with both checksums where it is not.
    """
    path = folder / file.file
    try:
        content = read_bytes(path, file.bytes)
    except FileNotFoundError:
        raise ArrnError(f"{path} is missing") from None
    except OSError as error:
        raise ArrnError(f"cannot read {path}: {error.strerror or error}") from error
    found = hashlib.sha256(content).hexdigest()
    if found != file.sha256:
        raise ArrnError(
            f"{path} is damaged: its SHA-256 is {found[:16]}, but the manifest names {file.sha256[:16]}: copy the "
            "folder again from where it came, or export again"
        )
    return content
