"""`resample`: matrices against transforms, in every dimension, dtype and memory format."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import arrn
from arrn.signal import KaiserSinc, WhittakerShannon, resample, resample_spectral
from arrn.signal.resample import resample_by_matrices, resample_in_network, too_long_for_matrices
from strategies import KERNELS, PERFECT, grids


@given(st.data(), st.sampled_from(PERFECT), st.integers(1, 3))
def test_matrices_equal_transforms(data: st.DataObject, kernel: WhittakerShannon, ndim: int) -> None:
    source, target = data.draw(grids(ndim)), data.draw(grids(ndim))
    x = torch.randn(2, 3, *source, dtype=torch.float64)
    assert torch.allclose(resample(x, target, kernel), resample_spectral(x, target, kernel), rtol=0, atol=1e-12)


@given(st.data(), st.sampled_from(KERNELS), st.integers(1, 3))
def test_axes_are_resampled_one_by_one(data: st.DataObject, kernel: arrn.signal.Kernel, ndim: int) -> None:
    source, target = data.draw(grids(ndim)), data.draw(grids(ndim))
    x = torch.randn(2, 3, *source, dtype=torch.float64)
    expected = x
    for axis in range(ndim):
        matrix = kernel.matrix(source[axis], target[axis])
        expected = torch.tensordot(expected, matrix, dims=([2 + axis], [1])).movedim(-1, 2 + axis)
    assert torch.allclose(resample(x, target, kernel), expected, rtol=0, atol=1e-12)


@given(st.data(), st.sampled_from(PERFECT), st.integers(1, 3))
def test_through_a_finer_grid_and_back(data: st.DataObject, kernel: WhittakerShannon, ndim: int) -> None:
    source = data.draw(grids(ndim))
    finer = tuple(n + data.draw(st.integers(0, 5)) for n in source)
    x = resample(torch.randn(1, 2, *source, dtype=torch.float64), source, kernel)
    assert torch.allclose(resample(resample(x, finer, kernel), source, kernel), x, rtol=0, atol=1e-12)


@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_channels_last_in_is_channels_last_out(ndim: int, device: torch.device) -> None:
    x = torch.randn(2, 5, *[6] * ndim, dtype=torch.float64, device=device)
    last = x.movedim(1, -1).contiguous().movedim(-1, 1)
    y = resample(last, 4)
    assert y.movedim(1, -1).is_contiguous()
    assert torch.allclose(y, resample(x, 4), rtol=0, atol=1e-13)


def test_fair_kernel_comes_close_to_lanczos_resizing() -> None:
    functional = pytest.importorskip("torchvision.transforms.v2.functional")
    smooth = torch.linspace(0, 1, 64)[None, None, :, None] * torch.linspace(-1, 1, 64)[None, None, None, :]
    expected = functional.resize(smooth, [32, 32], interpolation=functional.InterpolationMode.BICUBIC, antialias=True)
    # The same alignment: a half-pixel shift of this ramp would differ by 1e-2.
    assert float((resample(smooth, 32, KaiserSinc()) - expected)[..., 6:-6, 6:-6].abs().max()) < 1e-4


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 2e-2), (torch.float16, 2e-3)])
def test_lower_precisions(dtype: torch.dtype, tolerance: float, device: torch.device) -> None:
    x = torch.rand(2, 3, 20, 20, dtype=torch.float64, device=device)
    y = resample(x.to(dtype), 12)
    assert y.dtype == dtype
    assert float((y.double() - resample(x, 12)).abs().max()) < tolerance


def test_very_large_grids_go_through_the_transform(monkeypatch: pytest.MonkeyPatch) -> None:
    called = []
    module = __import__("arrn.signal.resample", fromlist=["resample"])
    monkeypatch.setattr(module, "resample_spectral", lambda *a: called.append(a) or resample_spectral(*a))
    x = torch.randn(1, 1, 901, dtype=torch.float64)
    for kernel in PERFECT:
        by_transform = resample(x, 400, kernel)
        assert torch.allclose(by_transform, resample_by_matrices(x, (400,), kernel), rtol=0, atol=1e-12)
    assert len(called) == 2
    image = torch.randn(1, 2, 1500, 4, dtype=torch.float64).contiguous(memory_format=torch.channels_last)
    assert resample(image, (1400, 3)).is_contiguous(memory_format=torch.channels_last)
    assert len(called) == 3
    resample(x[..., :100], 50)
    resample(x, 400, "fair")
    resample(x.half(), 400)
    assert len(called) == 3


def test_gradients_flow_after_inference_mode() -> None:
    with torch.inference_mode():
        resample(torch.rand(1, 1, 13), 7)
    x = torch.rand(1, 1, 13, requires_grad=True)
    resample(x, 7).sum().backward()
    assert x.grad is not None


def test_gradcheck() -> None:
    x = torch.randn(2, 2, 4, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: resample(x, (3, 7)), (x,))


@pytest.mark.parametrize(
    ("x", "size", "message"),
    [
        (torch.rand(3, 8), 4, "(batch, channels, *space)"),
        (torch.rand(1, 1, 2, 2, 2, 2), 4, "got shape (1, 1, 2, 2, 2, 2)"),
        (torch.rand(1, 1, 8, 8), 0, "at least 1, got 0"),
        (torch.rand(1, 1, 8, 8), (4, 4, 4), "has 3 axes, but the signal has 2"),
        (torch.rand(1, 1, 8, 8), float("nan"), "whole number, got nan"),
        (torch.rand(1, 1, 8, 8), "8", "whole number, got '8'"),
        (torch.rand(1, 1, 0, 8), 4, "at least 1 sample"),
        (torch.ones(1, 1, 8, 8, dtype=torch.uint8), 4, "got torch.uint8: convert and normalise"),
    ],
)
def test_bad_signals_are_refused(x: torch.Tensor, size: object, message: str) -> None:
    with pytest.raises(arrn.ArrnError) as caught:
        resample(x, size)
    assert message in str(caught.value)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_networks_take_long_lines_by_transforms_in_every_precision(dtype: torch.dtype) -> None:
    x = torch.rand(1, 2, 2000, dtype=torch.float64)
    assert too_long_for_matrices((2000,), (1000,), WhittakerShannon())
    assert not too_long_for_matrices((2000,), (1000,), KaiserSinc())
    assert not too_long_for_matrices((2000,), (2000,), WhittakerShannon())
    exact = resample_by_matrices(x, (1000,), WhittakerShannon())
    given = resample_in_network(x.to(dtype), (1000,), WhittakerShannon())
    assert given.dtype == dtype
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 1e-2}[dtype]
    torch.testing.assert_close(given.double(), exact, rtol=0, atol=tolerance)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch 2.11's own, beside a GPU
def test_several_resamplings_are_traced_together_whatever_the_size() -> None:
    def there_and_back(x: torch.Tensor) -> torch.Tensor:
        return resample(resample(x, (5, 3)), tuple(x.shape[2:]))

    torch.compiler.reset()
    compiled = torch.compile(there_and_back, fullgraph=True, backend="aot_eager")
    for size in ((8, 8), (9, 8), (10, 7)):  # from the second on, tracers try to leave sizes open
        x = torch.rand(1, 2, *size, dtype=torch.float64)
        torch.testing.assert_close(compiled(x), there_and_back(x))
