"""Sample images at each resolution, with what each network says of them."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from arrn.data import open_dataset
from arrn.demo.trial import BATCH, COST_COLUMNS, Contender, Cost
from arrn.deploy import Predictor
from arrn.evaluation import lower
from arrn.runtime import Answer
from arrn.signal.grid import format_grid
from arrn.writing import write_atomically


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
    folders: Sequence[Path], resolutions: Sequence[int], count: int = 8, device: str = "cpu"
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


_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1b2733; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.7rem; line-height: 1.2; }
h2 { font-size: 1.2rem; margin-top: 2.2rem; }
img.plot { max-width: 100%; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .8rem; text-align: right; border-bottom: 1px solid #d8dee4; }
th:first-child, td:first-child { text-align: left; }
td .interval { color: #66727f; font-size: .85em; display: block; white-space: nowrap; }
.answers th { text-align: center; }
.answers td { text-align: center; vertical-align: top; font-size: .8rem; line-height: 1.35; padding: .5rem; }
.answers td { white-space: nowrap; }
.answers img { width: 96px; height: 96px; image-rendering: pixelated; display: block; margin: 0 auto .3rem; }
.right { color: #176d3b; } .right::before { content: "\\2713 "; }
.wrong { color: #b3261e; } .wrong::before { content: "\\2717 "; }
.level { color: #66727f; }
footer { margin-top: 3rem; color: #66727f; font-size: .85rem; }
"""


def write_page(
    path: Path,
    plot: Path,
    contenders: Sequence[Contender],
    lines: Mapping[str, Sequence[Mapping[str, Any]]],
    costs: Sequence[Cost],
    showings: Sequence[Sequence[Showing]],
    provenance: Mapping[str, object],
) -> None:
    """Writes the report: the plot, the tables, and the images with each network's answers."""
    picture = base64.b64encode(plot.read_bytes()).decode()
    resolutions = sorted({point["resolution"] for points in lines.values() for point in points}, reverse=True)
    body = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>arrn: one network, many resolutions</title><style>{_STYLE}</style></head><body>
<h1>One network, many resolutions</h1>
<p>Three small networks were trained on 5,000 images of CIFAR-10 at 32x32, and tested on images of lower and lower
resolution. An adaptive resolution residual network (ARRN) skips the levels that a small image has nothing for;
Laplacian dropout, in training, makes what is left robust.</p>
<img class="plot" alt="Accuracy over resolution" src="data:image/png;base64,{picture}">
<h2>Accuracy</h2>
{_accuracies(lines, resolutions)}
<p>In %, with 95% intervals (Wilson).</p>
<h2>What the ARRN needs at each resolution</h2>
{_table(COST_COLUMNS, [cost.cells(costs[0]) for cost in costs])}
<p>Error: skipping levels against running all of them, relative, in float32. Time: a batch of {BATCH} on the CPU.</p>
<h2>What the networks say</h2>
<p>The first test image of each class, with the answer of each network and the grid that the image started on: an
ARRN's levels above it did not run, a ResNet18 interpolates every image to 32x32.</p>
{_answers(showings, resolutions, [contender.short for contender in contenders])}
<footer>{html.escape(", ".join(f"{name} {value}" for name, value in provenance.items() if value is not None))}</footer>
</body></html>
"""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, body.encode())


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], kind: str = "") -> str:
    head = "".join(f"<th>{cell}</th>" for cell in header)
    body = "\n".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<table class="{kind}"><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>'


def _accuracies(lines: Mapping[str, Sequence[Mapping[str, Any]]], resolutions: Sequence[int]) -> str:
    def cell(point: Mapping[str, Any]) -> str:
        low, high = point["interval"]
        return f'{100 * point["accuracy"]:.1f} <span class="interval">{100 * low:.1f} to {100 * high:.1f}</span>'

    rows = [
        [html.escape(name), *(cell(p) for r in resolutions for p in points if p["resolution"] == r)]
        for name, points in lines.items()
    ]
    return _table(["", *(f"{r}x{r}" for r in resolutions)], rows)


def _answers(showings: Sequence[Sequence[Showing]], resolutions: Sequence[int], shorts: Sequence[str]) -> str:
    def answer(short: str, name: str, grid: str, right: bool) -> str:
        verdict = f'<span class="{"right" if right else "wrong"}">{html.escape(name)}</span>'
        return f'<span class="level">{html.escape(short)}</span> {verdict} <span class="level">{grid}</span>'

    def cell(showing: Showing) -> str:
        lines = "<br>".join(
            answer(short, name, format_grid(said.level), name == showing.truth)
            for short, (name, said) in zip(shorts, showing.answers, strict=True)
        )
        return f'<img alt="{html.escape(showing.truth)}" src="data:image/png;base64,{_png(showing.pixels)}">{lines}'

    rows = [[html.escape(row[0].truth), *map(cell, row)] for row in showings]
    return _table(["", *(f"{r}x{r}" for r in resolutions)], rows, "answers")


def _png(pixels: torch.Tensor) -> str:
    file = io.BytesIO()
    Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()
