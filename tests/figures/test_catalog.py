"""Figures from results: what is drawn, from which runs, and what is told to be lacking."""

import dataclasses
from collections.abc import Sequence

import pytest

pytest.importorskip("matplotlib")

from arrn.errors import ArrnError
from arrn.experiments import Result
from arrn.experiments.plan import plan
from arrn.figures import FIGURES, Drawing, choose_figures, draw_figures
from arrn.figures.subject import Subject
from artists import labels, legends, names_beside, texts
from invented import invent, invent_all


def no_subject() -> Subject:
    raise AssertionError("no picture is to be drawn")


def draw(name: str, results: Sequence[Result]) -> Drawing:
    (drawing,) = draw_figures([name], results, no_subject)
    return drawing


def chosen(*names: str) -> list[Result]:
    return [invent(run) for run in plan("sample") if run.name in names]


def test_names_are_checked_and_none_is_all() -> None:
    assert choose_figures([]) == list(FIGURES)
    with pytest.raises(ArrnError, match=r"unknown figure 'robustnes'; did you mean 'robustness'\? \(known: 'ablation'"):
        choose_figures(["tree", "robustnes"])


def test_with_every_run_nothing_is_lacking() -> None:
    for drawing in draw_figures(FIGURES[:5], invent_all(), no_subject):
        assert drawing.figure is not None
        assert drawing.stem.endswith("-sample")
        assert drawing.lacking == ()


def test_tables_hold_what_was_measured_and_name_what_was_not_run() -> None:
    results = invent_all()
    page = draw("tables", results).text
    assert page is not None
    ours = next(result for result in results if result.name == "arrn_small")
    top = ours.points()[-1]
    low, high = top["interval"]
    (line,) = [line for line in page.splitlines() if line.startswith("| ARRN with Laplacian dropout | 1 |")]
    cell = line.split("|")[3].replace("*", "").strip()
    assert cell == f"{100 * top['accuracy']:.1f} ±{50 * (high - low):.1f}"
    fixed = next(result for result in results if result.name == "resnet18").points()[-1]
    (line,) = [line for line in page.splitlines() if line.startswith("| ResNet18 | ") and "±" not in line]
    assert line.split("|")[2].strip() == f"{100 * (top['accuracy'] - fixed['accuracy']):.1f}"
    assert f"`{ours.command}`" in page
    assert "### Not run" not in page
    few = draw("tables", [result for result in results if result.name not in ("arrn_small-poor", "resnet50")])
    assert few.text is not None
    assert few.text.endswith("### Not run\n\n`arrn_small-poor`, `resnet50`\n")
    assert "dual effect" in page
    assert "dual effect" not in few.text


def with_own_kernel(result: Result) -> Result:
    """A result whose network does better by five points where its own kernel lowers the images."""
    if result.kernel in (None, "perfect"):
        return result
    better = [{**each, "accuracy": each["accuracy"] + 0.05} for each in result.report.results]
    return dataclasses.replace(result, own_kernel=better)


def test_images_lowered_by_the_own_kernel_have_figures_and_tables_of_their_own() -> None:
    results = [with_own_kernel(result) for result in invent_all() if "ablation" in result.experiments]
    stems = {drawing.stem: drawing for drawing in draw_figures(["ablation", "tree"], results, no_subject)}
    assert list(stems) == [f"{name}{own}-sample" for name in ("ablation", "tree") for own in ("", "-own-kernel")]
    for stem, drawing in stems.items():
        assert drawing.figure is not None
        assert ("images lowered by each network's own kernel" in texts(drawing.figure)) == ("own-kernel" in stem)
    page = draw("tables", results).text
    assert page is not None
    assert "### Images lowered by the network's own kernel" in page
    rows = [line for line in page.splitlines() if "| its own kernel |" in line]
    assert len(rows) == 4
    assert rows[0].startswith("| ARRN, fair kernel, with Laplacian dropout | its own kernel |")


def test_tables_say_what_adaptation_changes_and_which_runs_the_plan_would_train_otherwise() -> None:
    page = draw("tables", chosen("arrn_small-poor-no-dropout", "resnet18")).text
    assert page is not None
    (row,) = [line for line in page.splitlines() if "| the perfect kernel |" in line]
    # 40 points of 1,000 at each of the eight resolutions below 32, of nine.
    assert row == "| ARRN, poor kernel, without dropout | the perfect kernel | -3.56 | 1.26 | -4.00 | 0.00 |"
    assert "- `resnet18`: epochs was 3 and is now 100" in page
    assert "- `arrn_small-poor-no-dropout`: epochs was 3 and is now 100; the number of parameters was 2 and" in page


def test_uneven_classes_have_a_table_of_balanced_accuracy() -> None:
    (result,) = chosen("resnet18")
    page = draw("tables", [result]).text
    points = [{**point, "balanced_accuracy": 0.123} for point in result.report.results]
    uneven = dataclasses.replace(result, report=dataclasses.replace(result.report, results=points))
    assert page is not None
    assert "Balanced" not in page
    shown = draw("tables", [uneven]).text
    assert shown is not None
    assert "| ResNet18 | 12.3 |" in shown


def test_without_results_nothing_is_drawn_from_them() -> None:
    drawings = list(draw_figures(FIGURES[:5], [], no_subject))
    assert [drawing.figure for drawing in drawings] == [None] * 5
    assert drawings[-1].lacking == ("results of `arrn reproduce ablation`",)


def test_robustness_shows_baselines_and_rivals_each_beside_the_arrns() -> None:
    figure = draw("robustness", invent_all()).figure
    assert figure is not None
    baselines, rivals = map(names_beside, figure.axes)
    ours = {"ARRN with Laplacian dropout", "ARRN without dropout"}
    assert ours | {"ResNet18"} < set(baselines)
    assert len(baselines) == 2 + 10
    assert set(rivals) == {
        *ours,
        "ResNet18, small stem",
        "small stem, random resolutions",
        "ResNet18, switchable",
        "Fourier operator",
        "small stem, only at 16",
        "small stem, only at 8",
    }


def test_plateaus_of_the_policy_cheap_are_explained() -> None:
    run = invent(plan("sample")[0])
    cheap = dataclasses.replace(run, recipe={**run.recipe, "policy": "cheap"})
    for result, explained in ((run, False), (cheap, True)):
        figure = draw("robustness", [result]).figure
        assert figure is not None
        assert ("hence the plateaus" in texts(figure)) == explained


def test_robustness_with_few_runs_tells_which_are_lacking() -> None:
    drawing = draw("robustness", chosen("arrn_small", "resnet18"))
    assert drawing.figure is not None
    assert len(drawing.figure.axes) == 1
    assert "arrn_small-no-dropout" in drawing.lacking
    assert "specialist-8" in drawing.lacking
    assert "resnet18" not in drawing.lacking


def test_each_data_set_has_figures_of_its_own() -> None:
    results = [invent(run, dataset=name) for name in ("cifar10", "sample") for run in plan("sample")[:1]]
    assert [drawing.stem for drawing in draw_figures(["robustness"], results, no_subject)] == [
        "robustness-cifar10",
        "robustness-sample",
    ]


def test_times_are_compared_only_where_measured_alike() -> None:
    ours, fixed, other = chosen("arrn_small", "resnet18", "mobilenet_v3_large")
    elsewhere = dataclasses.replace(other, timings=[time | {"device": "cuda"} for time in other.timings])
    drawing = draw("efficiency", [ours, fixed, elsewhere])
    assert drawing.figure is not None
    times, multiply_adds = drawing.figure.axes
    assert times.get_ylabel() == "inference time of 1,000 images (s)"
    assert [len(axes.lines) for axes in (times, multiply_adds)] == [3, 4]
    assert "times of mobilenet_v3_large, measured as arrn_small's" in drawing.lacking
    assert "times on cpu, float32, batches of 10" in texts(drawing.figure)


def test_without_times_multiply_adds_are_drawn() -> None:
    drawing = draw("efficiency", [dataclasses.replace(run, timings=[]) for run in chosen("arrn_small", "resnet18")])
    assert drawing.figure is not None
    assert [axes.get_ylabel() for axes in drawing.figure.axes] == ["multiply-adds of one image (millions)"]
    assert {"times of arrn_small", "times of resnet18"} <= set(drawing.lacking)
    assert draw("efficiency", chosen("resnet18")).figure is None


def test_only_architectures_trained_both_ways_are_compared() -> None:
    drawing = draw("generalization", chosen("arrn_resnet18", "resnet18", "resnet50", "arrn_mobilenet_v3_small"))
    assert drawing.figure is not None
    assert "trained for 3 epochs, one seed each\nResNet18" in texts(drawing.figure)
    assert labels(legends(drawing.figure)[0]) == ["transplanted into ARRNs (1)", "fixed resolution (1)"]
    assert {"arrn_resnet50", "mobilenet_v3_small"} <= set(drawing.lacking)
    assert draw("generalization", chosen("arrn_resnet18", "resnet50")).figure is None


def test_the_tree_needs_every_combination_and_graphs_show_what_there_is() -> None:
    few = [result for result in invent_all() if result.name != "arrn_small-poor"]
    assert draw("tree", few).figure is None
    drawing = draw("ablation", few)
    assert drawing.lacking == draw("tree", few).lacking == ("arrn_small-poor",)
    assert drawing.figure is not None
    assert [len(axes.lines) for axes in drawing.figure.axes[:3]] == [4, 4, 2]


def test_the_tree_is_that_of_the_runs() -> None:
    figure = draw("tree", invent_all((0, 1))).figure
    assert figure is not None
    written = texts(figure)
    # As invented: a perfect kernel loses nothing, the others where dropout and adaptation do not go together.
    assert [written.count(f"%\n{word}") for word in ("agrees", "disagrees", "equal")] == [8, 0, 4]
    assert "averaged over resolutions 32, 28, 24, 20, 16, 12, 8, 6, 4" in written
