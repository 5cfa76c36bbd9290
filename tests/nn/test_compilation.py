"""Compilers: one graph, forward and backward, no recompilation; export to plain ATen."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
import torch._dynamo
import torch._inductor.config
from torch import nn
from torch._dynamo.backends.registry import lookup_backend
from torch._dynamo.testing import CompileCounter

import arrn
from arrn.benchmarks.ways import can_compile
from arrn.nn import ARRN, Frozen
from arrn.signal import resample
from arrn.testing import awaken_norms
from strategies import relative_error

needs_compiler = pytest.mark.skipif(
    not torch.cuda.is_available() and not can_compile(torch.device("cpu")), reason="no C++ compiler"
)
# Inductor and the tracer warn about their own insides.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def _strict_compiler() -> Iterator[None]:
    torch.compiler.reset()
    with torch._dynamo.config.patch(error_on_recompile=True), torch._inductor.config.patch(fallback_random=True):
        yield


def small(**options: object) -> ARRN:
    if options.get("block") == "dense":
        options["form"] = "difference"
    ladder = {"sizes": (8, 5), "features": (4, 6), "depth": 1, "expansion": 2, "num_classes": 3}
    return arrn.create_model("arrn", **ladder | options)


def watching(seen: list[str]) -> Callable[[torch.fx.GraphModule, list[torch.Tensor]], object]:
    """A compiler that notes what is called in the graphs it is given."""

    def compile_graph(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> object:
        seen.extend(str(node.target) for node in graph.graph.nodes if node.op == "call_function")
        return lookup_backend("aot_eager")(graph, inputs)

    return compile_graph


@needs_compiler
def test_adapted_network_compiles_whole(device: torch.device) -> None:
    model = small().to(device)
    awaken_norms(model, torch.randn(8, 3, 8, 8, device=device))
    adapted = model.at_resolution(7)
    compiled = torch.compile(adapted, fullgraph=True)
    with torch.no_grad():
        for _ in range(2):
            x = torch.randn(4, 3, 7, 7, device=device)
            assert relative_error(compiled(x), adapted(x)) < 1e-5


@needs_compiler
@pytest.mark.parametrize(
    ("draw", "block"), [("sample", "inverted"), ("stratified", "inverted"), ("stratified", "zero_preserving")]
)
def test_training_step_compiles_whole(draw: str, block: str, device: torch.device) -> None:
    model = small(dropout=0.5, draw=draw, block=block).to(device).train()
    compiled = torch.compile(model, fullgraph=True)
    for seed in range(2):
        x = torch.randn(6, 3, 8, 8, device=device)
        gradients = []
        for network in (model, compiled):
            model.zero_grad()
            torch.manual_seed(seed)
            network(x).square().sum().backward()
            gradients.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
        assert relative_error(gradients[1], gradients[0]) < 1e-4


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_operators_of_its_own_are_traced_with_the_rest(
    precision: torch.dtype, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As on a GPU; elsewhere the operator computes with PyTorch's own.
    monkeypatch.setattr("arrn.nn.layers.kernels_serve", lambda x: x.dtype != torch.float64)
    model = small(dropout=0.5, draw="stratified").to(device).train()
    seen: list[str] = []
    compiled = torch.compile(model, fullgraph=True, backend=watching(seen))
    x = torch.randn(6, 3, 8, 8, device=device)
    gradients = []
    for network in (model, compiled):
        torch.manual_seed(0)
        with torch.autocast(device.type, precision, enabled=precision != torch.float32):
            loss = network(x).float().square().sum()
        gradients.append(torch.autograd.grad(loss, model.stem.weight)[0])
    assert any("replicate_depthwise" in name for name in seen)
    assert relative_error(gradients[1], gradients[0]) < (1e-4 if precision == torch.float32 else 5e-2)


@torch.no_grad()
def test_a_folded_block_is_traced_with_its_activations_fused(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = small().to(device)
    awaken_norms(model, torch.randn(8, 3, 8, 8, device=device))
    adapted = model.at_resolution(7).fuse()
    x = torch.randn(4, 3, 7, 7, device=device)
    expected = adapted(x)
    monkeypatch.setattr("arrn.nn.fast.kernels_serve", lambda x: True)
    seen: list[str] = []
    compiled = torch.compile(adapted, fullgraph=True, backend=watching(seen))
    assert relative_error(compiled(x), expected) < 1e-5
    assert sum("silu_depthwise_silu" in name for name in seen) == 2
    assert not any("function silu" in name for name in seen)


@pytest.mark.parametrize("draw", ["sample", "stratified"])
def test_training_with_levels_without_a_block_traces_whole(draw: str) -> None:
    model = small(dropout=0.6, draw=draw, blockless=[7, 3, 2]).train()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    x = torch.randn(12, 3, 8, 8)
    answers, gradients = [], []
    for network in (model, compiled):
        torch.manual_seed(0)
        answers.append(network(x))
        gradients.append(torch.autograd.grad(answers[-1].square().sum(), model.stem.weight)[0])
    assert relative_error(answers[1], answers[0]) < 1e-5
    assert relative_error(gradients[1], gradients[0]) < 1e-4


@pytest.mark.parametrize("draw", ["sample", "stratified"])
def test_masks_that_two_halves_share_are_traced_with_the_rest(draw: str) -> None:
    model = small(dropout=0.5, draw=draw, block="dense", depth=2, block_dropout=0.5).train()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    x = torch.randn(12, 3, 8, 8)
    answers, gradients = [], []
    for network in (model, compiled):
        torch.manual_seed(0)
        answers.append(network(x))
        gradients.append(torch.autograd.grad(answers[-1].square().sum(), model.stem.weight)[0])
    assert relative_error(answers[1], answers[0]) < 1e-5
    assert relative_error(gradients[1], gradients[0]) < 1e-4


def test_whole_network_traces_at_sizes_between_levels() -> None:
    model = small().eval()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    with torch._dynamo.config.patch(error_on_recompile=False):  # each size is a graph of its own
        for size in ((5, 5), (7, 7), (5, 7), (7, 3), (8, 2)):
            x = torch.rand(2, 3, *size)
            assert torch.allclose(compiled(x), model(x), atol=1e-6)


@torch.no_grad()
def test_inputs_taken_to_their_grid_first_share_one_graph_a_level() -> None:
    # The matrix from each size of input to the level is a constant of the graph: outside of it, sizes are as one.
    model = small().eval()
    counter = CompileCounter()
    compiled = torch.compile(model, fullgraph=True, dynamic=False, backend=counter)
    with torch._dynamo.config.patch(error_on_recompile=False):
        for size in ((8, 8), (7, 7), (6, 8), (5, 5), (4, 3), (5, 2), (2, 2)):
            x = torch.rand(2, 3, *size)
            assert relative_error(compiled(resample(x, model.entry_grid(size))), model(x)) < 1e-5
    assert counter.frame_count == len(model.grids)


@pytest.mark.parametrize("ndim", [1, 2, 3])
@pytest.mark.parametrize("block", ["inverted", "zero_preserving", "dense"])
def test_export_holds_aten_operators_only(ndim: int, block: str) -> None:
    model = small(ndim=ndim, block=block)
    awaken_norms(model, torch.randn(4, 3, *[8] * ndim))
    adapted = model.at_resolution(7)
    x = torch.randn(2, 3, *[7] * ndim)
    program = torch.export.export(adapted, (x,))
    calls = [node.target for node in program.graph.nodes if node.op == "call_function"]
    assert calls
    assert all(isinstance(call, torch._ops.OpOverload) and call.namespace == "aten" for call in calls)
    assert not any("fft" in str(call) for call in calls)
    assert relative_error(program.module()(x), adapted(x)) < 1e-6


@needs_compiler
@torch.no_grad()
def test_frozen_weights_compile_to_the_same_answers() -> None:
    torch.manual_seed(0)
    network = arrn.create_model("arrn", sizes=(8, 4), features=(4, 8), depth=1, expansion=2).eval().at_resolution(8)
    x = torch.randn(2, 3, 8, 8)
    frozen = Frozen(network.fuse())
    for _ in range(2):
        torch.testing.assert_close(frozen(x), network(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("block", ["inverted", "zero_preserving", "dense"])
@torch.no_grad()
def test_an_onnx_file_answers_alike_for_any_number_of_images(block: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    model = small(block=block)
    awaken_norms(model, torch.randn(4, 3, 8, 8))
    adapted = model.at_resolution(7).fuse()
    shapes = ({0: torch.export.Dim("batch")},)
    torch.onnx.export(
        adapted, (torch.rand(2, 3, 7, 7),), tmp_path / "a.onnx", dynamic_shapes=shapes, dynamo=True, verbose=False
    )
    session = runtime.InferenceSession(tmp_path / "a.onnx", providers=["CPUExecutionProvider"])
    for count in (1, 5):
        x = torch.randn(count, 3, 7, 7)
        (answer,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
        assert relative_error(torch.from_numpy(answer), adapted(x)) < 1e-5


@contextmanager
def casts_not_kept() -> Iterator[None]:
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(True)


@needs_compiler
@torch.no_grad()
def test_weights_are_frozen_for_every_form_of_input_and_any_number_of_them() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(4, 4, 3), nn.ReLU()).eval()
    frozen = Frozen(network)
    forms = [torch.randn(batch, 4, 5, 5) for batch in range(1, 11)]
    forms.append(forms[1].contiguous(memory_format=torch.channels_last))
    with torch._dynamo.config.patch(error_on_recompile=False):
        expected = [frozen(x) for x in forms]
        with casts_not_kept():
            frozen(forms[0])
        network[0].weight.mul_(2)
        for x, before in zip(forms, expected, strict=True):
            torch.testing.assert_close(frozen(x), before)
        with casts_not_kept():
            torch.testing.assert_close(frozen(forms[0]), expected[0])
        with torch.inference_mode():  # not seen before the weights changed
            torch.testing.assert_close(frozen(forms[0]), network(forms[0]))
