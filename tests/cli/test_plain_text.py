"""What strangers wrote, on a terminal, in a picture, in a report: shown as it is, and without effect."""

import io
import logging
import sys
import warnings
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.table import Table

import arrn.cli
from arrn.cli.console import shown
from arrn.demo import CONTENDERS, Showing, write_report
from arrn.errors import LONGEST_SHOWN, ArrnError, first_line, plain
from arrn.figures import plot_accuracy
from arrn.figures.tables import markdown_table
from arrn.runtime import Answer
from commands import Command
from pictures import write_parquet
from small_runs import TINY, write_easy_set

EVIL = "[red]cat\x1b]0;owned\x07\n \u202ename\u2028\udcff"
SHOWN = r"[red]cat\x1b]0;owned\x07\n \u202ename\u2028\udcff"
ANY_TEXT = st.text(st.characters(codec=None, categories=None), max_size=40)


@given(ANY_TEXT)
def test_any_text_is_one_line_that_any_terminal_takes(text: str) -> None:
    line = plain(text)
    line.encode()
    assert len(line.splitlines()) <= 1
    assert not any(ord(letter) < 32 or 127 <= ord(letter) < 160 for letter in line)
    assert plain(line) == line


def test_letters_of_every_script_are_left_as_they_are() -> None:
    for text in ("naïve 猫 кот", "نیم\u200cفاصله", "👩\u200d🚀 ok", "at 3\u202fp.m.\u00a0sharp", r"C:\new", "[b]", ""):  # noqa: RUF001
        assert plain(text) == text


def test_what_is_too_long_loses_its_middle() -> None:
    line = plain("a" * 10**6 + "z")
    assert len(line) == LONGEST_SHOWN + 5
    assert (line[:2], line[-2:]) == ("aa", "az")


def test_the_first_line_of_an_error_that_says_something() -> None:
    assert first_line(ValueError("\n\n  here\nnot here")) == "here"
    assert first_line(ValueError(" \n")) == "ValueError"


@given(ANY_TEXT)
def test_a_cell_of_a_table_shows_text_as_it_is(text: str) -> None:
    place = io.StringIO()
    table = Table(show_header=False, box=None)
    table.add_row(shown(text))
    Console(file=place, force_terminal=True, color_system="truecolor", width=10**4).print(table)
    assert place.getvalue().strip() == plain(text).strip()


def test_markup_is_understood_in_one_place_only() -> None:
    for path in Path(arrn.cli.__file__).parent.glob("*.py"):
        assert "rich.markup" not in path.read_text(), f"{path.name}: names go through arrn.cli.console.shown"


def test_an_error_is_one_line_whatever_it_names(arrn_command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise ArrnError(f"there is no {EVIL}!")

    monkeypatch.setattr("arrn.runs.requests.read_settings", refuse)
    err = arrn_command("train", "sample", "--resume", code=2).err
    assert err == "arrn: there is no [red]cat\\x1b]0;owned\\x07 \\u202ename \\udcff!\n"


def test_too_little_memory_is_one_line(arrn_command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(*arguments: object, **options: object) -> None:
        raise MemoryError("Unable to allocate 1. TiB")

    monkeypatch.setattr("arrn.runs.requests.read_settings", fill)
    err = arrn_command("train", "sample", "--resume", code=1).err
    assert err == "arrn: there is not enough memory for this: Unable to allocate 1. TiB\n"


def test_warnings_are_plain(capsys: pytest.CaptureFixture[str]) -> None:
    before, formatter = warnings.formatwarning, logging.lastResort and logging.lastResort.formatter
    with arrn.cli._warned_plainly():
        assert warnings.formatwarning(UserWarning("a \x1b[2J b"), UserWarning, "x.py", 1) == (
            "UserWarning: a \\x1b[2J b\n"
        )
        assert logging.lastResort is not None
        assert logging.lastResort.format(logging.makeLogRecord({"msg": "a %s", "args": ("\x1b[2J",)})) == "a \\x1b[2J"
    assert warnings.formatwarning is before
    assert logging.lastResort.formatter is formatter


def test_a_terminal_that_does_not_take_every_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stderr", out)
    monkeypatch.setattr(sys, "argv", ["arrn", "train", "./猫"])
    with pytest.raises(SystemExit):
        arrn.cli.main()
    out.flush()
    assert b"\\u732b is missing" in out.buffer.getvalue()  # type: ignore[attr-defined]


def test_a_run_on_a_strangers_set(arrn_command: Command, tmp_path: Path) -> None:
    """From parquet files with such class names, in a folder of such a name, all the way to the picture."""
    names = (r"[red]cat", "dog\x1b]0;owned\x07", "\n| $\\frac{$ |\u202e")
    root = tmp_path / "a\x1b[31m$x$\\\n[b]set $\\bad$"
    write_easy_set(root)
    for file in root.glob("*.parquet"):
        table = pq.read_table(file)
        images = [row["bytes"] for row in table.column("img").to_pylist()]
        write_parquet(file, images, table.column("label").to_pylist(), names)
    out = tmp_path / "run"
    options = [word for name, value in TINY.items() for word in ("--option", f"{name}={value}")]
    trained = arrn_command("train", root, "--model", "arrn", *options, "--epochs", 1, "--out", out, "--device", "cpu")
    assert r"3 classes: [red]cat, dog\x1b]0;owned\x07, \n| $\frac{$ |\u202e" in trained.out
    evaluated = arrn_command("evaluate", out, "--resolutions", "8", "--device", "cpu")
    for text in (trained.out, trained.err, evaluated.out, evaluated.err):
        assert all(letter.isprintable() or letter == "\n" for letter in text)
    assert (out / "evaluation.png").is_file()


def test_a_picture_shows_names_and_no_formulas(tmp_path: Path) -> None:
    points = [{"resolution": size, "accuracy": 0.5, "interval": (0.4, 0.6)} for size in (8, 4)]
    text = plot_accuracy(tmp_path / "a.svg", {"a $\\frac{": points, "b\x1b\n": points}, "$\\bad$ & $x").read_text()
    assert "$\\bad$ &amp; $x" in text


def test_a_markdown_table_keeps_its_columns() -> None:
    table = markdown_table(["a|b", "c"], [["x\ny", "1 | 2\x1b"]])
    assert [line.replace(r"\|", "").count("|") for line in table.splitlines()] == [3, 3, 3]
    assert "\x1b" not in table


def test_the_report_for_a_browser_escapes_names(tmp_path: Path) -> None:
    evil = '"><script>alert(1)</script>&'
    prediction = Answer(0, None, 1.0, ((0, 1.0),), (4, 4), (8, 8), 0.0)
    showing = Showing(torch.zeros(3, 4, 4, dtype=torch.uint8), evil, tuple((evil, prediction) for _ in CONTENDERS))
    points = [{"resolution": 4, "accuracy": 0.5, "interval": (0.4, 0.6)}]
    lines = {contender.title: points for contender in CONTENDERS} | {evil: points}
    write_report(tmp_path / "a.html", CONTENDERS, lines, [], [[showing]], {"arrn": evil, "commit": evil})
    text = (tmp_path / "a.html").read_text()
    assert "<script" not in text
    assert text.count("&lt;script&gt;") >= 6
