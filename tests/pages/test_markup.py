"""The parts of pages: text is escaped wherever it stands, and what is drawn says its values."""

import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("PIL")

from arrn.pages import Series, Value, choice, document, element, ladder, line_chart, table, thumbnail
from reading_pages import Page, check_alone

HOSTILE = "</style><script>alert('&')</script>\"\x1b]0;x\x07"


@given(st.text(min_size=1, max_size=40))
def test_any_text_comes_back_as_text(text: str) -> None:
    page = Page(element("p", text, title=text))
    assert page.tags == ["p"]
    assert page.open == []
    if text.isprintable():
        assert "".join(page.texts) == text
        assert page.labels == [text]


def test_text_is_escaped_in_every_part_of_a_page() -> None:
    chart = line_chart([Series(HOSTILE, (Value(8, 50, 40, 60),))], lambda _: HOSTILE, HOSTILE)
    parts = {HOSTILE: table([HOSTILE], [[HOSTILE]]), "other": ladder([HOSTILE], [(HOSTILE, 0, HOSTILE)])}
    text = document(HOSTILE, HOSTILE, chart, choice("x", HOSTILE, parts), thumbnail(torch.zeros(3, 4, 4), HOSTILE))
    page = check_alone(text)
    assert "<script" not in text
    assert "\x1b" not in text
    assert page.text.count("alert('&')") >= 6


def test_very_long_text_is_cut_and_pictures_are_not() -> None:
    assert len(element("p", "a" * 100_000)) < 3000
    (picture,) = Page(thumbnail(torch.rand(3, 48, 48) * 255, "noise")).pictures
    assert picture.startswith(b"\x89PNG")
    (picture,) = Page(thumbnail(torch.rand(1, 5, 300, 200) * 255, "a volume's middle slice")).pictures
    assert picture.startswith(b"\xff\xd8")


def test_a_sound_is_shown_by_its_outline() -> None:
    wave = torch.zeros(1, 1000)
    wave[0, 500] = -8000
    (path,) = re.findall(r' d="([^"]*)"', thumbnail(wave, "a click"))
    heights = [float(pair.split()[1]) for pair in path.strip("M Z").split(" L")]
    assert (min(heights), max(heights)) == (50, 98)  # silence is in the middle, the click far below
    assert Page(thumbnail(torch.zeros(1, 3), "three samples of silence")).open == []


def test_a_chart_tells_all_values_of_a_resolution_in_one_place() -> None:
    lines = [
        Series(name, (Value(None, 70, 60, 80), Value(8, n, n, n), Value(32, 90, 80, 95)))
        for n, name in ((50, "a"), (20, "b"))
    ]
    page = Page(line_chart(lines, lambda place: f"at {place}", "accuracy"))
    told = [label for label in page.labels if label.startswith("at ")]
    assert told == [
        "at None: a 70.0% (60.0 to 80.0); b 70.0% (60.0 to 80.0)",
        "at 8: a 50.0% (50.0 to 50.0); b 20.0% (20.0 to 20.0)",
        "at 32: a 90.0% (80.0 to 95.0); b 90.0% (80.0 to 95.0)",
    ]
    assert page.focusable == 3


@pytest.mark.parametrize("values", [(), (Value(8, 0, 0, 0),), (Value(None, 100, 100, 100),), (Value(1, 0, 0, 100),)])
def test_charts_of_few_or_extreme_values_are_drawn(values: tuple[Value, ...]) -> None:
    text = line_chart([Series("a", values)], str, "accuracy")
    for place in re.findall(r"(?:left|bottom):([-\d.naif]+)%", text):
        assert 0 <= float(place) <= 100


def test_a_ladder_says_what_runs_and_what_is_skipped() -> None:
    page = Page(ladder(["32", "16", "8"], [("32x32", 0, "a"), ("9x9", 1, "b"), ("8x8", 2, "c")]))
    assert page.texts.count("runs") == 3 + 2 + 1
    assert page.texts.count("skipped") == 0 + 1 + 2


def test_of_a_choice_the_first_panel_is_shown_and_radios_take_the_keyboard() -> None:
    text = choice("x", "at", {"32x32": element("p", "one"), "16x16": element("p", "two")})
    page = Page(text)
    assert page.tags.count("input") == 2
    assert len(re.findall("checked(?!~|:)", text.split("</style>")[1])) == 1
    assert "#x-0:checked~.panels>.x-0{display:block}" in text
    assert choice("x", "at", {"32x32": element("p", "one")}) == "<p>one</p>"


def test_of_lines_that_coincide_one_band_is_drawn_and_ticks_that_would_touch_are_left_out() -> None:
    values = tuple(Value(size, 60, 50, 70) for size in (600, 1200, 3600, 4200, 4800))
    other = tuple(Value(value.place, 61, 50, 71) for value in values)
    lines = [Series("a", values), Series("b", values), Series("c", other)]
    text = line_chart(lines, str, "accuracy", lambda size: f"{size / 0.6:g}")
    assert [text.count(f'class="{kind} ') for kind in ("band", "line")] == [2, 3]
    below = text[text.index('class="below"') :]
    assert [rate for rate in (1000, 2000, 6000, 7000, 8000) if f">{rate}<" in below] == [1000, 2000, 6000, 8000]
