"""Settings for every test: quiet threads, a fixed hypothesis profile, the devices at hand."""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import pytest
import torch
from hypothesis import HealthCheck, settings

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
