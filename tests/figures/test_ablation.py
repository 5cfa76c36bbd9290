"""Figures of the ablation: graphs with tables, and the tree of decisions."""

import itertools

import pytest

pytest.importorskip("matplotlib")

from matplotlib.table import Table

from arrn.errors import ArrnError
from arrn.evaluation import Combination, decision_tree
from arrn.figures.ablation import (
    ablation_look,
    ablation_tree,
    draw_ablation,
    draw_decision_tree,
    overall_tree_figure,
)
from arrn.figures.curves import Point
from arrn.figures.runs import group_runs
from artists import check_legends, labels, texts
from invented import invent_all

KERNELS = ("perfect", "fair", "poor")
COMBINATIONS = [Combination(k, d, a) for k, d, a in itertools.product(KERNELS, (True, False), (True, False))]
MEANS = dict(zip(COMBINATIONS, [0.8, 0.8, 0.6, 0.6, 0.77, 0.73, 0.5, 0.5, 0.66, 0.54, 0.33, 0.27], strict=True))


def points(mean: float) -> list[Point]:
    return [Point(size, mean + shift, mean, mean) for size, shift in ((8, -0.1), (16, 0.0), (32, 0.1))]


def table(axes: object) -> list[list[str]]:
    (found,) = [child for child in axes.get_children() if isinstance(child, Table)]
    cells = found.get_celld()
    rows, columns = (1 + max(place) for place in zip(*cells, strict=True))
    return [[cells[row, column].get_text().get_text() for column in range(columns)] for row in range(rows)]


def test_each_kernel_has_its_graph_and_its_table() -> None:
    figure = draw_ablation({c: points(mean) for c, mean in MEANS.items()}, "a title")
    graphs, tables = figure.axes[:3], figure.axes[3:]
    assert [axes.get_title() for axes in graphs] == ["perfect kernel", "fair kernel", "poor kernel"]
    assert [len(axes.lines) for axes in graphs] == [4, 4, 4]
    assert [len(axes.collections) for axes in graphs] == [2, 2, 2]  # the shaded gaps
    assert len({axes.get_ylim() for axes in graphs}) == 1
    assert labels(graphs[0].legend_)[1] == "with dropout, all levels"
    assert table(tables[2]) == [
        ["", "mean", "s.d.", "lowest", "highest"],
        ["with dropout", "+12.00", "0.00", "+12.00", "+12.00"],
        ["without dropout", "+6.00", "0.00", "+6.00", "+6.00"],
    ]
    check_legends(figure)


def test_a_graph_shows_what_there_is() -> None:
    some = {Combination("poor", True, True): points(0.5)}
    figure = draw_ablation(some)
    assert [len(axes.lines) for axes in figure.axes] == [1, 0]
    assert not [child for child in figure.axes[1].get_children() if isinstance(child, Table)]


def test_combinations_look_different_also_in_greyscale() -> None:
    for kernel in KERNELS:
        looks = [ablation_look(kernel, dropout, adapt) for dropout in (True, False) for adapt in (True, False)]
        assert len({(look.line, look.marker) for look in looks}) == 4
    with pytest.raises(ArrnError, match="unknown kernel 'good'"):
        ablation_look("good", dropout=True, adapt=True)


def test_the_tree_shows_every_factor_and_verdict() -> None:
    tree = decision_tree(MEANS)
    figure = draw_decision_tree(tree, "a title")
    (axes,) = figure.axes
    written = texts(figure)
    for kernel in tree.children:
        assert f"{kernel.choice}\n{kernel.factor:.3f}" in written
        for factor in [node.factor for node in kernel.children]:
            assert f"{factor:.3f}" in written
    # Equal: perfect, and fair without dropout. Against theory: poor without dropout. The rest as theory wants.
    assert [written.count(f"%\n{word}") for word in ("agrees", "disagrees", "equal")] == [4, 2, 6]
    assert "This holds at 4 of the 6 leaves that differ from 1" in figure._supxlabel.get_text()
    assert "grows (with dropout) and does not grow (without)." in figure._supxlabel.get_text()
    edges = [line for line in axes.lines if line.get_marker() == "None"]
    assert len(edges) == 3 + 6 + 12
    assert sum(line.get_linestyle() == ":" for line in edges) == 6
    boxes = [text.get_bbox_patch() for text in axes.texts if text.get_bbox_patch() is not None]
    assert len(boxes) == 1 + 3 + 6 + 12
    assert sum(box.get_facecolor()[:3] == (0, 0, 0) for box in boxes) == 9


def test_the_tree_over_all_data_sets_averages_those_that_are_complete() -> None:
    complete = {name: group_runs(invent_all(dataset=name))[name] for name in ("sample", "cifar10")}
    partial = {"cifar100": group_runs(invent_all(dataset="cifar100"))["cifar100"][:1]}
    assert overall_tree_figure({"sample": complete["sample"], **partial}) is None
    drawing = overall_tree_figure({**complete, **partial})
    assert drawing is not None
    assert drawing.figure is not None
    assert (drawing.stem, drawing.lacking) == ("tree-all", ("a complete ablation of cifar100",))
    means = [tree.mean for runs in complete.values() if (tree := ablation_tree(runs)) is not None]
    assert f"{sum(means) / 2:.1%}" in texts(drawing.figure)
