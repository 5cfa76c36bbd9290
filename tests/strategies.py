"""What the laws are tested over: kernels, grids, ladders, networks and inputs, drawn by hypothesis."""

from dataclasses import dataclass

import torch
from hypothesis import strategies as st

import arrn
from arrn.nn import ARRN
from arrn.signal import KaiserSinc, TruncatedGaussian, WhittakerShannon
from arrn.testing import awaken_norms

PERFECT = [WhittakerShannon("symmetric"), WhittakerShannon("periodic")]
APPROXIMATE = [KaiserSinc(), KaiserSinc(3, 5.0), TruncatedGaussian(), TruncatedGaussian(0.8, 2.5)]
KERNELS = PERFECT + APPROXIMATE

# Blocks, and the form of the levels around them.
KINDS = [
    {"block": "inverted"},
    {"block": "zero_preserving"},
    {"block": "inverted", "form": "difference"},
    {"block": "dense", "form": "difference"},
    {"block": "dense", "form": "gated"},
]

# Small enough to be quick, large enough for odd sizes and non-integer ratios in every dimension.
LARGEST = {1: 24, 2: 12, 3: 9}


def relative_error(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).detach().norm() / b.detach().norm())


@st.composite
def grids(draw: st.DrawFn, ndim: int) -> tuple[int, ...]:
    return tuple(draw(st.integers(1, LARGEST[ndim])) for _ in range(ndim))


@st.composite
def ladders(draw: st.DrawFn, ndim: int) -> tuple[tuple[int, ...], ...]:
    """Two to four grids; axes shrink at their own pace, and the base holds more than constants."""
    largest = LARGEST[ndim]
    columns = []
    length = draw(st.integers(2, 4))
    for axis in range(ndim):
        # The first axis always shrinks, its periodic band too (4 and 3 hold the same); others may pause.
        least, key = (3, lambda n: (n - 1) // 2) if axis == 0 else (1, None)
        distinct = {"unique_by": key} if key else {}
        column = draw(st.lists(st.integers(least, largest), min_size=length, max_size=length, **distinct))
        columns.append(sorted(column, reverse=True))
    return tuple(zip(*columns, strict=True))


@dataclass(frozen=True)
class Case:
    model: ARRN
    x: torch.Tensor
    full: torch.Tensor
    size: tuple[int, ...]
    level: int


@st.composite
def cases(draw: st.DrawFn, dtype: torch.dtype = torch.float64) -> Case:
    """A network that behaves like a trained one, and an input that usually skips some of its levels."""
    ndim = draw(st.integers(1, 3))
    ladder = draw(ladders(ndim))
    seed = draw(st.integers(0, 2**16))
    torch.manual_seed(seed)
    model = arrn.create_model(
        "arrn",
        sizes=ladder,
        features=[draw(st.integers(6, 10)) for _ in ladder],
        expansion=2,
        depth=draw(st.integers(1, 2)),
        ndim=ndim,
        num_classes=5,
        in_channels=draw(st.integers(1, 3)),
        kernel=draw(st.sampled_from(PERFECT)),
        **draw(st.sampled_from(KINDS)),
    ).to(dtype)
    full = torch.randn(6, model.in_channels, *ladder[0], dtype=dtype)
    awaken_norms(model, full, seed)
    bound = draw(st.sampled_from([*ladder, tuple(n + 3 for n in ladder[0])]))
    size = tuple(draw(st.integers(max(1, n // 2), n)) for n in bound)
    return Case(model, torch.randn(2, model.in_channels, *size, dtype=dtype), full, size, model.level(size, "exact"))
