"""What the tests of the command line share."""

import pytest

pytest.importorskip("typer")

from commands import Command


@pytest.fixture
def arrn_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    return Command(capsys, monkeypatch)
