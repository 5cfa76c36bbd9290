"""Kernels: their matrices against independent references, and the laws of projection."""

import numpy as np
import pytest
import scipy.fft
import scipy.signal
import torch
from hypothesis import given
from hypothesis import strategies as st

import arrn
from arrn import ArrnError
from arrn.signal import KaiserSinc, TruncatedGaussian, WhittakerShannon, kernel, kernel_options
from strategies import APPROXIMATE, KERNELS, PERFECT

sizes = st.integers(1, 60)


@given(sizes, sizes)
def test_symmetric_is_truncation_of_the_discrete_cosine_transform(source: int, target: int) -> None:
    x = np.random.default_rng(source * 61 + target).normal(size=source)
    spectrum = scipy.fft.dct(x, type=2, norm="forward")
    padded = np.zeros(target)
    padded[: min(source, target)] = spectrum[: min(source, target)]
    expected = scipy.fft.idct(padded, type=2, norm="forward")
    assert np.allclose(WhittakerShannon().matrix(source, target).numpy() @ x, expected, rtol=0, atol=1e-12)


@given(sizes, sizes)
def test_periodic_is_trigonometric_interpolation(source: int, target: int) -> None:
    x = np.random.default_rng(source * 61 + target).normal(size=source)
    at, to = (np.arange(source) + 0.5) / source, (np.arange(target) + 0.5) / target
    below = (min(source, target) - 1) // 2
    expected = np.zeros(target, dtype=complex)
    for k in range(-below, below + 1):
        expected += np.exp(2j * np.pi * k * to) * np.mean(x * np.exp(-2j * np.pi * k * at))
    matrix = WhittakerShannon("periodic").matrix(source, target).numpy()
    assert np.allclose(matrix @ x, expected.real, rtol=0, atol=1e-12)


def _weights_by_loop(profile, radius: float, source: int, target: int) -> np.ndarray:
    """The definition, written as slowly and plainly as possible: mirror the signal far out, then sum."""
    coarser = min(source, target)
    matrix = np.zeros((target, source))
    for i in range(target):
        for j in range(-8 * source - 40, 9 * source + 40):
            t = coarser * ((i + 0.5) / target - (j + 0.5) / source)
            if abs(t) <= radius + 1e-9:
                mirrored = j % (2 * source)
                matrix[i, mirrored if mirrored < source else 2 * source - 1 - mirrored] += profile(t)
    return matrix / matrix.sum(axis=1, keepdims=True)


@pytest.mark.parametrize(("source", "target"), [(32, 16), (16, 32), (21, 8), (8, 21), (3, 1), (1, 3), (30, 10), (7, 6)])
def test_windowed_kernels_follow_their_definition(source: int, target: int) -> None:
    samples = np.linspace(-6, 6, 12001)
    window = scipy.signal.windows.kaiser(12001, 14.7697)

    def fair(t: float) -> float:
        return float(np.sinc(t) * np.interp(t, samples, window))

    def poor(t: float) -> float:
        return float(np.exp(-(t**2) / (2 * 0.5**2)))

    assert np.allclose(KaiserSinc().matrix(source, target), _weights_by_loop(fair, 6, source, target), atol=1e-6)
    assert np.allclose(
        TruncatedGaussian().matrix(source, target), _weights_by_loop(poor, 1, source, target), atol=1e-12
    )


@given(st.sampled_from(PERFECT), sizes, sizes)
def test_smoothing_undoes_interpolation(kernel: WhittakerShannon, a: int, b: int) -> None:
    small, large = min(a, b), max(a, b)
    around = kernel.matrix(large, small) @ kernel.matrix(small, large)
    # On a periodic grid of even size the Nyquist bin is not in the band: what is left is the projection.
    expected = kernel.matrix(small, small)
    assert torch.allclose(around, expected, rtol=0, atol=1e-12)
    if kernel.boundary == "symmetric" or small % 2:
        assert torch.equal(expected, torch.eye(small, dtype=torch.float64))


@given(sizes)
def test_periodic_projection_is_idempotent_and_removes_only_nyquist(size: int) -> None:
    projection = WhittakerShannon("periodic").matrix(size, size)
    assert torch.allclose(projection @ projection, projection, rtol=0, atol=1e-12)
    assert round(float(projection.trace())) == (size if size % 2 else size - 1)


@given(st.sampled_from(KERNELS), sizes, sizes)
def test_constants_pass(kernel: arrn.signal.Kernel, source: int, target: int) -> None:
    rows = kernel.matrix(source, target).sum(dim=1)
    assert torch.allclose(rows, torch.ones(target, dtype=torch.float64), rtol=0, atol=1e-12)


@given(st.sampled_from(PERFECT), sizes, sizes)
def test_perfect_kernels_preserve_means(kernel: WhittakerShannon, source: int, target: int) -> None:
    weights = kernel.matrix(source, target).mean(dim=0)
    assert torch.allclose(weights, torch.full((source,), 1 / source, dtype=torch.float64), rtol=0, atol=1e-12)


def test_approximate_kernels_do_not_preserve_means() -> None:
    for approximate in APPROXIMATE:
        weights = approximate.matrix(9, 5).mean(dim=0)
        assert float((weights - 1 / 9).abs().max()) > 1e-9


@given(st.sampled_from(KERNELS), sizes)
def test_same_size_is_the_identity_where_the_kernel_says_so(kernel: arrn.signal.Kernel, size: int) -> None:
    identity = torch.eye(size, dtype=torch.float64)
    assert torch.equal(kernel.matrix(size, size), identity) == kernel.keeps(size)
    assert kernel.keeps(size) == (kernel != WhittakerShannon("periodic") or size % 2 == 1)


def test_writing_into_a_matrix_does_not_reach_the_cache() -> None:
    WhittakerShannon().matrix(6, 4).zero_()
    assert float(WhittakerShannon().matrix(6, 4).sum()) == pytest.approx(4.0)


def test_building_under_odd_surroundings_leaves_a_good_cache() -> None:
    chosen = KaiserSinc(zero_crossings=4)
    with torch.device("meta"), torch.inference_mode():
        chosen.matrix(10, 5)
    weight = chosen.matrix(10, 5)
    assert weight.device.type == "cpu"
    assert not weight.is_inference()
    assert weight.dtype == torch.float64


def test_kernels_by_name_and_back() -> None:
    assert kernel("perfect") == WhittakerShannon("symmetric")
    assert kernel("fair") == KaiserSinc(zero_crossings=6, beta=14.7697)
    assert kernel("poor") == TruncatedGaussian(sigma=0.5, radius=1.0)
    for value in KERNELS:
        assert kernel(**kernel_options(value)) == value
        assert kernel(kernel_options(value)) == value
        assert kernel(value) is value


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: kernel("perfekt"), "unknown kernel 'perfekt'; did you mean 'perfect'"),
        (lambda: kernel("fair", sigma=1), "takes zero_crossings, beta"),
        (lambda: WhittakerShannon("mirror"), "unknown boundary 'mirror'"),
        (lambda: KaiserSinc(zero_crossings=0), "zero_crossings must be a number from 1 to 1000, got 0"),
        (lambda: KaiserSinc(beta=float("nan")), "beta must be a number from 0.001 to 500, got nan"),
        (lambda: TruncatedGaussian(sigma=-1), "sigma must be a number from 0.001 to 1000, got -1"),
        (lambda: TruncatedGaussian(radius=0.2), "radius must be a number from 0.5 to 1000, got 0.2"),
        (lambda: WhittakerShannon().matrix(0, 4), "at least 1, got 0"),
        (lambda: WhittakerShannon().matrix(4, 2.5), "whole number, got 2.5"),
    ],
)
def test_bad_kernels_are_refused(call, message: str) -> None:
    with pytest.raises(arrn.ArrnError) as caught:
        call()
    assert message in str(caught.value)


def test_options_of_a_kernel_may_be_changed_and_a_kernel_itself_may_not() -> None:
    assert kernel({"name": "perfect"}, boundary="periodic") == WhittakerShannon("periodic")
    with pytest.raises(ArrnError, match="takes no further boundary"):
        kernel(WhittakerShannon(), boundary="periodic")
    with pytest.raises(ArrnError, match="need its name"):
        kernel({"boundary": "periodic"})
    with pytest.raises(ArrnError, match="zero_crossings must be a number from 1 to 1000, got '6'"):
        KaiserSinc("6")  # type: ignore[arg-type]


def test_a_kernel_that_reaches_no_sample_is_refused() -> None:
    with pytest.raises(ArrnError, match="too narrow to reach from 7 samples to 3"):
        TruncatedGaussian(0.001, 0.5).matrix(7, 3)
