"""One process at a time in a run's folder; one that is killed leaves no lock."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from arrn.errors import RunError
from arrn.runs import is_finished
from arrn.runs.run_folder import LOCK, locked
from small_runs import train_tiny

pytest.importorskip("fcntl")

HOLDER = "import sys, time; from pathlib import Path; from arrn.runs.run_folder import locked\n"
HOLDER += "with locked(Path(sys.argv[1]) / '.lock'): print('held', flush=True); time.sleep(600)"


@pytest.mark.parametrize("resume", [False, True])
def test_a_second_process_is_refused_and_touches_nothing(easy: Path, tmp_path: Path, resume: bool) -> None:
    unfinished = tmp_path / ".x.arrn-unfinished"
    unfinished.write_text("the other one is writing this")
    with (
        locked(tmp_path / LOCK),
        pytest.raises(RunError, match=r"another process is at work on this run: it holds .*\.lock"),
    ):
        train_tiny(easy, tmp_path, resume=resume)
    assert os.listdir(tmp_path) == [unfinished.name]
    assert is_finished(train_tiny(easy, tmp_path, epochs=1))
    assert not (tmp_path / LOCK).exists()


def test_it_is_held_for_the_whole_run(easy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from arrn.runs import training as run

    real, tried = run.train, []

    def train(*arguments: object, **named: object) -> None:
        monkeypatch.undo()
        with pytest.raises(RunError, match="another process"):
            train_tiny(easy, tmp_path, resume=True)
        tried.append(True)
        real(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(run, "train", train)
    assert is_finished(train_tiny(easy, tmp_path, epochs=1))
    assert tried


def test_a_killed_process_leaves_no_lock(easy: Path, tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            with pytest.raises(RunError, match="another process"):
                train_tiny(easy, tmp_path)
        finally:
            os.kill(holder.pid, signal.SIGKILL)
    assert (tmp_path / LOCK).exists()
    assert is_finished(train_tiny(easy, tmp_path, epochs=1))  # the file alone does not make the folder one in use
    assert not (tmp_path / LOCK).exists()


def test_a_file_that_was_removed_meanwhile_is_not_what_is_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between opening and locking, the last holder ends, and removes the file."""
    import fcntl

    real, removed = fcntl.flock, []

    def late(file: int, operation: int) -> None:
        if not removed:
            removed.append(True)
            (tmp_path / LOCK).unlink()
        real(file, operation)

    monkeypatch.setattr("fcntl.flock", late)
    with locked(tmp_path / LOCK), pytest.raises(RunError, match="another process"), locked(tmp_path / LOCK):
        pass


@pytest.mark.parametrize("reason", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_no_hindrance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: int
) -> None:
    def refuse(file: int, operation: int) -> None:
        raise OSError(reason, "no locks here")

    monkeypatch.setattr("fcntl.flock", refuse)
    with locked(tmp_path / LOCK):
        assert (tmp_path / LOCK).exists()
    assert not (tmp_path / LOCK).exists()
