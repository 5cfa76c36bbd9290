"""TrivialAugmentWide on batches against torchvision's, image by image, on the same parameters."""

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from torchvision.transforms import InterpolationMode
from torchvision.transforms import TrivialAugmentWide as Torchvisions
from torchvision.transforms.autoaugment import _apply_op

from arrn.data import TrivialAugmentWide
from arrn.data.trivial_augment import BINS, CHOICES, OPERATIONS, choice_of, magnitude_of
from arrn.errors import ArrnError
from arrn.gpu import Replay

GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
OURS = TrivialAugmentWide()
SETTINGS = [(magnitude_bin, negative) for magnitude_bin in range(BINS) for negative in (False, True)]


def noise(shape: tuple[int, ...], low: int = 0, high: int = 256, seed: int = 0) -> torch.Tensor:
    return torch.randint(low, high, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def ramp(shape: tuple[int, ...]) -> torch.Tensor:
    """Each pixel another grey than its neighbours, up to 255 and from 0 again."""
    return (torch.arange(math.prod(shape)) * 7).to(torch.uint8).view(shape)


IMAGES: dict[str, torch.Tensor] = {
    "noise, as in CIFAR": noise((3, 32, 32)),
    "noise, upright": noise((3, 40, 17), seed=1),
    "noise, odd": noise((3, 33, 33), seed=2),
    "a ramp, as in TinyImageNet": ramp((3, 64, 64)),
    "a dark one, as in STL10": noise((3, 96, 96), 10, 60),
    "grey noise": noise((1, 21, 24)),
    "one colour": torch.tensor([0, 130, 255], dtype=torch.uint8).view(3, 1, 1).expand(3, 9, 8),
    "two colours": noise((3, 24, 24), 0, 2) * 100 + 50,
    "a channel of one value": noise((3, 20, 20)) * torch.tensor([1, 0, 1], dtype=torch.uint8).view(3, 1, 1),
    "one pixel": noise((3, 1, 1)),
    "two rows": noise((3, 2, 5)),
    "a grey line": noise((1, 1, 30)),
    "the smallest with an inner pixel": noise((3, 3, 3)),
}


def by_torchvision(image: torch.Tensor, operation: str, magnitude_bin: int, negative: bool) -> torch.Tensor:
    magnitude = magnitude_of(operation, magnitude_bin, negative)
    changed: torch.Tensor = _apply_op(image, operation, magnitude, InterpolationMode.NEAREST, None)
    return changed


def halfway(operation: str, magnitude: float, height: int, width: int) -> torch.Tensor:
    """Where, by float64, the place that a pixel shows is halfway between two pixels: rounding may choose either."""
    x = torch.arange(width, dtype=torch.float64) - (width - 1) / 2
    y = (torch.arange(height, dtype=torch.float64) - (height - 1) / 2)[:, None]
    cosine, sine = math.cos(math.radians(magnitude)), math.sin(math.radians(magnitude))
    maps: dict[str, tuple[torch.Tensor, torch.Tensor]] = {
        "ShearX": (x + magnitude * (y + height / 2), y + 0 * x),
        "ShearY": (x + 0 * y, y + magnitude * (x + width / 2)),
        "Rotate": (cosine * x - sine * y, sine * x + cosine * y),
    }
    if operation not in maps:
        return torch.zeros(height, width, dtype=torch.bool)
    across, down = maps[operation]
    places = torch.stack([across + width / 2, down + height / 2])  # whole numbers are edges of pixels
    return ((places - places.round()).abs() < 1e-4).any(dim=0)


def assert_torchvisions(given: torch.Tensor, image: torch.Tensor, operation: str, setting: tuple[int, bool]) -> None:
    different = (given != by_torchvision(image, operation, *setting)).any(dim=0)
    allowed = halfway(operation, magnitude_of(operation, *setting), *image.shape[1:])
    assert not bool((different & ~allowed).any()), f"{operation} at {setting}: {int(different.sum())} pixels"


def test_the_operations_magnitudes_and_signs_are_torchvisions() -> None:
    space = Torchvisions()._augmentation_space(BINS)
    assert tuple(space) == OPERATIONS
    for operation, (magnitudes, signed) in space.items():
        expected = magnitudes.tolist() if magnitudes.ndim else [0.0] * BINS
        assert [magnitude_of(operation, n) for n in range(BINS)] == expected
        assert [magnitude_of(operation, n, negative=True) for n in range(BINS)] == [
            -value if signed else value for value in expected
        ]


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("name", IMAGES)
def test_each_operation_is_torchvisions_at_every_magnitude_and_sign(operation: str, name: str) -> None:
    image = IMAGES[name]
    choices = torch.tensor([choice_of(operation, *setting) for setting in SETTINGS])
    for setting, changed in zip(
        SETTINGS, OURS.apply_choices(image.expand(len(SETTINGS), -1, -1, -1), choices), strict=True
    ):
        assert_torchvisions(changed, image, operation, setting)


def test_a_pixel_halfway_is_the_exception() -> None:
    # What the comparison lets pass is little, but where a quarter turn takes even to odd sizes.
    for magnitude in (0.033, 0.5, 0.99):
        assert halfway("ShearX", magnitude, 32, 32).float().mean() < 0.05
    for angle in (4.5, 45.0, 130.5):
        assert halfway("Rotate", angle, 96, 96).float().mean() < 0.05
    assert not halfway("Rotate", 90.0, 32, 32).any()
    assert halfway("Rotate", 90.0, 32, 33).all()


@given(
    operation=st.sampled_from(OPERATIONS),
    setting=st.sampled_from(SETTINGS),
    channels=st.sampled_from([1, 3]),
    grid=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    values=st.tuples(st.integers(0, 255), st.integers(0, 255)).map(sorted),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=150, deadline=None)
@example(operation="Rotate", setting=(20, False), channels=1, grid=(4, 5), values=[0, 255], seed=0)
@example(operation="Equalize", setting=(0, False), channels=3, grid=(40, 40), values=[7, 8], seed=0)
@example(operation="AutoContrast", setting=(0, False), channels=3, grid=(5, 5), values=[255, 255], seed=0)
def test_it_holds_for_any_image(
    operation: str,
    setting: tuple[int, bool],
    channels: int,
    grid: tuple[int, int],
    values: list[int],
    seed: int,
) -> None:
    image = noise((channels, *grid), values[0], values[1] + 1, seed)
    (changed,) = OURS.apply_choices(image[None], torch.tensor([choice_of(operation, *setting)]))
    assert_torchvisions(changed, image, operation, setting)


def test_no_image_looks_at_its_neighbours() -> None:
    images, choices = noise((60, 3, 16, 16)), OURS.draw(60)
    together = OURS.apply_choices(images, choices)
    for n in range(60):
        assert torch.equal(OURS.apply_choices(images[n : n + 1], choices[n : n + 1])[0], together[n])
    order = torch.randperm(60)
    assert torch.equal(OURS.apply_choices(images[order], choices[order]), together[order])


def test_the_order_of_the_memory_does_not_matter_and_the_images_are_kept() -> None:
    images, choices = noise((40, 3, 12, 10)), OURS.draw(40)
    kept = images.clone()
    changed = OURS.apply_choices(images, choices)
    assert torch.equal(images, kept)
    assert changed.dtype == torch.uint8
    rows = images.contiguous(memory_format=torch.channels_last)
    assert torch.equal(OURS.apply_choices(rows, choices), changed)


def test_each_choice_is_drawn_as_often_as_any_other() -> None:
    torch.manual_seed(0)
    per_choice = 100
    counts = np.bincount(OURS.draw(CHOICES * per_choice).numpy(), minlength=CHOICES)
    assert len(counts) == CHOICES
    by_parts = counts.reshape(len(OPERATIONS), BINS, 2)
    everything = (counts, by_parts.sum((1, 2)), by_parts.sum((0, 2)), by_parts.sum((0, 1)))
    for observed in everything:  # choices, operations, bins, signs
        expected, freedom = counts.sum() / len(observed), len(observed) - 1
        chi_square = ((observed - expected) ** 2 / expected).sum()
        # Its mean is the freedom, its variance twice that: to five standard deviations, and some for the long tail.
        assert chi_square < freedom + 5 * math.sqrt(2 * freedom) + 10
    # A generator that goes through the choices one by one would be too even.
    assert ((counts - per_choice) ** 2 / per_choice).sum() > CHOICES - 5 * math.sqrt(2 * CHOICES)


def test_what_it_does_is_what_it_draws_and_the_seed_decides() -> None:
    images = noise((50, 3, 8, 8))
    torch.manual_seed(3)
    first, second = OURS(images), OURS(images)
    torch.manual_seed(3)
    assert torch.equal(OURS.apply_choices(images, OURS.draw(50)), first)
    assert not torch.equal(first, second)


class Calls(TorchDispatchMode):
    """Notes what torch runs, views left out: on a GPU about a kernel each."""

    def __init__(self) -> None:
        super().__init__()
        self.names: Counter[str] = Counter()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if not function.is_view and function.overloadpacket.__name__ != "_unsafe_view":
            self.names[function.overloadpacket.__name__] += 1
        return function(*args, **(kwargs or {}))


def test_few_kernels_the_same_for_any_batch_and_none_that_the_host_waits_for() -> None:
    seen = []
    for shape in ((2, 3, 8, 8), (200, 3, 32, 32)):
        images = noise(shape)
        with Calls() as calls:
            OURS(images)
        seen.append(calls.names)
    assert seen[0] == seen[1]
    assert not {"_local_scalar_dense", "nonzero", "masked_select", "bincount", "unique", "_unique2"} & set(seen[0])
    assert sum(seen[0].values()) <= 70


def test_no_shape_depends_on_the_data() -> None:
    # A tensor on "meta" has no values: whatever asked for one would fail.
    images = torch.empty(5, 3, 9, 7, dtype=torch.uint8, device="meta")
    assert TrivialAugmentWide().to("meta")(images).shape == images.shape
    whole: Callable[[torch.Tensor], torch.Tensor] = torch.compile(OURS, fullgraph=True, backend="eager")
    assert whole(noise((4, 3, 8, 8))).shape == (4, 3, 8, 8)


@pytest.mark.parametrize(
    ("images", "got"),
    [
        (torch.zeros(2, 3, 8, 8), "float32 of shape (2, 3, 8, 8)"),
        (noise((2, 2, 8, 8)), "uint8 of shape (2, 2, 8, 8)"),
        (noise((3, 8, 8)), "uint8 of shape (3, 8, 8)"),
        (noise((2, 1, 4, 8, 8)), "uint8 of shape (2, 1, 4, 8, 8)"),
    ],
)
def test_what_is_no_batch_of_images_is_refused(images: torch.Tensor, got: str) -> None:
    with pytest.raises(ArrnError, match=r"\(batch, 1 or 3, height, width\)") as caught:
        OURS(images)
    assert got in str(caught.value)


def test_a_choice_that_there_is_not_is_refused() -> None:
    with pytest.raises(ArrnError, match="unknown operation 'Colour'; did you mean 'Color'"):
        choice_of("Colour")
    with pytest.raises(ArrnError, match="from 0 to 30, got 31"):
        choice_of("ShearX", 31)


@GPU
@pytest.mark.parametrize("name", IMAGES)
def test_a_gpu_gives_the_same_pixels(name: str) -> None:
    image = IMAGES[name]
    images, choices = image.expand(CHOICES, -1, -1, -1), torch.arange(CHOICES)
    given = TrivialAugmentWide().cuda().apply_choices(images.cuda(), choices.cuda()).cpu()
    expected = OURS.apply_choices(images, choices)
    for choice in range(CHOICES):
        operation, setting = OPERATIONS[choice // len(SETTINGS)], SETTINGS[choice % len(SETTINGS)]
        difference = (given[choice].int() - expected[choice].int()).abs().amax(dim=0)
        if operation == "Contrast":  # a GPU multiplies by 1/n for the mean, which may round it otherwise
            assert difference.max() <= 1
        else:
            allowed = halfway(operation, magnitude_of(operation, *setting), *image.shape[1:])
            assert not bool(((difference > 0) & ~allowed).any()), f"{operation} at {setting}"


@GPU
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
def test_on_a_gpu_nothing_waits_and_a_graph_holds_it() -> None:
    augment, images = TrivialAugmentWide().cuda(), noise((128, 3, 64, 64)).cuda()
    augment(images)
    torch.cuda.set_sync_debug_mode("error")
    try:
        augment(images)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    replay = Replay(augment, torch.device("cuda"), warmup=1)
    replay(images)
    for seed in (1, 2, 1):
        torch.manual_seed(seed)
        expected = augment(images)
        torch.manual_seed(seed)
        assert torch.equal(replay(images), expected)
    assert replay.recordings == 1


@GPU
def test_on_a_gpu_it_runs_where_only_deterministic_algorithms_may() -> None:
    augment, images = TrivialAugmentWide().cuda(), noise((32, 3, 16, 16)).cuda()
    choices = augment.draw(32)
    expected = augment.apply_choices(images, choices)
    replay = Replay(augment.apply_choices, torch.device("cuda"), warmup=1)
    torch.use_deterministic_algorithms(True)
    try:
        for _ in range(3):
            assert torch.equal(replay(images, choices), expected)
        assert replay.recordings == 1
    finally:
        torch.use_deterministic_algorithms(False)
