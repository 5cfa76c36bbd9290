"""Costs at each resolution, and what adaptation changes."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

import arrn
from arrn.experiments.costs import (
    count_parameter_range,
    list_multiply_adds,
    measure_discrepancies,
    measure_inference,
)
from arrn.models import summarise
from arrn.nn import ARRN
from arrn.testing import awaken_norms
from arrn.timing import Timing, time_call


def tiny(kernel: str = "perfect") -> nn.Module:
    return arrn.create_model("arrn", sizes=(8, 4), features=(4, 8), depth=1, expansion=2, kernel=kernel).eval()


def test_counts_are_those_of_the_summary() -> None:
    summary = summarise("arrn_small")
    model = arrn.create_model("arrn_small")
    assert count_parameter_range(model) == {"base": summary.base_parameters, "total": summary.parameters}
    sizes = [max(grid) for grid in summary.grids]
    adapted = [entry["multiply_adds"] for entry in list_multiply_adds(model, sizes) if entry["adapt"]]
    assert adapted == list(summary.multiply_adds)


def test_skipping_levels_costs_less_and_a_fixed_network_has_one_cost() -> None:
    costs = {
        (entry["resolution"], entry["adapt"]): entry["multiply_adds"] for entry in list_multiply_adds(tiny(), [8, 4])
    }
    assert costs[8, True] == costs[8, False]
    assert costs[4, True] < costs[4, False]
    model = arrn.create_model("resnet18_small_stem", width=1)
    assert count_parameter_range(model)["base"] == count_parameter_range(model)["total"]
    assert [entry["adapt"] for entry in list_multiply_adds(model, [8, 4])] == [None, None]


@pytest.mark.parametrize("ndim", [1, 3])
def test_sound_and_volumes_have_costs_too(ndim: int) -> None:
    options = {"sizes": (8, 4), "features": (4, 8), "depth": 1, "expansion": 2, "ndim": ndim, "in_channels": 1}
    model = arrn.create_model("arrn", **options).eval()
    lower, full = [entry["multiply_adds"] for entry in list_multiply_adds(model, [4])]
    assert 0 < lower < full
    (entry, _) = measure_inference(model, [4], samples=3, batch_size=2, repeats=1)
    assert entry["seconds"] > 0


def test_the_discrepancy_is_rounding_for_perfect_kernels_only() -> None:
    images = torch.randn(4, 3, 8, 8)
    models = [awaken_norms(tiny(kernel), images) for kernel in ("perfect", "poor")]
    perfect, poor = (measure_discrepancies(model, images, [8, 3])[1] for model in models)
    assert perfect["resolution"] == 3
    assert perfect["discrepancy"] < 1e-5
    assert poor["discrepancy"] > 1e-3
    assert measure_discrepancies(arrn.create_model("resnet18_small_stem", width=1), images, [8]) == []


needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.seen: list[int] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.append(len(x))
        return x + self.weight


def test_every_sample_is_timed_in_batches_the_last_one_smaller() -> None:
    model = Counting()
    (entry,) = measure_inference(model, [4], samples=10, batch_size=4, repeats=2)
    assert model.seen == [4, 4, 2] * 3  # once to warm up
    assert (entry["samples"], entry["batch_size"], entry["precision"]) == (10, 4, "float32")
    assert 0 < entry["lower"] <= entry["seconds"] <= entry["upper"]


def test_an_arrn_is_timed_with_and_without_adaptation(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[bool] = []
    forward = ARRN.forward
    monkeypatch.setattr(
        ARRN, "forward", lambda self, x, adapt=True, policy=None: ran.append(adapt) or forward(self, x, adapt, policy)
    )
    entries = measure_inference(tiny(), [8, 4], samples=2, batch_size=2, repeats=1)
    assert [(entry["resolution"], entry["adapt"]) for entry in entries] == [
        (8, True),
        (8, False),
        (4, True),
        (4, False),
    ]
    assert set(ran) == {False}  # adapted, it is the plain module of that size
    assert entries[0]["seconds"] == entries[1]["seconds"]  # nothing is skipped: measured once


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_gpu)])
def test_the_device_is_timed_and_not_the_host(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    timed: list[torch.device] = []

    def spy(call: Callable[[], object], repeats: int, warmup: int, device: torch.device) -> Timing:
        timed.append(device)
        return time_call(call, repeats, warmup, device)

    monkeypatch.setattr("arrn.experiments.costs.time_call", spy)
    (entry,) = measure_inference(Counting().to(device), [4], samples=10, batch_size=4, repeats=2)
    assert [where.type for where in timed] == [device]
    assert entry["seconds"] > 0
