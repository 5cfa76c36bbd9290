"""The demonstration's report: accuracy, what the ARRN skips, and sample images with what each network says of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from arrn.data import open_dataset
from arrn.demo.trial import BATCH, COST_COLUMNS, Contender, Cost
from arrn.deploy import Predictor
from arrn.evaluation import lower
from arrn.pages import (
    Content,
    Markup,
    document,
    element,
    join,
    ladder,
    line_chart,
    series_of,
    spell_count,
    spell_resolution,
    table,
    thumbnail,
    write_page,
)
from arrn.provenance import machine_of
from arrn.runtime import Answer
from arrn.signal.grid import format_grid


@dataclass(frozen=True)
class Showing:
    """One image at one resolution.

    Attributes:
        pixels: uint8 of shape (3, resolution, resolution).
        truth: its class.
        answers: for each network, the class it gives and how it came to it.
    """

    pixels: torch.Tensor
    truth: str
    answers: tuple[tuple[str, Answer], ...]


def show_answers(
    folders: Sequence[Path], resolutions: Sequence[int], count: int = 10, device: str = "cpu"
) -> list[list[Showing]]:
    """For each of `count` test images of differing classes, a row of it at each resolution.

    The images are the first of each class in the test split: nobody chose them.
    """
    source = open_dataset("sample").test
    assert source is not None
    names = source.class_names
    first = [int((source.labels == label).nonzero()[0]) for label in range(min(count, len(names)))]
    originals = torch.stack([source.read(index) for index in first]).float()
    rows: list[list[Showing]] = [[] for _ in first]
    predictors = [Predictor(folder, device=device) for folder in folders]
    for resolution in resolutions:
        low = lower(originals, (resolution, resolution)).round().clamp(0, 255).to(torch.uint8)
        answers = [predictor(list(low)) for predictor in predictors]
        for n, index in enumerate(first):
            said = tuple((names[each[n].label], each[n]) for each in answers)
            rows[n].append(Showing(low[n], names[int(source.labels[index])], said))
    return rows


def write_report(
    path: Path,
    contenders: Sequence[Contender],
    lines: Mapping[str, Sequence[Mapping[str, Any]]],
    costs: Sequence[Cost],
    showings: Sequence[Sequence[Showing]],
    provenance: Mapping[str, object],
) -> None:
    """Writes the report: the headline, accuracies, what is skipped, and the images with each network's answers."""
    resolutions = sorted({point["resolution"] for points in lines.values() for point in points}, reverse=True)
    ours, rival = contenders[0].title, contenders[-1].title
    lowest = resolutions[-1]
    here, there = (_accuracy(lines[title], lowest) for title in (ours, rival))
    size = spell_resolution(lowest)
    page = document(
        "arrn: one network, many resolutions",
        element("h1", f"At {size}: {here:.0f}% against {there:.0f}%"),
        element(
            "p",
            f"That share of the test images is named rightly at {size} by an adaptive resolution residual network "
            f"({ours}) and by a fixed one ({rival}) that does as many multiply-adds. Both were trained on 5,000 images "
            f"of CIFAR-10 at {spell_resolution(resolutions[0])}.",
            class_="lead",
        ),
        element("h2", "Accuracy over resolution"),
        line_chart([series_of(name, points) for name, points in lines.items()], spell_resolution, "Accuracy"),
        _accuracies(lines, resolutions),
        element("p", "In %, with 95% intervals (Wilson).", class_="soft"),
        element("h2", "Small images skip levels"),
        element(
            "p",
            "An ARRN is a ladder of levels. A level runs only if the image has details for it; the answer is the same "
            "as if all levels ran. Laplacian dropout, in training, makes what is left robust.",
        ),
        _ladder(costs, showings[0] if showings else ()),
        _measured(costs),
        element(
            "p",
            "Error: skipping levels against running all of them, relative, in float32. Time: a batch of "
            f"{BATCH} on the CPU; times vary from machine to machine and from run to run.",
            class_="soft",
        ),
        element("h2", "What the networks say"),
        element(
            "p",
            "The first test image of each class at each resolution. Point at a mark, or move to it with the tab key, "
            "to see the answer, its probability, and the grid that the image started on: an ARRN's levels above that "
            "grid did not run; a ResNet18 takes every image to 32x32.",
        ),
        _legend(),
        _answers(showings, resolutions, contenders),
        element("footer", f"arrn {provenance.get('arrn')} on {machine_of(provenance)}."),
    )
    write_page(path, page)


def _accuracy(points: Sequence[Mapping[str, Any]], resolution: int) -> float:
    return next(100 * float(point["accuracy"]) for point in points if point["resolution"] == resolution)


def _accuracies(lines: Mapping[str, Sequence[Mapping[str, Any]]], resolutions: Sequence[int]) -> Markup:
    """A row for each network where the screen is wide enough, which five columns of numbers fit on a phone too."""

    def cell(point: Mapping[str, Any]) -> Markup:
        low, high = (f"{100 * bound:.0f}" for bound in point["interval"])
        return join([f"{100 * point['accuracy']:.1f}", element("small", f"{low} to {high}")])

    rows: list[list[Content]] = [
        [name, *(cell(p) for r in resolutions for p in points if p["resolution"] == r)]
        for name, points in lines.items()
    ]
    return table(["", *map(spell_resolution, resolutions)], rows)


def _ladder(costs: Sequence[Cost], first: Sequence[Showing]) -> Markup:
    """Which levels run for each resolution, with an image of it."""
    images = {len(showing.pixels[0]): showing for showing in first}
    rows: list[tuple[Content, int, Content]] = []
    for cost in costs:
        size, showing = spell_resolution(cost.resolution), images.get(cost.resolution)
        picture = None if showing is None else thumbnail(showing.pixels, f"{showing.truth} at {size}")
        name = join([picture, size])
        rows.append((name, costs[0].levels - cost.levels, f"{spell_count(cost.multiply_adds)}"))
    grids = [str(grid) for grid in sorted({cost.grid for cost in costs}, reverse=True)]
    return ladder(grids, rows)


def _measured(costs: Sequence[Cost]) -> Markup:
    """What the picture of the ladder does not tell."""
    shown = [COST_COLUMNS.index(column) for column in ("input", "parameters", "time", "speed-up", "error")]
    rows = [cost.cells(costs[0]) for cost in costs]
    return table([COST_COLUMNS[n] for n in shown], [[cells[n] for n in shown] for cells in rows])


def _mark(right: bool, words: str | None = None) -> Markup:
    tip = None if words is None else element("span", words, class_="tip middle", aria_hidden="true")
    return element(
        "span",
        "\u2713" if right else "\u2717",
        tip,
        class_=f"verdict {'right' if right else 'wrong'}{'' if words is None else ' has-tip'}",
        tabindex=None if words is None else "0",
        role="img",
        aria_label=words or ("right" if right else "wrong"),
    )


def _legend() -> Markup:
    right = element("span", _mark(True), "the right class")
    wrong = element("span", _mark(False), "another class")
    return element("div", right, wrong, class_="legend")


def _answers(
    showings: Sequence[Sequence[Showing]], resolutions: Sequence[int], contenders: Sequence[Contender]
) -> Markup:
    """A card for each image: a column for each resolution, a row of marks for each network."""
    cards = []
    for row in showings:
        cells: list[Markup] = [element("span", "")]
        cells += [element("span", str(resolution), class_="soft") for resolution in resolutions]
        cells.append(element("span", "image", class_="name"))
        cells += [
            thumbnail(showing.pixels, f"{showing.truth} at {spell_resolution(resolution)}")
            for resolution, showing in zip(resolutions, row, strict=True)
        ]
        for number, contender in enumerate(contenders):
            cells.append(element("span", contender.short, title=contender.title, class_="name"))
            for resolution, showing in zip(resolutions, row, strict=True):
                said, answer = showing.answers[number]
                words = (
                    f"{contender.title} at {spell_resolution(resolution)}: {said}, "
                    f"{100 * answer.probability:.0f}%, started on {format_grid(answer.level)}"
                )
                cells.append(_mark(said == showing.truth, words))
        grid = element("div", *cells, class_="grid", style=f"--columns:{len(resolutions)}")
        cards.append(element("div", element("h3", row[0].truth), grid, class_="card"))
    return element("div", *cards, class_="cards")
