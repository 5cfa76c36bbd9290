"""Progress: bars on a terminal, plain lines elsewhere."""

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from arrn.runs import Machine, run_training
from arrn.watching import PlainProgress, TerminalProgress, _Clock, duration, watch
from small_runs import tiny_settings

ENTRY = {"epoch": 2, "loss": 1.2345, "accuracy": 0.5, "examples_per_second": 12345.6, "seconds": 3.21}


def console(terminal: bool) -> tuple[Console, io.StringIO]:
    text = io.StringIO()
    return Console(file=text, force_terminal=terminal, width=110, color_system=None), text


def test_elsewhere_there_is_a_plain_line_for_each_epoch() -> None:
    place, text = console(terminal=False)
    with watch(place) as watcher:
        assert isinstance(watcher, PlainProgress)
        watcher.epoch_begins(2, 10, 5, 0)
        watcher.step_done(3, 1.0, 0.2, 10.0)
        watcher.epoch_ends(ENTRY | {"validation_accuracy": 0.25})
    assert re.fullmatch(
        r"epoch  2/10  loss 1\.234  accuracy 50\.0%  validation 25\.0%  12,346 examples/s  3\.2 s  0:00 left\n",
        text.getvalue(),
    )


def test_a_terminal_shows_loss_accuracy_examples_per_second_and_time_left() -> None:
    place, text = console(terminal=True)
    with watch(place) as watcher:
        assert isinstance(watcher, TerminalProgress)
        watcher.epoch_begins(2, 10, 5, 0)
        watcher.step_done(3, 1.2345, 0.5, 1234.5)
        watcher.bar.refresh()
        shown = text.getvalue()
        watcher.epoch_ends(ENTRY)
    assert "epoch 2 of 10" in shown
    assert "3/5" in shown
    for part in ("loss 1.234", "accuracy 50.0%", "1,234 examples/s", "0:00 left"):
        assert part in shown
    assert "epoch  2/10  loss 1.234" in text.getvalue()


def test_a_terminal_shows_how_many_samples_are_read(
    easy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, text = console(terminal=True)
    with watch(place) as watcher:
        assert isinstance(watcher, TerminalProgress)
        show = watcher.samples_seen

        def show_at_once(what: str, done: int, total: int) -> None:
            show(what, done, total)
            watcher.bar.refresh()

        monkeypatch.setattr(watcher, "samples_seen", show_at_once)
        run_training(tiny_settings(easy), tmp_path / "run", Machine("cpu"), watcher=watcher)
    for what in ("looking", "reading"):
        assert re.search(rf"{what} .* 18/18", text.getvalue())


def test_a_run_shows_its_bar_and_leaves_its_lines(easy: Path, tmp_path: Path) -> None:
    place, text = console(terminal=True)
    with watch(place) as watcher:
        run_training(tiny_settings(easy), tmp_path / "run", Machine("cpu"), watcher=watcher)
    shown = text.getvalue()
    assert "epoch 1 of 2" in shown
    assert "epoch 2/2  loss" in shown


def test_time_left_is_counted_from_where_the_run_went_on() -> None:
    clock = _Clock()
    assert clock.left(3) is None
    clock.begin(3, 4, 10, 5)  # 25 of 40 steps were done before
    assert clock.left(5) is None
    assert clock.began is not None
    clock.began -= 10.0  # seconds, for five steps
    left = clock.left(10)
    assert left is not None
    assert abs(left - 20.0) < 0.1


def testdurations_are_read_at_a_glance() -> None:
    assert [duration(seconds) for seconds in (None, 0.4, 61, 3599.6, 86400)] == [
        "?",
        "0:00",
        "1:01",
        "1:00:00",
        "24:00:00",
    ]
