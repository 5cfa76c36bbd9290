"""Settings for every test: quiet threads, a fixed hypothesis profile, the devices at hand."""

import os
import signal

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

# A shell ignores Ctrl-C for what it starts in the background, and all that this starts inherits it.
signal.signal(signal.SIGINT, signal.default_int_handler)

if torch.cuda.is_available():
    torch.backends.cudnn.allow_tf32 = False  # what the tests call float32 is float32

settings.register_profile(
    "arrn",
    deadline=None,  # these machines are noisy
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("arrn")


@pytest.fixture(
    params=["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"))]
)
def device(request: pytest.FixtureRequest) -> torch.device:
    return torch.device(request.param)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def easy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set of a few images that is easy to learn."""
    from small_runs import write_easy_set  # here: most tests need none of what it imports

    return write_easy_set(tmp_path_factory.mktemp("easy"))


@pytest.fixture(scope="module")
def finished(easy: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run on it; a module's own, since commands leave their files there."""
    from small_runs import train_tiny

    return train_tiny(easy, tmp_path_factory.mktemp("runs") / "finished")
