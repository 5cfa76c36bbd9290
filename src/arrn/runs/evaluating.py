"""The evaluation of a trained network: from its folder to a report of its accuracy at many resolutions."""

from __future__ import annotations

import dataclasses
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from arrn.data import Examined, Normalisation, Placement, frame, open_batches, word_for
from arrn.errors import ArrnError
from arrn.evaluation import (
    Answers,
    Report,
    Resampler,
    affordable_batch,
    by_class,
    check_resampler,
    default_resolutions,
    evaluate,
    leading_answers,
    make_report,
    sample_order,
    settings_for,
    worst_mistakes,
)
from arrn.metadata import Metadata
from arrn.nn import ARRN, multiply_adds_of_noise
from arrn.nn.network import Policy, as_network, config_of
from arrn.runs.building import aspect_for, check_fit
from arrn.runs.device import pick_device, true_float32
from arrn.runs.run_folder import is_finished
from arrn.runs.settings import RUN_FILE, RunSettings, read_settings
from arrn.runs.splits import open_split
from arrn.runs.stopped import Stopped, ended_in_words, read_stopped
from arrn.runtime.aspect import as_aspect
from arrn.saving import load
from arrn.signal.grid import Grid, format_grid
from arrn.teamwork import join_team, team_device
from arrn.training.step import order_memory

logger = logging.getLogger(__name__)


def load_network(
    folder: Path, device: torch.device, stopped: Stopped | None = None
) -> tuple[nn.Module, Metadata, Normalisation]:
    """The network of a folder on the device, in float32, what it expects of its inputs, and what makes inputs so.

    Args:
        folder: a finished run, or any folder that `arrn.save` wrote.
        device: where it goes.
        stopped: the network of a run that is not finished, to be taken instead.

    Raises:
        ArrnError: for a folder without a finished run, or a network that was saved without its normalisation.
    """
    if stopped is None and (folder / RUN_FILE).exists() and not is_finished(folder):
        raise ArrnError(
            f"the run in {folder} is not finished: go on with `arrn train --resume --out {folder}`, evaluate it as it "
            f"is with --checkpoint, or end it with `arrn finish {folder}`"
        )
    model = load(folder, torch.float32) if stopped is None else stopped.model
    metadata = model.metadata
    assert isinstance(metadata, Metadata)
    if metadata.mean is None or metadata.std is None:
        raise ArrnError(
            f"{folder} does not say how inputs are normalised: save with arrn.save(model, path, Metadata(mean, std))"
        )
    order_memory(model.to(device), as_network(model).ndim)
    return model, metadata, Normalisation(metadata.mean, metadata.std).to(device)


def evaluate_run(
    folder: Path,
    resolutions: Sequence[int] = (),
    *,
    policies: Sequence[Policy] = ("exact", "cheap"),
    adapt: Sequence[bool] = (True, False),
    dataset: str | None = None,
    data: str | None = None,
    split: str = "test",
    resampler: Resampler | None = None,
    batch_size: int = 256,
    device: str = "auto",
    stream: bool | None = None,
    progress: Callable[[int, int], None] | None = None,
    skip_bad: bool = False,
    workers: int = 2,
    aspect: str | None = None,
    mistakes: int | None = None,
    max_pixels: int | None = None,
    checkpoint: bool = False,
) -> Report:
    """Evaluates the network in `folder` on the data it was trained for, or others with the same classes.

    In float32, without the TF32 that training may have switched on in this process.

    Args:
        folder: a finished run, or any folder that `arrn.save` wrote.
        resolutions: the resolutions to measure. If empty, they go from the samples' own size, or the network's largest
            size if that is smaller, down to an eighth; samples that differ in size are also measured at their own size.
        policies: for an ARRN, the policies to measure.
        adapt: for an ARRN, whether to measure with skipping levels (True), without (False), or both.
        dataset: another data set than the run's.
        data: another folder that holds the data set.
        split: "test", or the run's "validation" or "train".
        resampler: how lower resolutions are made; by default, the resampler that the network was saved with.
        batch_size: the number of samples in a run of the network.
        device: "auto", "cpu", "cuda" or "mps".
        stream: read samples as they are needed (True), keep them in memory (False), or as memory allows (None).
        progress: told the number of samples done, and of all.
        skip_bad: whether to leave out samples that cannot be read. Runs that were trained so always leave them out.
        workers: the number of processes that read from disk.
        aspect: how to fit samples of other proportions than the grids; by default as in training.
        mistakes: how many of the most confident wrong answers to keep for each resolution, with counts class by class
            and multiply-adds; None keeps none of these.
        max_pixels: refuse images of more pixels, or volumes of more voxels. None is 64 million.
        checkpoint: whether to evaluate a run that is not finished: the network that `finish_run` would save.
    """
    place = team_device(pick_device(device))
    stopped = read_stopped(folder) if checkpoint else None
    model, metadata, normalisation = load_network(folder, place, stopped)
    resampler = resampler or metadata.resampler or "perfect"
    check_resampler(resampler, as_network(model).ndim)
    aspect = as_aspect(aspect or metadata.aspect)
    examined = open_samples(
        folder,
        model,
        metadata,
        split,
        dataset=dataset,
        data=data,
        skip_bad=skip_bad,
        aspect=aspect,
        max_pixels=max_pixels,
    )
    name = config_of(model)["name"]
    plans = settings_for(model, _choose_resolutions(resolutions, model, examined), policies, adapt)
    total = len(examined.sizes)
    few = affordable_batch(batch_size, examined.sizes, model)
    placement = Placement.unchanged(examined.sizes)
    with (
        join_team(place) as team,
        true_float32(),
        open_batches(
            examined, placement, batch_size=few, device=place, stream=stream, workers=workers, team=team
        ) as batches,
    ):
        tell = None if progress is None else lambda done: progress(done, total)
        answers = evaluate(model, batches, plans, normalisation, resampler, tell)
        order = sample_order(examined.sizes, batches)
    report = make_report(
        answers,
        model=name,
        dataset=examined.source.name,
        split=split,
        resampler=resampler,
        aspect=aspect,
        skipped=[str(error) for error in examined.bad],
        remarks=[*_origin_in_words(folder, stopped), *examined.remarks],
    )
    if mistakes is None:
        return report
    leading = leading_answers(answers, as_network(model).policy)
    names = examined.source.class_names
    details: dict[str, Any] = {
        "axes": as_network(model).ndim,
        "window": metadata.window,
        "grids": [format_grid(grid) for grid in model.grids] if isinstance(model, ARRN) else [],
        "class_names": list(names),
        "by_class": [by_class(each, len(names)) for each in leading],
        "cost": _costs(model, leading),
    }
    worst = [
        mistake for each in leading for mistake in worst_mistakes(each, examined.source, order, mistakes, resampler)
    ]
    return dataclasses.replace(report, facts={**report.facts, **details}, mistakes=worst)


def _origin_in_words(folder: Path, stopped: Stopped | None) -> list[str]:
    """Which weights are evaluated, if not those of a run's last epoch."""
    if stopped is not None:
        return [f"the weights are those of {stopped}"]
    return [ended] if (ended := ended_in_words(folder)) else []


def _costs(model: nn.Module, leading: Sequence[Answers]) -> list[dict[str, Any]]:
    """The cost in each setting; none for a network of the user's own that cannot be counted without data."""
    try:
        return [_cost(model, each) for each in leading]
    except RuntimeError:  # its forward looks at values, which the meta device does not have
        return []


def _cost(model: nn.Module, answers: Answers) -> dict[str, Any]:
    """The multiply-adds of one sample in a setting, on average over the grids on which samples entered.

    `full`: when every level runs; None for a network that does not skip any.
    """
    channels, setting = getattr(model, "in_channels", 3), answers.setting

    def count(run: nn.Module, grid: Grid) -> int:
        return multiply_adds_of_noise(run, (1, int(channels), *grid))

    entered = Counter(answers.grids)
    if not isinstance(model, ARRN):
        native = {grid: count(model, grid) for grid in entered}
        full = None
    else:
        full = count(model.at_resolution(model.grids[0]), model.grids[0])
        skips = setting.adapt is not False
        native = {grid: count(model.at_resolution(grid), grid) if skips else full for grid in entered}
    mean = sum(native[grid] * times for grid, times in entered.items()) / len(answers.grids)
    return {"resolution": setting.resolution, "multiply_adds": round(mean), "full": full}


def open_samples(
    folder: Path,
    model: nn.Module,
    metadata: Metadata,
    split: str,
    *,
    dataset: str | None = None,
    data: str | None = None,
    skip_bad: bool = False,
    aspect: str = "stretch",
    max_pixels: int | None = None,
) -> Examined:
    """A split of the data that the network in `folder` was trained for, or of others with the same classes.

    The arguments are those of `evaluate_run`.
    """
    settings = read_settings(folder) if dataset is None else RunSettings(dataset, window=metadata.window or 1.0)
    if settings is None:
        raise ArrnError(f"{folder} does not say which data set it was trained on: name one with --dataset")
    settings = dataclasses.replace(settings, data=data or settings.data, skip_bad=skip_bad or settings.skip_bad)
    examined = open_split(settings, split, folder if dataset is None else None, max_pixels)
    check_fit(model, config_of(model)["name"], examined.source.form, examined.source.name)
    _check_classes(metadata, examined.source.class_names, settings.dataset)
    return frame(examined, aspect_for(model, aspect, examined.source.form.ndim), settings.skip_bad)


def _choose_resolutions(wanted: Sequence[int], model: nn.Module, examined: Examined) -> list[int | None]:
    """Those that are wanted, or what suits the network and the samples; warns of those that change nothing."""
    largest = max(map(max, examined.sizes))
    for resolution in wanted:
        if resolution > largest:
            word = word_for(examined.source.form.ndim)
            logger.warning(
                "no %s is larger than %d: resolution %d measures them at their own size", word, largest, resolution
            )
    if wanted:
        return list(wanted)
    as_they_come = [None] if len(set(examined.sizes)) > 1 else []
    return [*as_they_come, *default_resolutions(model, largest)]


def _check_classes(metadata: Metadata, class_names: tuple[str, ...], dataset: str) -> None:
    known = metadata.class_names
    if known is None or known == class_names:
        return
    first = next((pair for pair in zip(known, class_names, strict=False) if pair[0] != pair[1]), None)
    how = f"{len(known)} classes against {len(class_names)}" if first is None else f"{first[0]!r} against {first[1]!r}"
    raise ArrnError(f"the classes of {dataset!r} are not those that the network was trained on: {how}")
