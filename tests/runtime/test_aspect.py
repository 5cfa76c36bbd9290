"""Rectangles brought to a network's proportions: the geometry, and what padding adds to a signal."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from arrn.errors import ArrnError
from arrn.runtime import ASPECTS, Aspect, BadSample, Reader
from arrn.signal import WhittakerShannon, resample

SIDES = st.integers(1, 40)
PAIRS = st.integers(1, 3).flatmap(lambda n: st.tuples(*(st.tuples(SIDES, SIDES) for _ in range(n))))


@given(PAIRS)
def test_a_framed_sample_has_the_proportions_of_the_grid(sides: tuple[tuple[int, int], ...]) -> None:
    size, grid = zip(*sides, strict=True)
    for mode in ("pad", "crop"):
        framed = Aspect(mode, grid).frame(size)
        share = (max if mode == "pad" else min)(n / side for n, side in zip(size, grid, strict=True))
        for before, after, side in zip(size, framed, grid, strict=True):
            assert after >= before if mode == "pad" else 1 <= after <= before
            assert abs(after - share * side) <= 0.5 or after == 1
        assert Aspect(mode, grid).frame(grid) == grid
    assert Aspect("stretch", grid).frame(size) == size


@given(PAIRS)
def test_samples_are_those_of_numpys_padding_and_slicing(sides: tuple[tuple[int, int], ...]) -> None:
    size, grid = zip(*sides, strict=True)
    samples = np.random.default_rng(0).integers(0, 255, (2, *size), dtype=np.uint8)
    for mode in ASPECTS:
        aspect = Aspect(mode, grid)
        framed = aspect(samples)
        assert framed.shape[1:] == aspect.frame(size)
        surplus = [after - before for before, after in zip(size, framed.shape[1:], strict=True)]
        if mode == "pad":
            reference = np.pad(samples, [(0, 0), *((n // 2, n - n // 2) for n in surplus)], mode="symmetric")
        else:
            starts = [-(n // 2) for n in surplus]  # of a negative surplus: half of it, rounded up
            places = tuple(slice(s, s + n) for s, n in zip(starts, framed.shape[1:], strict=True))
            reference = samples[(slice(None), *places)]
        assert np.array_equal(framed, reference)
    assert Aspect("stretch", grid)(samples) is samples


@given(st.integers(2, 12), st.integers(1, 12), st.integers(0, 100))
def test_padding_by_mirrored_edges_adds_nothing_to_the_band(width: int, band: int, seed: int) -> None:
    """A signal of the band of N samples in W, padded to 3 W, is of the band of 3 N: the same cosines go on."""
    band = min(band, width)
    kernel = WhittakerShannon("symmetric")
    smooth = resample(
        torch.randn(1, 1, band, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)), (width,), kernel
    )[0, :, None]
    padded = torch.from_numpy(Aspect("pad", (1, 1))(np.repeat(smooth.numpy(), 3 * width, axis=1)))[None]
    assert padded.shape[2:] == (3 * width, 3 * width)
    again = resample(resample(padded, (3 * width, 3 * band), kernel), (3 * width, 3 * width), kernel)
    assert float((again - padded).abs().max()) < 1e-10


def test_what_cannot_be_framed_is_refused() -> None:
    with pytest.raises(ArrnError, match=r"unknown aspect 'squeeze' \(known: 'crop', 'pad', 'stretch'\)"):
        Aspect("squeeze", (8, 8))
    with pytest.raises(ArrnError, match="has another number of axes"):
        Aspect("pad", (8, 8)).frame((3, 4, 5))
    wrong = Aspect("pad", (8, 8)).refusal((1, 20_000))
    assert wrong is not None
    assert "20000x20000, is 400,000,000 pixels" in wrong
    for mode in ("crop", "stretch"):
        assert Aspect(mode, (8, 8)).refusal((1, 20_000)) is None


def test_a_reader_frames_what_it_reads() -> None:
    samples = np.random.default_rng(0).integers(0, 255, (6, 9, 3), dtype=np.uint8)
    for mode, size in (("stretch", (6, 9)), ("pad", (9, 9)), ("crop", (6, 6))):
        signal = Reader(2, 3, (8, 8), aspect=mode).read(samples)
        assert (signal.size, signal.given or signal.size) == (size, (6, 9))
        assert np.array_equal(signal.samples, Aspect(mode, (8, 8))(samples.transpose(2, 0, 1)))
    with pytest.raises(BadSample, match="padded to the network's proportions, its size, 100x100, is 10,000 pixels"):
        Reader(2, 3, (8, 8), max_pixels=9_999, aspect="pad").read(np.zeros((1, 100, 3), np.uint8))
    assert Reader(2, 3, None, aspect="pad").read(samples).size == (6, 9)  # it takes any size as it is
