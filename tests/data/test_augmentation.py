"""Augmentation and normalisation against independent references."""

import itertools
from collections import Counter

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from torchvision.transforms import v2

from arrn.data import Augmentation, Normalisation, TrivialAugmentWide
from arrn.data.augmentation import cut_and_mix

MEAN, STD = (0.49, 0.48, 0.45), (0.25, 0.24, 0.26)


def plain(channels: int = 3) -> Normalisation:
    """uint8 to [0, 1], and no more."""
    return Normalisation([0.0] * channels, [1.0] * channels)


def images(*shape: int) -> torch.Tensor:
    return torch.randint(1, 256, shape, dtype=torch.uint8)


def test_normalisation_is_torchvisions() -> None:
    pixels = images(5, 3, 7, 9)
    reference = v2.Compose([v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)])(pixels)
    torch.testing.assert_close(Normalisation(MEAN, STD)(pixels), reference, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(4, 1, 11), (4, 2, 5, 6, 7)])
def test_normalisation_works_along_any_axes(shape: tuple[int, ...]) -> None:
    channels = shape[1]
    mean, std = np.linspace(0.2, 0.6, channels), np.linspace(0.1, 0.3, channels)
    pixels = images(*shape)
    by_hand = [(pixels[:, c].numpy() / 255 - mean[c]) / std[c] for c in range(channels)]
    given = Normalisation(mean.tolist(), std.tolist())(pixels)
    np.testing.assert_allclose(given.numpy(), np.stack(by_hand, 1), rtol=1e-4, atol=1e-5)


def recover(image: torch.Tensor, shown: torch.Tensor, margin: int) -> list[tuple[int, int, bool]]:
    """By brute force: every way to flip, zero-pad and crop `image` that gives `shown`."""
    height, width = image.shape[-2:]
    found = []
    for mirrored in (False, True):
        padded = F.pad(image.flip(-1) if mirrored else image, [margin] * 4)
        for top, left in itertools.product(range(2 * margin + 1), repeat=2):
            if torch.equal(padded[:, top : top + height, left : left + width], shown):
                found.append((top, left, mirrored))
    return found


def test_each_sample_is_a_flipped_crop_of_its_zero_padded_self() -> None:
    pixels = images(600, 3, 8, 8)
    augmented = Augmentation(plain(), padding=1 / 8)(pixels)
    ways = [recover(plain()(image[None])[0], shown, 1) for image, shown in zip(pixels, augmented, strict=True)]
    assert all(len(way) == 1 for way in ways)  # noise: only one way can be right
    tops, lefts, flips = (Counter(way[0][n] for way in ways) for n in range(3))
    # A third for each offset, a half for each side, every combination: to five standard deviations.
    for counter in (tops, lefts):
        assert set(counter) == {0, 1, 2}
        assert all(abs(count - 200) < 5 * 11.6 for count in counter.values())
    assert abs(flips[True] - 300) < 5 * 12.3
    assert len({way[0] for way in ways}) == 18


def test_zeros_are_padded_after_normalisation() -> None:
    augmented = Augmentation(Normalisation(MEAN, STD), flip=False, padding=1.0)(images(200, 3, 4, 4))
    outside = augmented == 0
    assert bool(outside.any())
    assert torch.equal(outside.all(dim=1), outside.any(dim=1))  # the mean colour in every channel at once


@pytest.mark.parametrize(("size", "margin"), [(32, 4), (16, 2), (64, 8), (8, 1), (3, 0)])
def test_the_padding_is_the_same_part_of_every_grid(size: int, margin: int) -> None:
    place = torch.arange(1, size + 1, dtype=torch.uint8).expand(400, 1, size).contiguous()
    shown = Augmentation(plain(1), flip=False)(place) * 255
    first_seen = {round(float(row[0, size // 2])) - size // 2 - 1 for row in shown}
    assert first_seen == set(range(-margin, margin + 1))


def test_without_flip_and_padding_it_only_normalises() -> None:
    pixels = images(6, 3, 5, 7)
    normalisation = Normalisation(MEAN, STD)
    assert torch.equal(Augmentation(normalisation, flip=False, padding=0.0)(pixels), normalisation(pixels))


@pytest.mark.parametrize("shape", [(40, 2, 16), (40, 2, 6, 8), (40, 2, 8, 8, 8)])
def test_it_works_along_one_two_and_three_axes(shape: tuple[int, ...]) -> None:
    pixels = images(*shape)
    augmented = Augmentation(plain(2))(pixels)
    assert augmented.shape == pixels.shape
    # The middle stays in the picture, wherever the crop is: each value shown is one of its own sample's and channel's.
    for image, shown in zip(plain(2)(pixels), augmented, strict=True):
        for channel, channel_shown in zip(image, shown, strict=True):
            assert set(channel_shown[channel_shown > 0].tolist()) <= set(channel.flatten().tolist())
    assert not torch.equal(augmented, plain(2)(pixels))


@pytest.mark.parametrize("shape", [(60, 2, 16), (60, 2, 9, 12), (60, 2, 6, 5, 8)])
def test_a_cut_out_square_is_a_clipped_box_of_the_mean_value_at_a_random_place(shape: tuple[int, ...]) -> None:
    pixels, normalisation = images(*shape), Normalisation([0.5001] * 2, [0.3] * 2)  # no pixel has the mean value
    shown = Augmentation(normalisation, flip=False, padding=0.0, cutout=0.4)(pixels)
    gone = shown == 0
    assert torch.equal(gone.all(dim=1), gone.any(dim=1))
    assert torch.equal(shown, normalisation(pixels) * ~gone)
    whole, spans = 0, set()
    for hole in gone[:, 0]:
        places = hole.nonzero()
        low, high = places.amin(0), places.amax(0) + 1
        box = [slice(int(a), int(b)) for a, b in zip(low, high, strict=True)]
        assert bool(hole[tuple(box)].all())
        assert int(hole.sum()) == int((high - low).prod())
        for length, a, b in zip(shape[2:], low.tolist(), high.tolist(), strict=True):
            side = round(length * 0.4)
            assert b - a == side or (b - a < side and (a == 0 or b == length))
        whole += all(b - a == round(length * 0.4) for length, a, b in zip(shape[2:], low, high, strict=True))
        spans.add((tuple(low.tolist()), tuple(high.tolist())))
    assert whole > 10  # most places are inside
    assert len(spans) > 8


def test_a_square_is_cut_out_after_all_else_is_drawn() -> None:
    pixels, normalisation = images(20, 3, 8, 8), Normalisation(MEAN, STD)
    torch.manual_seed(7)
    whole = Augmentation(normalisation)(pixels)
    torch.manual_seed(7)
    cut = Augmentation(normalisation, cutout=0.5)(pixels)
    assert torch.equal(cut, torch.where(cut == 0, 0.0, whole))
    assert not torch.equal(cut, whole)


def test_batches_of_images_come_in_channels_last_order() -> None:
    assert Augmentation(plain())(images(4, 3, 8, 8)).is_contiguous(memory_format=torch.channels_last)


def test_randomness_comes_from_torchs_generator_alone() -> None:
    pixels, augmentation = images(50, 3, 8, 8), Augmentation(plain())
    torch.manual_seed(7)
    first, second = augmentation(pixels), augmentation(pixels)
    torch.manual_seed(7)
    assert torch.equal(augmentation(pixels), first)
    assert not torch.equal(first, second)


def test_trivial_augment_goes_first() -> None:
    pixels, normalisation = images(60, 3, 8, 8), Normalisation(MEAN, STD)
    torch.manual_seed(7)
    changed = TrivialAugmentWide()(pixels)
    flipped = Augmentation(normalisation)(changed)
    torch.manual_seed(7)
    assert torch.equal(Augmentation(normalisation, trivial_augment=True)(pixels), flipped)
    torch.manual_seed(7)
    alone = Augmentation(normalisation, flip=False, padding=0.0, trivial_augment=True)(pixels)
    assert torch.equal(alone, normalisation(changed))


@pytest.mark.parametrize("space", [(16,), (9, 12), (6, 5, 7)])
def test_cut_and_mix_pastes_a_box_of_the_next_sample_and_as_much_of_its_target(space: tuple[int, ...]) -> None:
    batch = 200
    owners = torch.arange(batch, dtype=torch.float32).view(-1, 1, *[1] * len(space)).expand(batch, 2, *space)
    images, targets = cut_and_mix(owners.contiguous(), torch.eye(batch), chance=0.6, first=150)
    foreign = (images != owners)[:, 0]
    assert not foreign[150:].any()
    assert 60 < int(foreign[:150].flatten(1).any(dim=1).sum()) < 100  # about 90, less the boxes that missed
    neighbours = owners.roll(1, 0)
    assert torch.equal(
        images[foreign.unsqueeze(1).expand_as(images)], neighbours[foreign.unsqueeze(1).expand_as(images)]
    )
    for n in range(batch):
        places = foreign[n].nonzero()
        share = len(places) / foreign[n].numel()
        assert targets[n, n - 1] == pytest.approx(share, abs=1e-6)
        assert targets[n, n] == pytest.approx(1 - share, abs=1e-6)
        if len(places):  # the places fill their bounding box
            sides = places.max(dim=0).values - places.min(dim=0).values + 1
            assert int(sides.prod()) == len(places)


def test_cut_and_mix_covers_parts_of_every_size() -> None:
    images, targets = cut_and_mix(torch.zeros(4000, 1, 32, 32), torch.eye(4000), chance=1.0, first=4000)
    mixed = 1 - targets.diagonal()
    # Half of the sample on average, less what of the box lies outside: a quarter to a third.
    assert 0.25 < float(mixed.mean()) < 0.4
    assert float(mixed.max()) > 0.8
    assert images.shape == (4000, 1, 32, 32)
