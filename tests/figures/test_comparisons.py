"""Figures that compare networks: every line is there, named, and looks like no other."""

from typing import Any

import pytest

pytest.importorskip("matplotlib")

from arrn.errors import ArrnError
from arrn.figures.curves import FAMILIES, Curve, Point, look_of
from arrn.figures.efficiency import Saving, draw_efficiency
from arrn.figures.robustness import draw_generalization, draw_robustness
from artists import check_legends, labels, legends, names_beside

SIZES = (4, 8, 16, 28, 32)


def curve(label: str, family: str, member: int = 0, height: float = 0.5, interval: float = 0.01) -> Curve:
    points = (Point(size, height, height - interval, height + interval) for size in SIZES)
    return Curve(label, family, tuple(points), member)


def test_robustness_has_a_panel_for_each_group_on_one_scale() -> None:
    ours = curve("ARRN", "arrn", height=0.9)
    many = [curve(f"a network with a rather long name {n}", "resnet", n, height=0.5 - 0.001 * n) for n in range(7)]
    figure = draw_robustness({"baselines": [ours, *many], "rivals": [ours, curve("other", "fourier")]}, "a title")
    left, right = figure.axes
    assert (len(left.lines), len(right.lines)) == (8, 2)
    assert left.get_ylim() == right.get_ylim()
    assert names_beside(left) == ["ARRN", *(line.label for line in many)]
    assert names_beside(right) == ["ARRN", "other"]
    assert list(left.lines[0].get_ydata()) == [90] * len(SIZES)
    assert len(left.collections) == 8  # the intervals


def test_the_axis_of_sound_is_in_hertz() -> None:
    (axes,) = draw_robustness({"": [curve("ARRN", "arrn")]}, rate=1000.0).axes
    assert axes.get_xlabel() == "sampling rate (Hz)"
    # 28000 would touch 32000.
    assert [label.get_text() for label in axes.get_xticklabels()] == ["4000", "8000", "16000", "", "32000"]


def test_no_two_members_or_families_look_alike() -> None:
    looks = [look_of(family, member) for family in FAMILIES for member in range(5) if family != "transplant"]
    assert len({(look.colour, look.line, look.marker, look.face) for look in looks}) == len(looks)
    # In greyscale colour is lost: line styles of families, and markers within, must do.
    shown_together = ("arrn", "arrn without dropout", "resnet", "wide_resnet", "mobilenet", "efficientnet")
    assert len({look_of(family).line for family in shown_together}) == len(shown_together)
    with pytest.raises(ArrnError, match="unknown family of networks 'resnets'; did you mean 'resnet'"):
        look_of("resnets")


def test_ticks_name_every_resolution_that_has_room() -> None:
    figure = draw_robustness({"": [curve("ARRN", "arrn")]})
    axis = figure.axes[0].xaxis
    assert list(axis.get_ticklocs()) == list(SIZES)
    assert [label.get_text() for label in axis.get_ticklabels()] == ["4", "8", "16", "28", "32"]


def test_efficiency_shades_what_adaptation_saves() -> None:
    adapted, full = curve("adapted", "arrn", height=1, interval=0), curve("full", "arrn", height=3, interval=0)
    panel = (Saving(adapted, full), [curve("fixed", "resnet", height=2)])
    figure = draw_efficiency({"seconds": panel, "multiply-adds": (panel[0], [curve("more", "fourier")])}, "a title")
    assert [axes.get_ylabel() for axes in figure.axes] == ["seconds", "multiply-adds"]
    shaded = figure.axes[0].collections[0]
    heights = shaded.get_paths()[0].vertices[:, 1]
    assert (heights.min(), heights.max()) == (1, 3)
    (legend,) = legends(figure)
    assert labels(legend) == [
        "adapted",
        "full",
        "saved by adaptation",
        "fixed (no multiply-adds)",
        "more (no seconds)",
    ]
    assert all(axes.get_ylim()[0] == 0 for axes in figure.axes)
    check_legends(figure)


def test_costs_that_differ_widely_have_a_logarithmic_axis() -> None:
    figure = draw_efficiency(
        {"seconds": (None, [curve("quick", "arrn", height=1), curve("slow", "resnet", height=20)])}
    )
    assert figure.axes[0].get_yscale() == "log"


@pytest.mark.parametrize(("count", "points"), [(3, True), (11, False)])
def test_generalization_has_two_boxes_at_each_resolution(count: int, points: bool) -> None:
    group: dict[int, Any] = {size: [0.5 + n / 100 for n in range(count)] for size in SIZES}
    figure = draw_generalization({"transplanted": ("transplant", group), "fixed": ("resnet", group)}, "a title")
    (axes,) = figure.axes
    assert len(axes.patches) == 2 * len(SIZES)
    assert len(axes.collections) == (2 * len(SIZES) if points else 0)
    assert labels(legends(figure)[0]) == [f"transplanted ({count})", f"fixed ({count})"]
    assert [label.get_text() for label in axes.get_xticklabels()] == [str(size) for size in SIZES]
    check_legends(figure)
