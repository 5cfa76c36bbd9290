"""The laws of the library on a GPU's fast path, in float32; and composed resampling, anywhere."""

import math
from functools import reduce
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import arrn
from arrn.gpu import fast_path, reference_path
from arrn.nn import ARRN, InvertedBlock, LaplacianResidual, check_zero_constant
from arrn.nn.difference import SharedMasks
from arrn.nn.fast import can_fuse, can_fuse_level, drawn_mask
from arrn.nn.layers import Resampling
from arrn.signal.operators import (
    FEW_CHANNELS,
    apply_axes,
    apply_composed,
    axis_order,
    channels_first,
    channels_last,
    is_channels_last,
)
from arrn.testing import awaken_norms
from strategies import KERNELS, grids, relative_error

GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


@given(data=st.data(), kernel=st.sampled_from(KERNELS), last=st.booleans())
def test_one_matrix_for_all_axes_does_what_one_each_does(
    data: st.DataObject, kernel: arrn.signal.Kernel, last: bool
) -> None:
    ndim = data.draw(st.integers(2, 3))
    source, target = data.draw(grids(ndim)), data.draw(grids(ndim))
    channels = data.draw(st.sampled_from([1, 3, FEW_CHANNELS]))
    x, minuend = (torch.randn(2, channels, *grid, dtype=torch.float64) for grid in (source, target))
    if last:
        x, minuend = (channels_first(channels_last(t)) for t in (x, minuend))
    matrices = [kernel.matrix(n, m) for n, m in zip(source, target, strict=True)]
    expected = apply_axes(x, [(n, matrices[n]) for n in axis_order(source, target)])
    composed = reduce(torch.kron, matrices)
    got = apply_composed(x, composed, target)
    torch.testing.assert_close(got, expected)
    if math.prod(target) > 1:  # a single sample has no order
        assert is_channels_last(got) == is_channels_last(x)
    torch.testing.assert_close(apply_composed(x, composed, target, minuend), minuend - expected)


def test_a_cpu_holds_no_composed_matrix() -> None:
    assert Resampling((8, 8), (4, 4), KERNELS[0]).composed is None


@pytest.fixture
def composed_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a GPU does with matrices, on a CPU."""
    monkeypatch.setattr("arrn.nn.layers.COMPOSED_ON", {"cpu", "cuda"})


@pytest.mark.usefixtures("composed_here")
@pytest.mark.parametrize("kernel", ["perfect", "fair", "poor"])
@pytest.mark.parametrize(("out_features", "block_features"), [(4, 4), (5, 4), (5, 5)])
@pytest.mark.parametrize("survivors", [None, 3, 1])
@pytest.mark.parametrize(
    "options",
    [{}, {"hand_down": "poor"}, {"form": "difference"}, {"form": "difference", "bracket_norm": True}],
    ids=str,
)
def test_a_level_in_few_products_is_the_level(
    kernel: str, out_features: int, block_features: int, survivors: int | None, options: dict[str, Any]
) -> None:
    torch.manual_seed(0)
    block = nn.Sequential(nn.Conv2d(4, block_features, 3, padding=1, padding_mode="replicate"), nn.SiLU())
    residual = LaplacianResidual(block, 4, out_features, (9, 6), (5, 4), kernel, **options)
    _assert_both_paths_agree(residual, survivors)


@pytest.mark.usefixtures("composed_here")
@pytest.mark.parametrize("survivors", [None, 2])
def test_a_level_of_volumes_in_few_products_is_the_level(survivors: int | None) -> None:
    torch.manual_seed(0)
    block = nn.Conv3d(4, 4, 3, padding=1, padding_mode="replicate")
    _assert_both_paths_agree(LaplacianResidual(block, 4, 5, (6, 5, 4), (3, 3, 2)), survivors)


def _assert_both_paths_agree(residual: LaplacianResidual, survivors: int | None) -> None:
    residual.double()
    features = residual.projection.in_features, residual.projection.out_features
    x, gradient = (
        torch.randn(3, count, *grid, dtype=torch.float64)
        for count, grid in zip(features, (residual.size, residual.next_size), strict=True)
    )
    answers = []
    for path in (reference_path, fast_path):
        r = x.clone().requires_grad_()
        with path():
            assert can_fuse_level(residual, survivors) == (path is fast_path)
            y = residual(r, survivors)
            answers.append([y, *torch.autograd.grad(y, [r, *residual.parameters()], gradient)])
    for got, expected in zip(*reversed(answers), strict=True):
        torch.testing.assert_close(got, expected)


@pytest.mark.usefixtures("composed_here")
def test_a_level_keeps_the_order_of_memory_in_both_directions() -> None:
    block = nn.Conv2d(4, 4, 1, bias=False)
    residual = LaplacianResidual(block, 4, 4, 8, 4)
    r = torch.randn(3, 4, 8, 8).contiguous(memory_format=torch.channels_last).requires_grad_()
    with fast_path():
        y = residual(r, 2)
        (by_r,) = torch.autograd.grad(y.sum(), r)
    assert is_channels_last(y)
    assert is_channels_last(by_r)


@pytest.fixture
def network() -> ARRN:
    torch.manual_seed(0)
    model = arrn.create_model("arrn_small").cuda().to(memory_format=torch.channels_last)
    assert isinstance(model, ARRN)
    awaken_norms(model, torch.randn(16, 3, 32, 32, device="cuda"))
    return model


@GPU
@pytest.mark.parametrize("size", [32, 24, 16, 11, 8, 5])
@torch.no_grad()
def test_skipping_is_exact(network: ARRN, size: int) -> None:
    x = torch.randn(4, 3, size, size, device="cuda")
    with fast_path():
        adapted, full, cast = network(x), network(x, adapt=False), network.at_resolution(size)(x)
        fused = network.at_resolution(size).fuse()(x)
    with reference_path():
        reference = network(x)
    for other in (full, cast, fused, reference):
        assert relative_error(other, adapted) < 1e-4


@GPU
@pytest.mark.parametrize("draw", ["sample", "stratified", "batch"])
def test_training_is_the_same(network: ARRN, draw: str) -> None:
    network.dropout.draw = draw  # type: ignore[assignment]
    x = torch.randn(16, 3, 32, 32, device="cuda")
    gradients = []
    for path in (reference_path, fast_path):
        torch.manual_seed(3)
        with path():
            loss = network.train()(x).square().sum()
            gradients.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(network.parameters()))]))
    assert relative_error(gradients[1], gradients[0]) < 1e-3


@GPU
def test_a_zero_input_still_gives_a_constant() -> None:
    block = InvertedBlock(16, expansion=2, depth=2).cuda()
    with fast_path():
        assert check_zero_constant(block, 16, (9, 7)) == (16, (9, 7))


@GPU
def test_a_hook_on_a_layer_is_called() -> None:
    block = InvertedBlock(16, expansion=2, depth=1).cuda()
    called = []
    block.get_submodule("expand").register_forward_hook(lambda *_: called.append(True))
    with fast_path():
        block(torch.randn(2, 16, 8, 8, device="cuda"))
    assert called == [True]


def test_channels_are_dropped_alike_in_both_halves_of_a_batch() -> None:
    layer = nn.Dropout2d(0.3)
    torch.manual_seed(0)
    with SharedMasks(8):
        expected = layer(torch.ones(8, 6, 5, 5))
    torch.manual_seed(0)
    with SharedMasks(8):
        mask = drawn_mask(layer, torch.empty(8, 5, 5, 6))
    assert mask is not None
    assert torch.equal(mask[:4], mask[4:])
    assert torch.equal(mask.view(8, 6, 1, 1).expand(8, 6, 5, 5), expected)


@pytest.mark.usefixtures("composed_here")
def test_levels_that_few_products_do_not_make_are_left_to_layers() -> None:
    r = torch.randn(2, 4, 8, 8)
    strided = nn.Conv2d(4, 4, 2, stride=2, bias=False)
    for options in ({"hand_down": strided}, {"form": "difference", "hand_down": strided}):
        residual = LaplacianResidual(InvertedBlock(4, 2, 1), 4, 4, 8, 4, **options)
        with fast_path():
            assert not can_fuse_level(residual, None)
            residual(r)


def test_channels_are_dropped_as_the_layer_would_drop_them() -> None:
    layer = nn.Dropout2d(0.3)
    torch.manual_seed(0)
    expected = layer(torch.ones(4, 6, 5, 5))
    torch.manual_seed(0)
    mask = drawn_mask(layer, torch.empty(4, 5, 5, 6))
    assert mask is not None
    assert torch.equal(mask.view(4, 6, 1, 1).expand(4, 6, 5, 5), expected)


@pytest.mark.usefixtures("composed_here")
def test_what_evaluation_leaves_behind_serves_training() -> None:
    residual = LaplacianResidual(nn.Conv2d(4, 4, 1), 4, 4, 8, 4)
    x = torch.randn(2, 4, 8, 8)
    with fast_path():
        with torch.inference_mode():
            residual.eval()(x)
        residual.train()(x).sum().backward()
    assert residual.projection.weight.grad is not None


@pytest.mark.usefixtures("composed_here")
def test_a_block_that_ends_in_another_precision_is_taken_back() -> None:
    class Scaled(nn.Conv2d):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x).float() * 0.5

    residual = LaplacianResidual(Scaled(4, 4, 1), 4, 4, 8, 4)
    x = torch.randn(2, 4, 8, 8)
    answers = []
    for path in (reference_path, fast_path):
        with path(), torch.autocast("cpu", torch.bfloat16):
            answers.append(residual(x))
    assert answers[0].dtype == answers[1].dtype == torch.bfloat16
    assert relative_error(answers[1].double(), answers[0].double()) < 0.02


@pytest.mark.usefixtures("composed_here")
def test_matrices_stay_where_a_recorded_graph_knows_them() -> None:
    residual = LaplacianResidual(nn.Conv2d(4, 4, 1), 4, 4, 8, 4)
    x = torch.randn(1, 4, 8, 8)
    with fast_path():
        residual(x)
        places = [matrix.data_ptr() for matrix in (residual.down.composed_for(x), residual.down.composed)]
        residual.to("cpu").float()
        assert [matrix.data_ptr() for matrix in (residual.down.composed_for(x), residual.down.composed)] == places
        residual.double()
        assert residual.down.composed.dtype == torch.float64
        half = residual.half().float().double()
        torch.testing.assert_close(half.down.matrix0, half.kernel.matrix(8, 4))


@pytest.mark.usefixtures("composed_here")
def test_gradients_of_gradients_are_refused_rather_than_wrong() -> None:
    residual = LaplacianResidual(nn.Sequential(nn.Conv2d(4, 4, 1), nn.SiLU()), 4, 4, 8, 4).double()
    x = torch.randn(2, 4, 8, 8, dtype=torch.float64, requires_grad=True)
    with fast_path():
        (slope,) = torch.autograd.grad(residual(x).square().sum(), x, create_graph=True)
        with pytest.raises(RuntimeError, match="once_differentiable"):
            slope.square().sum().backward()
    with reference_path():
        assert torch.autograd.gradgradcheck(residual, (x,), nondet_tol=1e-10)


@pytest.mark.usefixtures("composed_here")
@pytest.mark.filterwarnings("ignore:.torch.jit", "ignore::torch.jit.TracerWarning")  # of tracing itself
@torch.no_grad()
def test_what_follows_pytorchs_own_operators_gets_them() -> None:
    torch.manual_seed(0)
    residual = LaplacianResidual(nn.Conv2d(4, 4, 1), 4, 5, 8, 4).double().eval()
    x = torch.randn(3, 4, 8, 8, dtype=torch.float64)
    with fast_path():
        expected = residual(x)
        torch.testing.assert_close(torch.vmap(lambda sample: residual(sample[None])[0])(x), expected)
        torch.testing.assert_close(torch.jit.trace(residual, (x,))(x), expected)
        slope = torch.func.grad(lambda sample: residual(sample).sum())(x)
    with torch.enable_grad():
        torch.testing.assert_close(slope, torch.autograd.functional.jacobian(lambda r: residual(r).sum(), x))


@pytest.mark.usefixtures("composed_here")
@pytest.mark.parametrize("block", ["inverted", "zero_preserving"])
def test_an_empty_batch_has_an_empty_answer(block: str) -> None:
    options = {"sizes": (8, 4), "features": (4, 6), "depth": 1, "expansion": 2, "num_classes": 3}
    model = arrn.create_model("arrn", block=block, **options).eval()
    with fast_path():
        assert model(torch.empty(0, 3, 8, 8)).shape == (0, 3)


def change(name: str, block: InvertedBlock) -> None:
    """Something that a user may do to a block."""
    if name == "a layer more":
        block.append(nn.SiLU())
    elif name == "no activation":
        block.expand_act = nn.Identity()
    elif name == "another activation":
        block.depthwise1_act = nn.ReLU()
    elif name == "a hook":
        block.expand.register_full_backward_pre_hook(lambda module, gradient: None)
    elif name == "all channels dropped":
        block.depthwise1_dropout.p = 1.0
    elif name == "a wider product":
        block.contract = nn.Conv2d(8, 4, 3, padding=1)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    "name",
    ["", "a layer more", "no activation", "another activation", "a hook", "all channels dropped", "a wider product"],
)
def test_only_a_block_as_it_was_built_is_fused(name: str, training: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arrn.nn.fast.kernels_serve", lambda x: True)
    block = InvertedBlock(4, 2, 2, dropout=0.1).train(training)
    change(name, block)
    with torch.set_grad_enabled(training):
        assert can_fuse(block, torch.zeros(2, 4, 3, 3)) == (not name)
        assert can_fuse(block, torch.zeros(1, 4, 1, 1)) == (not name and not training)
        assert not can_fuse(block, torch.zeros(0, 4, 3, 3))
