"""Judging a trained network: its accuracy at many resolutions, from its folder to a report."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import nn

from arrn.data import Normalisation, Placement, open_batches
from arrn.errors import ArrnError
from arrn.evaluation import Report, Resampler, default_resolutions, evaluate, make_report, settings_for
from arrn.experiments.device import pick_device
from arrn.experiments.settings import RunSettings, read_settings
from arrn.experiments.splits import open_split
from arrn.nn.arrn import Policy
from arrn.saving import CONFIG, Metadata, load
from arrn.training.step import memory_format_for

__all__ = ["judge", "load_network"]


def load_network(folder: Path, device: torch.device) -> tuple[nn.Module, Metadata, Normalisation]:
    """The network of a folder on the device, what it expects of its inputs, and what makes inputs so.

    Raises:
        ArrnError: for a folder without a finished run, or a network that was saved without its normalisation.
    """
    if (folder / "checkpoints").is_dir() and not (folder / CONFIG).exists():
        raise ArrnError(f"the run in {folder} is not finished: go on with `arrn train ... --out {folder} --resume`")
    model = load(folder)
    metadata = model.metadata
    assert isinstance(metadata, Metadata)
    if metadata.mean is None or metadata.std is None:
        raise ArrnError(
            f"{folder} does not tell how inputs are normalised: save with arrn.save(model, path, Metadata(mean, std))"
        )
    model.to(device).to(memory_format=memory_format_for(2))
    return model, metadata, Normalisation(metadata.mean, metadata.std).to(device)


def judge(
    folder: Path,
    resolutions: Sequence[int] = (),
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
) -> Report:
    """Evaluates the network in `folder` on the data it was trained for, or others with the same classes.

    Args:
        folder: a finished run, or any folder that `arrn.save` wrote.
        resolutions: none is from the images' own size down to an eighth; for images of differing sizes
            also as they come.
        policies, adapt: for an ARRN, what to evaluate.
        dataset, data: another data set than the run's; another place for it.
        split: "test", or the run's "validation" or "train".
        resampler: what makes lower resolutions; by default what the network was saved with.
        batch_size: samples per run of the network.
        device: "auto", "cpu", "cuda" or "mps".
        stream: read from disk, keep in memory, or as memory allows.
        progress: told the number of samples done, and of all.
    """
    place = pick_device(device)
    model, metadata, normalisation = load_network(folder, place)
    settings = read_settings(folder) if dataset is None else RunSettings(dataset)
    if settings is None:
        raise ArrnError(f"{folder} does not tell which data set it was trained on: name one with --dataset")
    if data is not None:
        settings = dataclasses.replace(settings, data=data)
    examined = open_split(settings, split)
    _check_classes(metadata, examined.source.class_names, settings.dataset)
    batches = open_batches(examined, Placement.unchanged(examined.sizes), batch_size, place, stream=stream)
    chosen: list[int | None] = list(resolutions)
    if not chosen:
        as_they_come = [None] if len(batches.grids) > 1 else []
        chosen = [*as_they_come, *default_resolutions(model, max(max(grid) for grid in batches.grids))]
    plans = settings_for(model, chosen, policies, adapt)
    how = resampler or metadata.resampler or "perfect"
    total = len(examined.source)
    answers = evaluate(
        model, batches, plans, normalisation, how, None if progress is None else lambda done: progress(done, total)
    )
    name: str = model.config["name"]  # type: ignore[index,assignment]  # nn.Module takes any attribute
    return make_report(name, examined.source.name, split, answers, how)


def _check_classes(metadata: Metadata, class_names: tuple[str, ...], dataset: str) -> None:
    known = metadata.class_names
    if known is None or known == class_names:
        return
    first = next((pair for pair in zip(known, class_names, strict=False) if pair[0] != pair[1]), None)
    how = f"{len(known)} classes against {len(class_names)}" if first is None else f"{first[0]!r} against {first[1]!r}"
    raise ArrnError(f"the classes of {dataset!r} are not those that the network was trained on: {how}")
