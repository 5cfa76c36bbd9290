"""The report of an evaluation: what it tells first, what it shows of few and of many classes, of sound and volumes."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("PIL")
pytest.importorskip("matplotlib")

from arrn.evaluation import (
    Answers,
    Mistake,
    Report,
    Setting,
    by_class,
    leading_answers,
    make_report,
    write_report,
)
from arrn.figures import accuracy_lines, as_they_come
from arrn.pages import evaluation_page
from reading_pages import Page, check_alone

SHAPES = {1: (1, 64), 2: (3, 8, 8), 3: (1, 8, 8, 8)}


def invented(classes: int = 3, axes: int = 2, resolutions: tuple[int | None, ...] = (8, 4), **facts: Any) -> Report:
    """Two answers of five are wrong, at each resolution others."""
    labels = torch.arange(max(30, classes)) % classes
    answers: list[Answers] = []
    for number, resolution in enumerate(resolutions):
        wrong = (torch.arange(len(labels)) + number) % 5 < 2
        given = torch.where(wrong, (labels + 1) % classes, labels)
        grids = ((8,) * axes, (4,) * axes) * (len(labels) // 2) + ((4,) * axes,) * (len(labels) % 2)
        chances = torch.linspace(0.2, 1, len(labels))
        ways = [Setting(resolution, adapt, "exact") for adapt in (True, False)]
        answers += [Answers(way, given, labels, grids, chances) for way in ways]
    report = make_report(answers, model="net", dataset="<set>", split="test", resampler="perfect")
    leading = leading_answers(answers, "exact")
    details = {
        "axes": axes,
        "window": None,
        "grids": ["8", "4"],
        "class_names": [f"class <{n}>" for n in range(classes)],
        "by_class": [by_class(each, classes) for each in leading],
        "cost": [{"resolution": e.setting.resolution, "multiply_adds": 9_000_000, "full": 9_000_000} for e in leading],
    }
    sample = 200 * torch.rand(SHAPES[axes])
    mistakes = [
        Mistake(each.setting, f"/home/someone/set/<b>{n}.png", 0, 1, 0.9, (8,) * axes, sample)
        for each in leading
        for n in range(2)
    ]
    return Report(report.model, report.dataset, report.results, {**report.facts, **details, **facts}, mistakes)


def page_of(report: Report) -> str:
    return evaluation_page(report, accuracy_lines("net", report.results), as_they_come("net", report.results))


def test_the_headline_is_the_accuracy_at_the_highest_and_the_lowest_resolution() -> None:
    report = invented()
    page = check_alone(page_of(report))
    first = next(text for text in page.texts if "right" in text)
    high, low = (100 * report.results[n]["accuracy"] for n in (0, 2))
    assert first == f"{high:.1f}% right at 8x8, {low:.1f}% at 4x4"
    assert "0 of 60" in page.texts  # answers that skipping changed, over both resolutions


def test_few_classes_have_a_matrix_at_each_resolution() -> None:
    text = page_of(invented())
    page = Page(text)
    assert text.count('<table class="matrix">') == 2
    assert page.tags.count("input") == 2
    assert "class <0> taken for class <1>: 4 of 10" in page.labels
    assert "class <0>: 6 of 10 right" in page.labels
    assert len(page.pictures) == 4
    assert "set/<b>0.png" in page.texts
    assert "someone" not in text  # where the user's folders lie is nobody's business


def test_many_classes_have_their_worst_confusions_and_a_page_that_stays_small() -> None:
    report = invented(classes=1000)
    text = page_of(report)
    page = check_alone(text)
    assert '<table class="matrix">' not in text
    assert "The 25 most frequent confusions" in page.texts
    assert "The 24 worst of 1,000 classes" in page.texts
    assert len(text) < 200_000
    assert "confusion" not in report.facts["by_class"][0]
    assert len(report.facts["by_class"][0]["confused"]) == 400


def test_samples_as_they_come_lead() -> None:
    report = invented(resolutions=(None, 8, 4))
    page = check_alone(page_of(report))
    assert next(text for text in page.texts if "right" in text).endswith("% right as they come, 60.0% at 4x4")
    rows = [text for text in page.texts if text in ("as they come", "8x8", "4x4")]
    assert rows[0] == "as they come"
    assert "leading" in page.classes
    assert any(text.startswith("The images as they come, by the level") for text in page.texts)
    assert any("smaller images stay as they are" in text for text in page.texts)


@pytest.mark.parametrize(("axes", "word", "spelled"), [(1, "clips", "16 Hz"), (3, "volumes", "8x8x8")])
def test_sound_and_volumes_are_called_what_they_are(axes: int, word: str, spelled: str) -> None:
    page = check_alone(page_of(invented(axes=axes, window=0.5 if axes == 1 else None)))
    assert f"net on <set>, test split of 30 {word}." in page.texts
    assert spelled in page.texts
    assert ("Accuracy over the sampling rate in Hz" in page.texts) == (axes == 1)
    assert len(page.pictures) == (0 if axes == 1 else 4)
    assert page.classes.count("wave") == (4 if axes == 1 else 0)


def test_without_a_mistake_it_says_so() -> None:
    labels = torch.arange(4)
    answers = [Answers(Setting(8, None, None), labels, labels, ((8, 8),) * 4, torch.ones(4))]
    report = make_report(answers, model="net", dataset="set", split="test", resampler="perfect")
    entry = {"resolution": 8, "multiply_adds": 0, "full": None}
    facts = {"axes": 2, "window": None, "grids": [], "class_names": list("abcd"), "cost": [entry]}
    facts["by_class"] = [by_class(answers[0], 4)]
    whole = Report("net", "set", report.results, {**report.facts, **facts})
    page = check_alone(page_of(whole))
    assert "There are none: every answer is right." in page.texts
    assert "Multiply-adds" in page.text


def test_a_row_of_the_matrix_is_a_line_of_the_file(tmp_path: Path) -> None:
    report = invented()
    write_report(report, tmp_path / "evaluation.json")
    text = (tmp_path / "evaluation.json").read_text()
    assert json.loads(text) == report.document()
    rows = report.facts["by_class"][0]["confusion"]
    assert f"        {json.dumps(rows[0])},\n        {json.dumps(rows[1])}" in text


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 380])
def test_in_a_browser_it_fits_and_the_keyboard_moves_through_it(tmp_path: Path, width: int, scheme: str) -> None:
    playwright = pytest.importorskip("playwright.sync_api")
    path = tmp_path / "report.html"
    grids = {"grids": ["128", "64", "32", "16", "8", "4"], "class_counts": [20, 5, 5]}
    path.write_text(page_of(invented(resolutions=(None, 128, 112, 8, 4), **grids)))
    with playwright.sync_playwright() as tools:
        browser = tools.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
        said: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        page.goto(path.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate("[...document.querySelectorAll('.scroll')].every(e => e.scrollWidth <= e.clientWidth)")
        page.locator(".stop").last.focus()
        assert page.locator(".stop:focus .tip").is_visible()
        shown = page.locator(".panel:visible")
        assert shown.count() == 1
        page.locator("input.choice").first.focus()
        page.keyboard.press("ArrowRight")
        assert page.locator(".panel.r-1").is_visible()
        assert said == []
        browser.close()
