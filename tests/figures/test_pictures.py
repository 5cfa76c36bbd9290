"""Pictures of signals and features: the arithmetic behind them, and what they show."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("matplotlib")

import arrn
from arrn.errors import ArrnError
from arrn.figures.features import draw_features, principal_colours, signals_on_the_way
from arrn.figures.kernels import cosine_magnitudes, draw_bandwidth
from arrn.figures.pyramid import draw_pyramid
from arrn.figures.skipping import draw_skipping
from arrn.signal import LaplacianPyramid
from artists import check_legends, texts


def features(seed: int, channels: int = 6, height: int = 5, width: int = 4) -> torch.Tensor:
    return torch.randn(1, channels, height, width, generator=torch.Generator().manual_seed(seed))


@given(st.integers(0, 100))
def test_directions_are_orthonormal_of_falling_variance_and_fixed_sign(seed: int) -> None:
    x = features(seed)
    directions = principal_colours(x).directions
    assert torch.allclose(directions @ directions.T, torch.eye(3, dtype=torch.float64))
    flat = x[0].flatten(1).double()
    variances = (directions @ (flat - flat.mean(1, keepdim=True))).var(dim=1)
    assert (variances.diff() <= 1e-12).all()
    assert (directions.gather(1, directions.abs().argmax(1, keepdim=True)) > 0).all()


@given(st.integers(0, 100))
def test_colours_do_not_depend_on_the_order_or_sign_of_channels(seed: int) -> None:
    x = features(seed)
    colours = principal_colours(x)(x)
    assert torch.allclose(principal_colours(x[:, [5, 3, 4, 0, 1, 2]])(x[:, [5, 3, 4, 0, 1, 2]]), colours)
    negative = principal_colours(-x)(-x)
    assert torch.allclose(negative, 1 - colours)  # directions stay, places along them turn round


def test_colours_lie_around_grey_and_reach_one_end() -> None:
    x = features(1)
    colours = principal_colours(x)(x)
    assert 0 <= colours.min() <= colours.max() <= 1
    assert torch.allclose((colours - 0.5).abs().amax(dim=(2, 3)), torch.tensor(0.5, dtype=torch.float64))
    zero = principal_colours(x)(torch.zeros(1, 6, 5, 4), centred=False)
    assert (zero == 0.5).all()


@pytest.mark.parametrize("channels", [1, 2])
def test_few_channels_leave_the_other_colours_grey(channels: int) -> None:
    x = features(2, channels)
    assert (principal_colours(x)(x)[0, channels:] == 0.5).all()


def test_features_of_a_constant_are_grey_and_of_many_images_refused() -> None:
    constant = torch.full((1, 4, 3, 3), 7.0)
    assert (principal_colours(constant)(constant) == 0.5).all()
    with pytest.raises(ArrnError, match=r"one image's features.*got \(2, 4, 3, 3\)"):
        principal_colours(torch.zeros(2, 4, 3, 3))


def test_a_pyramid_is_drawn_with_every_band_and_difference() -> None:
    figure = draw_pyramid(torch.rand(1, 3, 24, 20), LaplacianPyramid(((24, 20), (12, 10), (6, 5))))
    assert sum(len(axes.images) for axes in figure.axes) == 5
    assert "difference 2: 12x10" in texts(figure)
    assert {axes.get_aspect() for axes in figure.axes if axes.images} == {24 / 20}


def test_features_are_drawn_for_each_level() -> None:
    model = arrn.create_model("arrn", sizes=(16, 8, 4), features=(4, 6, 8), depth=1).eval()
    image = torch.rand(1, 3, 12, 16)
    with torch.no_grad():
        levels = signals_on_the_way(model, image)
    figure = draw_features(image, levels, model.kernel, "a small network")
    written = texts(figure)
    assert sum(len(axes.images) for axes in figure.axes) == 1 + 4 + 2
    assert "into level 1:\n16x16, 4 features" in written
    assert "out of the base:\n4x4, 8 features" in written
    assert "a small network" in written


@given(st.integers(1, 20), st.data())
def test_a_wave_has_its_own_frequency_only(size: int, data: st.DataObject) -> None:
    frequency = data.draw(st.integers(0, size - 1))
    x = (torch.arange(size, dtype=torch.float64) + 0.5) / size
    magnitudes = cosine_magnitudes(3 * torch.cos(math.pi * frequency * x).reshape(1, 1, -1))
    assert magnitudes == pytest.approx([3 if k == frequency else 0 for k in range(size)], abs=1e-12)


def test_bandwidth_greys_out_the_grids_that_are_too_coarse() -> None:
    signal = torch.rand(1, 1, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    figure = draw_bandwidth(signal, (16, 8, 4))
    grids, spectra = figure.axes[:9], figure.axes[9:]
    too_coarse = [bool(axes.get_xlabel()) for axes in grids]
    assert too_coarse == [False, True, True, False, False, True, False, False, False]
    # Where the grid holds the band, the samples give the signal: one curve; else another comes back.
    assert [len(axes.lines) for axes in grids] == [3 if coarse else 2 for coarse in too_coarse]
    perfect = [bar.get_height() for bar in spectra[0].patches]
    assert all(height == pytest.approx(0, abs=1e-12) for height in perfect[:8] + perfect[16:20] + perfect[36:])
    assert min(perfect[8:16]) > 1e-4
    poor = [bar.get_height() for bar in spectra[1].patches]
    assert max(poor[:8]) > 1e-3  # what a poor kernel lets through
    check_legends(figure)


def test_skipped_levels_are_drawn_as_outlines_and_costs_fall() -> None:
    network = arrn.create_model("arrn", sizes=(16, 8, 4), features=(4, 8, 8)).eval()
    figure = draw_skipping(torch.rand(1, 3, 20, 20), network)
    (axes,) = figure.axes
    written = [text.get_text() for text in axes.texts]
    assert [text for text in written if "x" in text and "level" not in text] == ["16x16", "8x8", "4x4"]
    assert [sum(text == f"{name}\nskipped" for text in written) for name in ("level 16", "level 8", "base 4")] == [
        2,
        1,
        0,
    ]
    filled = [patch.get_facecolor() for patch in axes.patches if patch.get_facecolor()[:3] != (1, 1, 1)]
    assert len(filled) == 3 + 2 + 1
