"""Progress: bars on a terminal, plain lines elsewhere."""

import io
import re
import sys
from pathlib import Path

import pytest
from rich.console import Console

from arrn.runs import Machine, run_training
from arrn.watching import NotebookProgress, PlainProgress, TerminalProgress, _Clock, duration, telling, watch
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
        r"epoch  2/10  loss 1\.234  accuracy 50\.0%  validation 25\.0%  12,346 examples/s  3\.2 s  \d:\d\d left\n",
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
    for part in ("loss 1.234", "accuracy 50.0%", "1,234 examples/s"):
        assert part in shown
    assert re.search(r"\d:\d\d left", shown)  # how long depends on how busy the machine is
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


class Cell:
    """What stands in for IPython where it is not installed: one output of a cell, and how often it was drawn."""

    def __init__(self) -> None:
        self.outputs: list[dict[str, str]] = []
        self.kernel = self  # a shell has it in a notebook

    def get_ipython(self) -> "Cell":
        return self

    def display(self, content: dict[str, str], raw: bool, display_id: bool) -> "Cell":
        assert raw
        assert display_id
        assert not self.outputs, "a second output"
        self.update(content, raw)
        return self

    def update(self, content: dict[str, str], raw: bool) -> None:
        self.outputs.append(content)


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> Cell:
    cell = Cell()
    monkeypatch.setitem(sys.modules, "IPython", cell)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "IPython.display", cell)  # type: ignore[arg-type]
    return cell


def test_a_notebook_shows_one_output_that_ends_with_a_row_for_each_epoch(
    cell: Cell, easy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arrn.watching._SECONDS_BETWEEN_PICTURES", 0.0)
    with telling() as teller:
        assert isinstance(teller, NotebookProgress)
        run_training(tiny_settings(easy), tmp_path / "run", Machine("cpu"), watcher=teller, say=teller.say)
    drawn = "".join(content["text/html"] for content in cell.outputs)
    for part in ("looking<progress", "reading<progress", "epoch 2 of 2<progress", "18 of 18"):
        assert part in drawn
    last = cell.outputs[-1]
    assert "<progress" not in last["text/html"]
    assert re.search(r">2/2</td>.*>1/2</td>", last["text/html"])
    lines = last["text/plain"].splitlines()
    assert lines[0] == "18 images of 3 classes: red, green, blue"
    assert [line[:9] for line in lines[1:]] == ["epoch 1/2", "epoch 2/2"]


def test_a_notebook_shows_names_as_they_are_and_no_bar_after_an_error(cell: Cell) -> None:
    def train() -> None:
        with telling() as teller:
            teller.say("classes: <b>cat</b>\x1b[2J")
            teller.epoch_begins(1, 2, 10, 0)
            teller.step_done(5, 1.0, 0.5, 100.0)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        train()
    assert "&lt;b&gt;cat&lt;/b&gt;\\x1b[2J" in cell.outputs[-1]["text/html"]
    assert "<progress" not in cell.outputs[-1]["text/html"]


def test_pictures_of_a_notebook_are_few(cell: Cell) -> None:
    with telling() as teller:
        teller.say("begun")
        for done in range(1000):
            teller.samples_seen("reading", done, 1000)
    assert len(cell.outputs) < 10


def test_a_script_has_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with telling() as teller:
        assert isinstance(teller, PlainProgress)
        teller.say("cats [red] and dogs\n")
    assert capsys.readouterr().out == "cats [red] and dogs\\n\n"


def test_a_real_kernel_shows_a_run_as_one_table() -> None:
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    call = (
        "arrn.train('sample', model='arrn', options={'sizes': (16, 8), 'features': (4, 8), 'depth': 1}, epochs=2, "
        "holdout=4900, device='cpu', out=tempfile.mkdtemp() + '/run').report"
    )
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(f"import tempfile, arrn\n{call}")])
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    progress, report = [output["data"]["text/html"] for output in notebook.cells[0].outputs]
    assert re.search(r">2/2</td>.*>1/2</td>", progress)
    assert "On the validation samples" in report
