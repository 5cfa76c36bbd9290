"""What there is to do at least, against counts by hand."""

import pytest
import torch
from torch import nn

import arrn
from arrn.benchmarks.floors import Ceilings, Floors, Work, count_inference, count_step
from arrn.nn import ReplicateConv2d, Resampling, multiply_adds
from arrn.signal import kernel


def test_a_convolution_reads_and_writes_each_number_once() -> None:
    network = nn.Sequential(nn.Conv2d(4, 8, 1, bias=False), nn.BatchNorm2d(8), nn.SiLU())
    work = count_inference(network, (2, 4, 5, 5), torch.bfloat16)
    assert work.multiply_adds == 2 * 25 * 4 * 8
    assert work.traffic == 2 * (2 * 4 * 25 + 4 * 8 + 2 * 8 * 25)  # the norm and the activation are free


def test_replicate_padding_is_no_copy() -> None:
    layer = ReplicateConv2d(6, 6, 3, padding=1, groups=6, bias=False)
    work = count_inference(layer, (2, 6, 4, 4), torch.float32)
    assert work == Work(2 * 6 * 16 * 9, 4 * (2 * 2 * 6 * 16 + 6 * 9))
    assert count_inference(nn.Sequential(layer), (2, 6, 4, 4), torch.float32) == work
    assert isinstance(layer, ReplicateConv2d)  # counted on a copy


def test_a_resampling_is_one_operation_and_its_matrix_is_not_counted_for_every_sample() -> None:
    down = Resampling((8, 8), (4, 4), kernel("perfect"))
    work = count_inference(down, (3, 2, 8, 8), torch.float32)
    assert work.traffic == 4 * 3 * 2 * (64 + 16)
    assert work.multiply_adds == 3 * 2 * (8 * 8 * 4 + 8 * 4 * 4)
    same = Resampling((8, 8), (8, 8), kernel("perfect"))
    assert count_inference(same, (3, 2, 8, 8), torch.float32) == Work(0, 0)


def test_a_step_is_three_passes_and_the_optimiser() -> None:
    layer = nn.Conv2d(4, 8, 1, bias=False)
    forward = count_inference(layer, (2, 4, 5, 5), torch.bfloat16)
    step = count_step(layer, (2, 4, 5, 5), torch.bfloat16)
    assert step == Work(3 * forward.multiply_adds, 3 * forward.traffic + 28 * 32)


def test_a_whole_network_is_counted_and_the_stratified_draw_has_less_to_do() -> None:
    options = {"sizes": (8, 4), "features": (4, 8), "depth": 1, "expansion": 2, "dropout": 0.5}
    model = arrn.create_model("arrn", **options)
    work = count_inference(model, (1, 3, 8, 8), torch.float32)
    assert work.multiply_adds == multiply_adds(model, (1, 3, 8, 8))
    stratified, sample = (
        count_step(arrn.create_model("arrn", draw=draw, **options), (8, 3, 8, 8), torch.float32)
        for draw in ("stratified", "sample")
    )
    assert stratified.multiply_adds < sample.multiply_adds
    assert stratified.traffic < sample.traffic
    assert model.training


def test_floors_are_work_over_the_ceilings() -> None:
    ceilings = Ceilings(bandwidth=1e9, rates={"float32": 1e12, "bfloat16": 4e12})
    work = Work(multiply_adds=10**9, traffic=10**6)
    assert ceilings.floors(work, torch.float32) == Floors(pytest.approx(1e-3), pytest.approx(2e-3))
    assert ceilings.floors(work, torch.bfloat16).binding == pytest.approx(1e-3)
