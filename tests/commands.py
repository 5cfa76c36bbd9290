"""The command line in a test: within this process, which is quick, or as a program."""

import os
import subprocess
import sys
from dataclasses import dataclass

import pytest

from arrn.cli import main

QUIET = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", "PYTHONIOENCODING": "utf-8"}


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


class Command:
    """Runs `arrn` within this process; checks the exit code, and that an error is one line."""

    def __init__(self, capture: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.capture = capture
        self.monkeypatch = monkeypatch

    def __call__(self, *arguments: object, code: int = 0) -> Outcome:
        self.capture.readouterr()
        self.monkeypatch.setattr(sys, "argv", ["arrn", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = self.capture.readouterr()
        outcome = Outcome(int(ended.value.code or 0), out, err)
        assert outcome.code == code, outcome
        if code:
            assert err.startswith("arrn: ")
            assert err.count("\n") == 1
        return outcome


def program(*arguments: object, code: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs `arrn` as a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "arrn", *map(str, arguments)],
        capture_output=True,
        encoding="utf-8",
        env=os.environ | QUIET | environment,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done
