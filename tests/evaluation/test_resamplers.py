"""How lower resolutions are made, against torchvision and by hand."""

import pytest
import torch
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional as tv

from arrn.errors import ArrnError
from arrn.evaluation import RESAMPLERS, check_resampler, lower
from arrn.signal import KaiserSinc, resample
from arrn.signal.kernels import kernel_options

IMAGES = torch.randn(2, 3, 12, 18, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", ["perfect", "fair", "poor"])
def test_kernels_by_name_and_by_their_options(name: str) -> None:
    assert torch.equal(lower(IMAGES, (5, 7), name), resample(IMAGES, (5, 7), name))
    custom = KaiserSinc(3, 5.0)
    assert torch.equal(lower(IMAGES, (5, 7), kernel_options(custom)), resample(IMAGES, (5, 7), custom))


def test_the_default_is_the_perfect_kernel() -> None:
    assert torch.equal(lower(IMAGES, (5, 7)), resample(IMAGES, (5, 7), "perfect"))


def test_bicubic_is_torchvisions_with_antialiasing() -> None:
    reference = tv.resize(IMAGES, [5, 7], InterpolationMode.BICUBIC, antialias=True)
    torch.testing.assert_close(lower(IMAGES, (5, 7), "bicubic"), reference)


def test_area_is_the_mean_of_what_a_cell_covers() -> None:
    by_hand = IMAGES.unfold(2, 3, 3).unfold(3, 2, 2).mean(dim=(-1, -2))
    torch.testing.assert_close(lower(IMAGES, (4, 9), "area"), by_hand)
    torch.testing.assert_close(lower(torch.arange(6.0).view(1, 1, 6), (3,), "area"), torch.tensor([[[0.5, 2.5, 4.5]]]))


@pytest.mark.parametrize("name", RESAMPLERS)
def test_the_same_size_is_left_as_it_is(name: str) -> None:
    assert lower(IMAGES, (12, 18), name) is IMAGES


@pytest.mark.parametrize("name", RESAMPLERS)
def test_constants_stay_constant(name: str) -> None:
    torch.testing.assert_close(lower(torch.full((1, 1, 10, 9), 3.0), (4, 6), name), torch.full((1, 1, 4, 6), 3.0))


def test_wrong_ones_are_refused() -> None:
    with pytest.raises(ArrnError, match="unknown resampler 'nearest'"):
        lower(IMAGES, (5, 7), "nearest")
    with pytest.raises(ArrnError, match="unknown resampler 'nearest'"):
        lower(IMAGES, (12, 18), "nearest")  # also where nothing is lowered
    with pytest.raises(ArrnError, match="a kernel's options need its name"):
        check_resampler({"sigma": 1.0}, 2)
    with pytest.raises(ArrnError, match="bicubic resampler is for images, got 1 axes of space; use 'area'"):
        lower(torch.zeros(1, 1, 8), (4,), "bicubic")
