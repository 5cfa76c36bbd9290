"""What the tests of runs share."""

from pathlib import Path

import pytest

from runs import train_tiny, write_easy_set


@pytest.fixture(scope="session")
def easy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_easy_set(tmp_path_factory.mktemp("easy"))


@pytest.fixture(scope="session")
def finished(easy: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_tiny(easy, tmp_path_factory.mktemp("runs") / "finished")
