"""The networks that inference is timed on compute what the plain ones do; graphs do too."""

import pytest
import torch
from torch import nn

import arrn
from arrn.benchmarks.depthwise import depthwise_shapes
from arrn.benchmarks.figure import efficiency_panels
from arrn.benchmarks.inference import (
    Case,
    ReadyCore,
    arrn_cores,
    baseline_cores,
    build_baseline,
    fold_baseline,
    plain_cores,
)
from arrn.benchmarks.measurement import Measurement
from arrn.benchmarks.ways import INFERENCE_WAYS, over_all, replayed
from arrn.models import DESIGNS
from arrn.testing import awaken_norms
from arrn.timing import Timing
from small_runs import TINY
from strategies import relative_error

CPU = torch.device("cpu")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


def tiny() -> arrn.nn.ARRN:
    model = arrn.create_model("arrn", **TINY)
    awaken_norms(model, torch.randn(8, 3, 8, 8))
    return model


def test_cores_are_one_for_each_level_and_compute_the_same() -> None:
    model = tiny()
    cores = arrn_cores("arrn", model, (8, 6, 4, 3))
    assert [core.grid for core in cores] == [(8, 8), (4, 4)]
    assert [case.grid[0] for case in cores[0].cases if case.adapt] == [8, 6]
    assert [case.grid[0] for case in cores[0].cases if not case.adapt] == [8, 6, 4, 3]
    assert [case.grid[0] for case in cores[1].cases] == [4, 3]
    for core in cores:
        for case in core.cases:
            x = torch.randn(2, 3, *case.grid)
            with torch.no_grad():
                expected = model(x, adapt=bool(case.adapt))
                assert relative_error(core.fused(case)(x), expected) < 1e-4
                assert relative_error(core.plain(case)(x), expected) < 1e-6


def test_a_baseline_is_folded_and_computes_the_same() -> None:
    pytest.importorskip("torchvision")
    model = build_baseline("resnet18_small_stem", (8, 8), num_classes=3, in_channels=3)
    awaken_norms(model, torch.randn(8, 3, 8, 8))
    (core,) = baseline_cores("resnet18_small_stem", model, (8, 5))
    assert core.folded
    assert not any(isinstance(layer, nn.BatchNorm2d) for layer in core.network.modules())
    x = torch.randn(2, 3, 5, 5)
    with torch.no_grad():
        assert relative_error(core.fused(Case((5, 5)))(x), model(x)) < 1e-4


def test_a_switchable_network_is_folded_for_each_of_its_sizes_and_computes_the_same() -> None:
    pytest.importorskip("torchvision")
    model = arrn.create_model("resnet18_switchable", sizes=(8, 4), num_classes=3).train()
    with torch.no_grad():
        for size in (8, 4):
            model(torch.randn(16, 3, size, size))  # each size has statistics of its own
    cores = baseline_cores("resnet18_switchable", model.eval(), (8, 6, 4, 3))
    assert [(core.grid, [case.grid for case in core.cases]) for core in cores] == [
        ((8, 8), [(8, 8), (6, 6)]),
        ((4, 4), [(4, 4), (3, 3)]),
    ]
    for core in cores:
        assert core.folded
        assert not any(isinstance(layer, nn.BatchNorm2d) for layer in core.network.modules())
        for case in core.cases:
            x = torch.randn(2, 3, *case.grid)
            with torch.no_grad():
                assert relative_error(core.fused(case)(x), model(x)) < 1e-4


class Branching(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if x.sum() > 0 else -x


def test_what_cannot_be_traced_stays_as_it_is() -> None:
    network, folded = fold_baseline(Branching())
    assert isinstance(network, Branching)
    assert not folded


def test_a_network_for_any_size_has_a_core_for_each() -> None:
    model = build_baseline("fourier_operator", 8, num_classes=3, in_channels=3)
    cores = plain_cores("fourier_operator", model, (8, 4))
    assert [core.cases[0].grid for core in cores] == [(8, 8), (4, 4)]
    assert all(core.entrance(core.cases[0]) is None and not core.folded for core in cores)


def test_compiling_that_failed_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def fail(network: nn.Module, **options: object) -> nn.Module:
        tried.append(network)
        return Broken()

    class Broken(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise RuntimeError("no compiler")

    monkeypatch.setattr(torch, "compile", fail)
    core = arrn_cores("arrn", tiny(), (8, 6))[0]
    ready = ReadyCore(core, CPU, torch.float32)
    compiled = next(way for way in INFERENCE_WAYS if way.compiled)
    for case in core.cases:
        with pytest.raises(RuntimeError, match="no compiler"):
            ready.prepare(compiled, case, [torch.randn(2, 3, *case.grid)])
    assert len(tried) == 1


def test_the_networks_own_stay_as_they_are() -> None:
    model = tiny()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    core = arrn_cores("arrn", model, (8,))[0]
    ready = ReadyCore(core, CPU, torch.bfloat16)
    for way in INFERENCE_WAYS[:2]:
        ready.prepare(way, core.cases[0], [torch.randn(2, 3, 8, 8).bfloat16()])()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@needs_gpu
def test_a_captured_network_answers_each_input() -> None:
    model = tiny().cuda()
    inputs = torch.randn(3, 2, 3, 8, 8, device="cuda")
    with torch.no_grad():
        captured = replayed(model, inputs[0])
        for x in inputs:
            assert relative_error(captured(x), model(x)) < 1e-5


def test_a_call_over_all_inputs_reaches_each(device: torch.device) -> None:
    sums = [torch.zeros((), device=device) for _ in range(3)]
    call = over_all(lambda total: total.add_(1), sums, device)
    before = [float(total) for total in sums]
    call()
    assert [float(total) for total in sums] == [value + 1 for value in before]


def test_depthwise_convolutions_are_found_once_each() -> None:
    design = DESIGNS["arrn_cifar10"]
    hidden = [round(f * e) for f, e in zip(design.features, design.expansion, strict=True)]
    expected = [(channels, size, size) for channels, size in zip(hidden, design.sizes, strict=True)]
    assert depthwise_shapes(arrn.create_model("arrn_cifar10")) == expected
    assert depthwise_shapes(arrn.create_model("arrn", **TINY, block="zero_preserving")) == [(16, 4, 4)]


def inference(model: str, adapt: bool | None, resolution: int, way: str, seconds: float | None) -> Measurement:
    facts = {"model": model, "adapt": adapt, "resolution": resolution, "batch": 100}
    time = None if seconds is None else Timing(seconds, seconds, seconds)
    return Measurement("inference", f"{model} {adapt} {resolution}", way, time, facts=facts)


def test_the_figure_takes_the_last_way_that_all_have() -> None:
    measurements = [
        inference("ours", adapt, size, way, 1.0)
        for adapt in (True, False)
        for size in (8, 4)
        for way in ("reference", "fused", "compiled")
    ]
    measurements += [inference("theirs", None, 8, way, 2.0) for way in ("reference", "fused")]
    measurements.append(inference("theirs", None, 8, "compiled", None))
    panels = efficiency_panels([*measurements, Measurement("step", "s", "w", Timing(1.0, 1.0, 1.0))])
    ((measure, (saving, others)),) = panels.items()
    assert measure.endswith("batches of 100, fused")
    assert saving is not None
    assert (saving.adapted.label, saving.full.label) == ("ours, adapted", "ours, all levels")
    assert [(point.resolution, point.value) for point in saving.adapted.points] == [(4, 100.0), (8, 100.0)]
    assert [curve.label for curve in others] == ["theirs"]
    assert efficiency_panels([]) == {}
