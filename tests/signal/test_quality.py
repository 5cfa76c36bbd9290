"""The quality report ranks the kernels as their names do, and its numbers are those of real signals."""

import pytest
import torch

import arrn
from arrn.signal import WhittakerShannon, kernel_quality, resample


@pytest.mark.parametrize(("size", "next_size"), [(32, 16), (33, 20), (96, 48)])
def test_perfect_beats_fair_beats_poor(size: int, next_size: int) -> None:
    perfect, fair, poor = (kernel_quality(name, size, next_size) for name in ("perfect", "fair", "poor"))
    assert perfect.passband_error < 1e-12
    assert perfect.stopband_leakage < 1e-25
    assert perfect.diff_leakage < 1e-25
    assert 1e-3 < fair.passband_error < poor.passband_error
    assert 1e-3 < fair.diff_leakage < poor.diff_leakage
    assert fair.stopband_leakage > 1e-4


def test_periodic_perfect() -> None:
    quality = kernel_quality(WhittakerShannon("periodic"), 32, 16)
    assert quality.band == 15
    assert quality.diff_leakage < 1e-25


def test_diff_leakage_is_what_a_white_signal_of_the_lower_band_leaks() -> None:
    x = resample(torch.randn(20000, 1, 16, dtype=torch.float64), 32)
    for name in ("fair", "poor"):
        diff = x - resample(resample(x, 16, name), 32, name)
        measured = float(diff.square().sum() / x.square().sum())
        assert measured == pytest.approx(kernel_quality(name, 32, 16).diff_leakage, rel=0.03)


def test_report_reads_as_one_line() -> None:
    assert str(kernel_quality("poor")).startswith("poor/symmetric 32 -> 16: passband error")


def test_quality_of_interpolation_is_refused() -> None:
    with pytest.raises(arrn.ArrnError, match="next_size must be below 16, got 16"):
        kernel_quality("fair", 16, 16)
