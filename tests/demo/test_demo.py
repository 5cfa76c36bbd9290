"""The demonstration, with networks and data small enough for a test; and what its contenders cost."""

import contextlib
import io
import re
from pathlib import Path

import pytest
from PIL import Image

import arrn
from arrn.cli import main
from arrn.demo import CONTENDERS, RESOLUTIONS, Contender
from arrn.nn import ARRN, multiply_adds
from reading_pages import Page, check_alone
from small_runs import COLOURS, write_easy_set

SMALL = {"sizes": [32, 16, 8], "features": [4, 4, 6], "depth": 1, "expansion": 1}
FEW = (
    Contender("With & without", "first", "first", "arrn", SMALL | {"dropout": 0.5}),
    Contender("Without", "second", "second", "arrn", SMALL),
    Contender("Fixed", "third", "third", "resnet18_small_stem", {"width": 2}),
)


def run_demo(folder: Path) -> str:
    """What the demonstration prints."""
    text = io.StringIO()
    with pytest.MonkeyPatch.context() as patched, contextlib.redirect_stdout(text):
        patched.setattr("arrn.data.catalog.SAMPLE_FOLDER", folder / "data")
        patched.setattr("arrn.demo.CONTENDERS", FEW)
        patched.setattr("sys.argv", ["arrn", "demo", "--out", str(folder / "out"), "--epochs", "1", "--device", "cpu"])
        with pytest.raises(SystemExit) as ended:
            main()
    assert ended.value.code == 0
    return text.getvalue()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo")
    write_easy_set(folder / "data", train=30, test=12, size=32)
    return folder


@pytest.fixture(scope="module")
def said(folder: Path) -> str:
    return run_demo(folder)


def test_it_prints_the_accuracies_of_every_network_at_every_resolution(said: str) -> None:
    table = said[said.index("Trained at 32x32") : said.index("What the ARRN needs")]
    rows = [line for line in table.splitlines() if line.startswith("│")]
    assert [int(row.split("│")[1]) for row in rows] == list(RESOLUTIONS)
    assert all(len(re.findall(r"\d+\.\d \[\d+\.\d, \d+\.\d\]", row)) == len(FEW) for row in rows)


def test_it_prints_what_each_resolution_costs_and_that_skipping_is_exact(said: str) -> None:
    rows = [line.split("│") for line in said[said.index("What the ARRN needs") :].splitlines() if line.startswith("│")]
    assert [row[1].strip() for row in rows] == [f"{n}x{n}" for n in RESOLUTIONS]
    assert [row[3].strip() for row in rows] == ["3 of 3", "3 of 3", "2 of 3", "2 of 3", "1 of 3"]
    assert max(float(row[-2]) for row in rows) < 1e-4


@pytest.fixture(scope="module")
def page(said: str, folder: Path) -> Page:
    return check_alone((folder / "out" / "report.html").read_text())


def accuracies(said: str, resolution: int) -> list[str]:
    """Of each network, as printed."""
    (row,) = [line for line in said.splitlines() if re.match(rf"│ *{resolution} │", line)]
    return re.findall(r"(\d+\.\d) \[", row)


def test_the_headline_is_the_accuracy_of_small_images(said: str, page: Page) -> None:
    ours, *_, rival = accuracies(said, RESOLUTIONS[-1])
    assert f"At 8x8: {float(ours):.0f}% against {float(rival):.0f}%" in page.texts


def test_the_report_shows_every_accuracy_and_what_each_resolution_skips(said: str, page: Page) -> None:
    for resolution in RESOLUTIONS:
        assert set(accuracies(said, resolution)) <= set(page.texts)
    assert page.texts.count("runs") == 3 + 3 + 2 + 2 + 1
    assert page.texts.count("skipped") == 0 + 0 + 1 + 1 + 2
    assert "times vary" in page.text
    assert "times vary" in said


def test_the_report_shows_each_image_at_each_resolution(page: Page) -> None:
    sizes = [Image.open(io.BytesIO(picture)).size for picture in page.pictures]
    once = [(n, n) for n in RESOLUTIONS]
    assert sizes == once * (1 + len(COLOURS))  # beside the ladder, then in a card for each class


def test_each_answer_is_a_mark_that_tells_it_and_the_level_used(page: Page) -> None:
    marks = [label for label in page.labels if "started on" in label]
    assert len(marks) == len(COLOURS) * len(RESOLUTIONS) * len(FEW)
    assert all(re.search("(red|green|blue), [0-9]+%, started on (32|16|8)$", mark) for mark in marks)
    assert page.focusable >= len(marks)
    assert page.texts.count("\u2713") + page.texts.count("\u2717") == len(marks) + 2  # and the legend's
    # From 32 down to 8: the two ARRNs start lower and lower, the fixed network at 32.
    for contender, grids in zip(FEW, (["32", "32", "16", "16", "8"],) * 2 + (["32"] * 5,), strict=True):
        own = [mark for mark in marks if mark.startswith(f"{contender.title} at ")]
        assert [mark.split()[-1] for mark in own[: len(RESOLUTIONS)]] == grids


def test_the_report_escapes_names(said: str, folder: Path) -> None:
    assert "With &amp; without" in (folder / "out" / "report.html").read_text()


def test_run_again_it_goes_on_where_it_was(said: str, folder: Path) -> None:
    networks = [folder / "out" / contender.folder / "model.safetensors" for contender in FEW]
    before = [path.stat().st_mtime_ns for path in networks]
    assert run_demo(folder).count("is finished") == len(FEW)
    assert [path.stat().st_mtime_ns for path in networks] == before


def test_the_contenders_cost_the_same_to_within_a_fifth() -> None:
    costs = [
        multiply_adds(arrn.create_model(contender.model, **contender.options), (1, 3, 32, 32))
        for contender in CONTENDERS
    ]
    assert max(costs) <= 1.2 * min(costs)


def test_the_contenders_are_those_of_the_issue() -> None:
    networks = [arrn.create_model(contender.model, **contender.options) for contender in CONTENDERS]
    assert [isinstance(network, ARRN) for network in networks] == [True, True, False]
    rates = [network.config["options"]["dropout"] for network in networks[:2]]
    assert rates[0] > 0
    assert rates[1] == 0
    assert [contender.model for contender in CONTENDERS[:2]] == ["arrn_small"] * 2
    assert RESOLUTIONS == (32, 24, 16, 12, 8)
