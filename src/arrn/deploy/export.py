"""`export_network`: from the folder of a saved network to one of files that run without this library."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch

from arrn.deploy.calibration import read_cascade
from arrn.deploy.evaluated import Evaluated, find_evaluation
from arrn.deploy.parts import Parts, choose_levels, take_apart
from arrn.errors import ArrnError, RunError, first_line, needs, unknown_name
from arrn.hub import hub_address, locate
from arrn.metadata import Metadata
from arrn.model_folder import CONFIG, checksum_in, read_config
from arrn.nn.arrn import ARRN
from arrn.nn.introspection import count_parameters, multiply_adds, multiply_adds_of_noise
from arrn.nn.network import Policy, config_of
from arrn.provenance import provenance
from arrn.reading import read_document
from arrn.runs import load_network
from arrn.runtime import Cascade
from arrn.runtime.levels import level_of
from arrn.runtime.manifest import (
    FORMAT,
    FORMAT_VERSION,
    MANIFEST,
    TARGETS,
    ExportedFile,
    LevelEntry,
    Manifest,
    Target,
)
from arrn.signal.grid import Grid, format_grid
from arrn.signal.kernels import WhittakerShannon, kernel_options
from arrn.signal.resample import resample
from arrn.writing import new_folder, write_atomically, write_document

TOLERANCE = 1e-4
"""How far an answer of an exported file may be from PyTorch's."""

Say: TypeAlias = Callable[[str], None]
Runner: TypeAlias = Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]
"""Takes stored numbers of shape (batch, channels, *space) to answers, by an exported file."""

Count: TypeAlias = Callable[[torch.nn.Module, tuple[int, ...]], int]

Quantise: TypeAlias = Callable[[Path, Parts, Manifest, Say], Manifest]
"""Adds 8-bit files to an exported folder and to its manifest: `arrn.deploy.quantising.Quantiser`."""

_BATCHES = (1, 3)


@dataclass(frozen=True)
class Exported:
    """The result of an export.

    Attributes:
        folder: the exported folder.
        manifest: the description of the folder's files.
        refused: a sentence for each file that was removed, since its answers differ from PyTorch's.
    """

    folder: Path
    manifest: Manifest
    refused: tuple[str, ...]


def export_network(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    target: str = "onnx",
    *,
    levels: Sequence[str] | None = None,
    policy: Policy | None = None,
    say: Say = lambda text: None,
    quantise: Quantise | None = None,
) -> Exported:
    """Writes one file for each level of a network, each with normalisation, resampling and softmax inside.

    Every file is run as soon as it is written, and its answers are compared with PyTorch's. A file whose answers differ
    by more than `TOLERANCE` is removed.

    Args:
        source: the folder of a finished run, or any folder that `arrn.save` wrote, or an address on the hub.
        out: the new folder. A folder that holds an earlier export is replaced.
        target: "onnx", "pt2" or "executorch".
        levels: the grids of the levels to export, such as ["32", "16"]; None exports all levels.
        policy: the level for sizes between two grids: "exact" or "cheap". None is the network's own policy.
        say: told each step, in a line.
        quantise: for ONNX, a function that adds 8-bit files, such as a `Quantiser`.

    Raises:
        ArrnError: for a network that cannot be exported, a folder with other files, or a missing package.
    """
    source, out = locate(source), Path(out)
    if quantise is not None and target != "onnx":
        raise ArrnError(f"8-bit files are made for ONNX, not for {target!r:.40}: leave --int8 out, or export --to onnx")
    if target not in TARGETS:
        raise unknown_name("target", target, TARGETS)
    _check_place(out)
    model, metadata, _ = load_network(source, torch.device("cpu"))
    parts = take_apart(model, metadata, policy, keep_shared=target == "onnx")
    chosen = choose_levels(parts.grids, levels)
    evaluated = find_evaluation(source)
    # It is of all levels.
    cascade = read_cascade(source) if len(chosen) == len(parts.grids) else None
    with new_folder(out) as staging:
        writer = _Writer(staging, parts, chosen, say)
        manifest = _describe(source, model, metadata, parts, target, cascade)
        # ONNX files leave out what lies below open gates; other programs do the same work for all signals.
        costs = costs_of(parts, multiply_adds_of_noise if target == "onnx" else multiply_adds)
        limits = [most for _, most in costs_of(parts, multiply_adds)]  # for any signal
        most = dict(zip(map(format_grid, parts.grids), limits, strict=True))
        accuracies = None if evaluated is None else _accuracies(evaluated, parts, chosen, costs)
        manifest = replace(manifest, facts={**manifest.facts, "accuracy": accuracies, "most_multiply_adds": most})
        manifest = {"onnx": writer.write_onnx, "pt2": writer.write_pt2, "executorch": writer.write_executorch}[target](
            manifest, costs, evaluated
        )
        if not manifest.levels:
            raise RunError(f"nothing was exported: {'; '.join(writer.refused)}")
        if quantise is not None:
            manifest = quantise(staging, parts, manifest, say)
        write_document(staging / MANIFEST, FORMAT, FORMAT_VERSION, manifest.to_json())
        Manifest.from_json(read_document(staging / MANIFEST, FORMAT, FORMAT_VERSION))
    return Exported(out, manifest, tuple(writer.refused))


def costs_of(parts: Parts, count: Count = multiply_adds_of_noise) -> list[tuple[int, int]]:
    """Parameters and multiply-adds at each level, highest first; `count` takes a module and the shape of its input."""
    model = parts.reference
    cast = [model.at_resolution(grid) if isinstance(model, ARRN) else model for grid in parts.grids]
    return [
        (count_parameters(each), count(each, (1, parts.channels, *grid)))
        for each, grid in zip(cast, parts.grids, strict=True)
    ]


def _describe(
    source: Path,
    model: torch.nn.Module,
    metadata: Metadata,
    parts: Parts,
    target: Target,
    cascade: Cascade | None,
) -> Manifest:
    """The manifest before any file is there."""
    with torch.no_grad():
        classes = parts.answer(torch.zeros(1, parts.channels, *parts.grids[-1])).shape[1]
    config = read_config(source) if (source / CONFIG).is_file() else {}
    facts = {
        "network": {
            "options": config_of(model)["options"],
            "parameters": count_parameters(model),
            "weights_sha256": checksum_in(config),
            "hub_address": hub_address(source),
        },
        "input": {
            "name": "signal",
            "dtype": "float32",
            "numbers": f"as stored, {_range(parts)}; normalisation, resampling and softmax are inside the files",
            "shape": [
                "batch",
                "channels",
                *{1: ["length"], 2: ["height", "width"], 3: ["depth", "height", "width"]}[parts.ndim],
            ],
        },
        "normalisation": {"mean": list(parts.mean), "std": list(parts.std), "of": "numbers divided by full_scale"},
        "kernel": kernel_options(parts.kernel),
        "provenance": provenance(),
    }
    return Manifest(
        target=target,
        model=config_of(model)["name"],
        ndim=parts.ndim,
        channels=parts.channels,
        full_scale=parts.full_scale,
        any_size=False,
        output=parts.answers,
        classes=classes,
        class_names=metadata.class_names,
        window=metadata.window,
        policy=parts.policy,
        aspect=metadata.aspect,
        levels=(),
        cascade=cascade,
        facts=facts,
    )


def _accuracies(
    evaluated: Evaluated, parts: Parts, chosen: Sequence[int], costs: Sequence[tuple[int, int]]
) -> dict[str, Any]:
    """What was evaluated, with the level and the multiply-adds of each resolution.

    Resolutions of levels that are not exported are left out: another level answers to them.
    """
    document = evaluated.to_json()
    kept = []
    for result in document["results"]:
        size, policy = (result["resolution"],) * parts.ndim, result["policy"] or parts.policy
        level = level_of(parts.grids, size, policy)
        if level == chosen[level_of([parts.grids[n] for n in chosen], size, policy)]:
            kept.append({**result, "level": format_grid(parts.grids[level]), "multiply_adds": costs[level][1]})
    return {**document, "results": kept}


def _range(parts: Parts) -> str:
    return "-32768 to 32767" if parts.ndim == 1 else "0 to 255"


class _Writer:
    """Writes the files of one export into a folder, each checked as soon as it is there."""

    def __init__(self, folder: Path, parts: Parts, chosen: Sequence[int], say: Say) -> None:
        self.folder, self.parts, self.chosen, self.say = folder, parts, tuple(chosen), say
        self.refused: list[str] = []

    def write_onnx(self, manifest: Manifest, costs: Sequence[tuple[int, int]], evaluated: Evaluated | None) -> Manifest:
        with needs("onnx", "exporting to ONNX", "onnx"):
            import onnx  # noqa: F401
            import onnxruntime  # noqa: F401
            import onnxscript  # noqa: F401
        from arrn.deploy.onnx_graph import store_in_half
        from arrn.deploy.onnx_program import OnnxPrograms, resampling_file
        from arrn.runtime.onnx_engine import open_session

        parts = self.parts
        programs = OnnxPrograms(parts, self.chosen)

        def runner(file: ExportedFile) -> Runner:
            session = open_session(self.folder, file, threads=1)
            return lambda batch: session.run(None, {"signal": batch})[0]

        entries = []
        for level in self.chosen:
            file = self._write(
                f"level-{format_grid(parts.grids[level])}.onnx", programs.level_file(level).SerializeToString()
            )
            checked = self._check(file, runner(file), level, self._sizes(level, programs.any_size))
            entries += self._entry(checked, level, costs, evaluated)
        every, resampling = None, None
        if programs.any_size:
            assert isinstance(parts.kernel, WhittakerShannon)
            content = resampling_file(parts.ndim, parts.kernel).SerializeToString()
            resampling = self._write("resample.onnx", content)
            if len(self.chosen) > 1:
                file = self._write("any-size.onnx", store_in_half(programs.any_size_file()).SerializeToString())
                every = self._check(file, runner(file), None, self._sizes(None, True))
        return replace(
            manifest, any_size=programs.any_size, levels=tuple(entries), all_levels=every, resampling=resampling
        )

    def write_pt2(self, manifest: Manifest, costs: Sequence[tuple[int, int]], evaluated: Evaluated | None) -> Manifest:
        from arrn.deploy.torch_programs import pt2_program, run_pt2, takes_any_size

        any_size = takes_any_size(self.parts)
        entries = []
        for level in self.chosen:
            name = f"level-{format_grid(self.parts.grids[level])}.pt2"
            file = self._write(name, pt2_program(self.parts, level))
            checked = self._check(file, run_pt2(self.folder / name), level, self._sizes(level, any_size))
            entries += self._entry(checked, level, costs, evaluated)
        return replace(manifest, any_size=any_size, levels=tuple(entries))

    def write_executorch(
        self, manifest: Manifest, costs: Sequence[tuple[int, int]], evaluated: Evaluated | None
    ) -> Manifest:
        from arrn.deploy.torch_programs import executorch_program, run_executorch

        entries = []
        for level in self.chosen:
            name = f"level-{format_grid(self.parts.grids[level])}.pte"
            file = self._write(name, executorch_program(self.parts, level))
            checked = self._check(file, run_executorch(self.folder / name), level, self._sizes(level, False), (1,))
            entries += self._entry(checked, level, costs, evaluated)
        return replace(manifest, levels=tuple(entries))

    def _write(self, name: str, content: bytes) -> ExportedFile:
        write_atomically(self.folder / name, content)
        return described(self.folder / name, content)

    def _entry(
        self,
        file: ExportedFile | None,
        level: int,
        costs: Sequence[tuple[int, int]],
        evaluated: Evaluated | None,
    ) -> list[LevelEntry]:
        if file is None:
            return []
        grid = self.parts.grids[level]
        accuracy = None if evaluated is None else evaluated.at(grid)
        return [LevelEntry(grid, file, *costs[level], accuracy=accuracy)]

    def _sizes(self, level: int | None, any_size: bool) -> list[Grid]:
        """Sizes that a file is checked at."""
        grids = self.parts.grids
        if level is None:  # each level, between levels, a rectangle, above and below
            small, large = tuple(max(2, n // 2) for n in grids[-1]), tuple(n + 3 for n in grids[0])
            between = [tuple(max(2, n - 1) for n in grids[n]) for n in self.chosen]
            flat = (large[0] * 2, *grids[-1][1:])
            return list(dict.fromkeys([*(grids[n] for n in self.chosen), *between, small, large, flat]))
        grid = grids[level]
        if not any_size:
            return [grid]
        return [grid, tuple(n + 5 + axis for axis, n in enumerate(grid)), tuple(max(2, n * 2 // 3) for n in grid)]

    def _check(
        self,
        file: ExportedFile,
        run: Runner,
        level: int | None,
        sizes: Sequence[Grid],
        batches: Sequence[int] = _BATCHES,
    ) -> ExportedFile | None:
        """The file with its largest difference from PyTorch; removed where that is too large."""
        try:
            worst = max(self._difference(run, level, size, batch) for size in sizes for batch in batches)
        except ArrnError:
            raise
        except Exception as error:  # runtimes raise errors of many types
            self._refuse(file, f"it does not run: {first_line(error)}")
            return None
        if not worst <= TOLERANCE:
            self._refuse(file, f"its answers differ from PyTorch's by {worst:.2g}, more than {TOLERANCE:g}")
            return None
        self.say(f"{file.file}: {file.bytes / 1e6:.2f} MB, differs from PyTorch by {worst:.1g} at most")
        return replace(file, difference=worst)

    def _refuse(self, file: ExportedFile, why: str) -> None:
        (self.folder / file.file).unlink()
        self.refused.append(f"{file.file} was removed: {why}")
        self.say(self.refused[-1])

    def _difference(self, run: Runner, level: int | None, size: Grid, batch: int) -> float:
        stored = noise(self.parts, batch, size)
        x = self.parts.normalise(torch.from_numpy(stored))
        if level is not None:  # a level's file takes every input to its grid
            x = resample(x, self.parts.grids[level], self.parts.kernel)
        elif len(self.chosen) < len(self.parts.grids):
            x = resample(x, self.parts.grids[self._entered(size)], self.parts.kernel)
        expected = self.parts.answer(x).numpy()
        found = run(stored)
        return float(np.abs(found - expected).max()) if found.shape == expected.shape else float("inf")

    def _entered(self, size: Grid) -> int:
        """The level that an input of a size enters at, among those that were chosen."""
        return self.chosen[level_of([self.parts.grids[n] for n in self.chosen], size, self.parts.policy)]


def noise(parts: Parts, batch: int, size: Grid, seed: int = 0) -> np.ndarray[Any, Any]:
    """Random stored numbers, as float32 of shape (batch, channels, *size); a smooth part, and white noise."""
    generator = torch.Generator().manual_seed(seed)
    shape = (batch, parts.channels)
    coarse = torch.rand(*shape, *[2] * parts.ndim, generator=generator, dtype=torch.float64)
    smooth = resample(coarse, size, WhittakerShannon())
    mixed = (0.7 * smooth + 0.3 * torch.rand(*shape, *size, generator=generator)).clamp(0, 1)
    stored = mixed * 255 if parts.ndim > 1 else (2 * mixed - 1) * 32767
    return stored.round().float().numpy()


def described(path: Path, content: bytes) -> ExportedFile:
    """The entry of a file that was written."""
    return ExportedFile(path.name, hashlib.sha256(content).hexdigest(), len(content))


def _check_place(out: Path) -> None:
    """Refuses a place that holds anything but an earlier export."""
    if not out.exists():
        return
    if not out.is_dir():
        raise ArrnError(f"{out} is a file: --out takes the name of a new folder")
    there = {path.name for path in out.iterdir()}
    if not there:
        return
    if MANIFEST not in there:
        raise ArrnError(
            f"{out} holds other files, such as {min(there)!r}: --out takes a new folder, or an earlier export"
        )
    manifest = Manifest.from_json(read_document(out / MANIFEST, FORMAT, FORMAT_VERSION))
    others = there - {MANIFEST, *(file.file for file in manifest.files)}
    if others:
        raise ArrnError(
            f"{out} holds an export and other files, such as {min(others)!r}: move those away, or name another folder"
        )
