"""Smoothing kernels: for any two sizes of a grid, the matrix that takes samples of one to the other.

A signal of N samples sits on the cell-centred grid x_i = (i + 1/2)/N. Going to M < N samples, a
kernel smooths to the band of the smaller grid and samples there (D); going to M > N, it
interpolates (U). Both are linear and separable, so each is one small real matrix per axis.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from numbers import Real
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from arrn.errors import ArrnError, unknown_name
from arrn.signal.grid import as_count

Matrix: TypeAlias = NDArray[np.float64]
Boundary: TypeAlias = Literal["symmetric", "periodic"]

LARGEST_MATRIX_EVER = 2**28
"""The most entries of a matrix, 2 GiB in float64: numbers beyond are a mistake, or a stranger's."""

_WIDEST = 1000.0  # cells of the coarser grid that a kernel reaches to on each side, at most


class Kernel(ABC):
    """A smoothing kernel: a hashable value. Two kernels are equal when their parameters are equal.

    A kernel of your own is a subclass, whose method `_build` builds the matrix.
    """

    exact: ClassVar[bool] = False
    """Whether it is the projection on the band: then skipping is exact and means are preserved."""

    name: ClassVar[str]
    """The short name that `kernel` takes and printed networks show."""

    @property
    @abstractmethod
    def boundary(self) -> Boundary:
        """How the signal continues beyond its domain: mirrored or repeated."""

    @abstractmethod
    def _build(self, source: int, target: int) -> Matrix:
        """The (target, source) matrix; called once for each pair of sizes while it stays in the cache."""

    def band(self, size: int) -> int:
        """How many independent values a signal of the band of `size` samples has along an axis."""
        return size

    def keeps(self, size: int) -> bool:
        """Whether resampling from `size` to `size` samples is the identity."""
        return True

    def matrix(self, source: int, target: int) -> torch.Tensor:
        """The (target, source) float64 matrix from `source` to `target` samples of one axis.

        >>> WhittakerShannon().matrix(4, 2).shape
        torch.Size([2, 4])
        """
        source, target = as_count(source), as_count(target)
        if source * target > LARGEST_MATRIX_EVER:
            raise ArrnError(
                f"the matrix from {source} to {target} samples would have {source * target:.2g} entries, and should "
                f"have at most {LARGEST_MATRIX_EVER:.2g}: arrn.signal.resample does without for the perfect kernel in "
                "float32 and float64"
            )
        master = _small_matrix if source * target <= 2**16 else _large_matrix
        # The copy keeps the cached master safe from whoever writes into the tensor.
        return torch.from_numpy(master(self, source, target).copy())

    def matrix_on(self, source: int, target: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """`matrix` in a dtype on a device, read-only. Recent matrices stay there, since copying to a GPU takes time."""
        (matrix,) = self._matrix_on(source, target, dtype, device)
        return matrix

    def _matrix_on(self, source: int, target: int, dtype: torch.dtype, device: torch.device) -> tuple[torch.Tensor]:
        key = (self, source, target, dtype, device)
        if key in _matrices_on_devices:
            matrix = _matrices_on_devices[key]
            if matrix.is_cuda and torch.cuda.is_current_stream_capturing():
                _read_by_graphs[key] = matrix
            return (matrix,)
        with torch.inference_mode(False):
            matrix = self.matrix(source, target).to(dtype).to(device)  # not every device has float64
        # Large ones would pin memory for what a copy costs little of; tracers hand out stand-ins (a
        # subclass), which must not outlive the trace.
        if matrix.numel() <= 2**20 and type(matrix) is torch.Tensor:
            while len(_matrices_on_devices) >= 64:
                _matrices_on_devices.pop(next(iter(_matrices_on_devices)), None)
            _matrices_on_devices[key] = matrix
        return (matrix,)

    # Tracers call it and keep the outcome as a constant: a method, since PyTorch 2.11 cannot pass a kernel to a
    # function marked so; in a tuple, since all tensors from a function marked so would go by one name (2.14).
    # This is all that torch.compiler.assume_constant_result does, but for importing the compiler: 1.7 seconds.
    _matrix_on._dynamo_marked_constant = True  # type: ignore[attr-defined]


_Key: TypeAlias = tuple[Kernel, int, int, torch.dtype, torch.device]
_matrices_on_devices: dict[_Key, torch.Tensor] = {}
# A CUDA graph knows the address of what it reads, which must not be given to another tensor: these are kept for good.
_read_by_graphs: dict[_Key, torch.Tensor] = {}


# Built by numpy, so that nothing of torch's surroundings (default device, inference mode, fake
# tensors while tracing) can get into a cache. Two caches bound the memory: the small matrices take
# 128 MB at most, and only the last few large ones stay.
@lru_cache(maxsize=256)
def _small_matrix(kernel: Kernel, source: int, target: int) -> Matrix:
    return kernel._build(source, target)


@lru_cache(maxsize=8)
def _large_matrix(kernel: Kernel, source: int, target: int) -> Matrix:
    return kernel._build(source, target)


@dataclass(frozen=True)
class WhittakerShannon(Kernel):
    """The perfect kernel: projection on the band-limited signals S_N that N samples determine.

    * ``"symmetric"``: S_N = span{cos(pi k x), k < N}, the natural band of a signal that does not
      wrap (half-sample symmetric, the basis of the DCT-II); even and odd N alike. Resampling to the
      same size is the identity.
    * ``"periodic"``: S_N = span{exp(2 pi i k x), |k| < N/2}, for signals on a circle or torus. For
      even N the Nyquist bin is ambiguous on a cell-centred grid, so it is not in S_N, and even
      resampling to the same size removes it.

    >>> WhittakerShannon().matrix(3, 3)
    tensor([[1., 0., 0.],
            [0., 1., 0.],
            [0., 0., 1.]], dtype=torch.float64)
    """

    boundary: Boundary = "symmetric"
    exact: ClassVar[bool] = True
    name: ClassVar[str] = "perfect"

    def __post_init__(self) -> None:
        if self.boundary not in ("symmetric", "periodic"):
            raise unknown_name("boundary", self.boundary, ("symmetric", "periodic"))

    def band(self, size: int) -> int:
        """The dimension of S_N for N = `size`."""
        return size if self.boundary == "symmetric" else 2 * ((size - 1) // 2) + 1

    def modes(self, size: int, count: int | None = None) -> Matrix:
        """The first `count` orthogonal modes of S_N sampled on N = `size` cells, as columns.

        Ordered from low to high frequency; every mode has root mean square 1 on its own grid.
        """
        count = self.band(size) if count is None else count
        mode = np.arange(count, dtype=np.int64)[None, :]
        odd = 2 * np.arange(size, dtype=np.int64)[:, None] + 1
        # Angles are reduced as whole numbers first: a cosine of a large angle loses digits.
        if self.boundary == "symmetric":
            values: Matrix = np.cos(np.pi / (2 * size) * (mode * odd % (4 * size)))
        else:
            frequency = (mode + 1) // 2
            angle = np.pi / size * (frequency * odd % (2 * size))
            values = np.where(mode % 2 == 1, np.cos(angle), np.sin(angle))
            values[:, 0] = 1.0
        values[:, 1:] *= np.sqrt(2.0)
        return values

    def keeps(self, size: int) -> bool:
        """Whether resampling from `size` to `size` samples is the identity: unless periodic and even."""
        return self.band(size) == size

    def _build(self, source: int, target: int) -> Matrix:
        if source == target and self.keeps(source):
            return np.eye(source)
        shared = min(self.band(source), self.band(target))
        matrix: Matrix = self.modes(target, shared) @ (self.modes(source, shared).T / source)
        return matrix


class _WindowKernel(Kernel):
    """A kernel h(t) of finite radius, t in cells of the coarser grid, mirrored at the borders.

    Rows are normalised to sum to 1, so that constants pass unchanged at every size.
    """

    boundary: ClassVar[Boundary] = "symmetric"

    @property
    @abstractmethod
    def _radius(self) -> float:
        """Where the profile is cut off."""

    @abstractmethod
    def _profile(self, t: Matrix) -> Matrix:
        """h(t)."""

    def _build(self, source: int, target: int) -> Matrix:
        if source == target:
            return np.eye(source)
        coarser = min(source, target)
        reach = int(np.ceil(self._radius * source / coarser)) + 1
        if target * (2 * reach + 1) > 2**25:
            raise ArrnError(f"{self} is too wide to go from {source} samples to {target}: give it less width")
        row = np.arange(target, dtype=np.int64)[:, None]
        nearest = (2 * row + 1) * source // (2 * target)
        column = nearest + np.arange(-reach, reach + 1, dtype=np.int64)[None, :]
        # Whole numbers keep the distance exact: t = +-radius is then inside or outside on both sides.
        t = ((2 * row + 1) * source - (2 * column + 1) * target) * coarser / (2 * source * target)
        weight = np.where(np.abs(t) <= self._radius, self._profile(t), 0.0)
        folded = column % (2 * source)
        folded = np.where(folded < source, folded, 2 * source - 1 - folded)
        matrix = np.zeros((target, source))
        np.add.at(matrix, (np.broadcast_to(row, folded.shape), folded), weight)
        if not matrix.sum(axis=1).all():
            raise ArrnError(f"{self} is too narrow to reach from {source} samples to {target}: give it more width")
        normalised: Matrix = matrix / matrix.sum(axis=1, keepdims=True)
        return normalised


def _check(owner: str, name: str, value: float, least: float, most: float = _WIDEST) -> None:
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not (number and least <= value <= most):
        got = f"{value!r:.40}" if not isinstance(value, int) or abs(value) < 2**64 else "a larger number"
        raise ArrnError(f"{owner}: {name} must be a number from {least:g} to {most:g}, got {got}")


@dataclass(frozen=True)
class KaiserSinc(_WindowKernel):
    """The fair kernel: a sinc cut off by a Kaiser window after `zero_crossings` cells on each side.

    Symmetric borders; constants are preserved exactly, means only nearly.
    """

    zero_crossings: int = 6
    beta: float = 14.7697
    name: ClassVar[str] = "fair"

    def __post_init__(self) -> None:
        _check("KaiserSinc", "zero_crossings", self.zero_crossings, 1)
        _check("KaiserSinc", "beta", self.beta, 1e-3, 500)  # the window of a larger one overflows

    @property
    def _radius(self) -> float:
        return float(self.zero_crossings)

    def _profile(self, t: Matrix) -> Matrix:
        inside = np.clip(1.0 - (t / self.zero_crossings) ** 2, 0.0, None)
        profile: Matrix = np.sinc(t) * np.i0(self.beta * np.sqrt(inside)) / np.i0(self.beta)
        return profile


@dataclass(frozen=True)
class TruncatedGaussian(_WindowKernel):
    """The poor kernel: a Gaussian of width `sigma` cut off at `radius`, in cells of the coarser grid.

    Symmetric borders; constants are preserved exactly, means only roughly. This kernel is cheap, and its bands leak.
    """

    sigma: float = 0.5
    radius: float = 1.0
    name: ClassVar[str] = "poor"

    def __post_init__(self) -> None:
        _check("TruncatedGaussian", "sigma", self.sigma, 1e-3)
        # Half a cell is the farthest that a sample can be from the nearest coarser one.
        _check("TruncatedGaussian", "radius", self.radius, 0.5)

    @property
    def _radius(self) -> float:
        return self.radius

    def _profile(self, t: Matrix) -> Matrix:
        profile: Matrix = np.exp(-0.5 * (t / self.sigma) ** 2)
        return profile


_KERNELS: dict[str, type[WhittakerShannon | KaiserSinc | TruncatedGaussian]] = {
    "perfect": WhittakerShannon,
    "fair": KaiserSinc,
    "poor": TruncatedGaussian,
}


KernelLike: TypeAlias = str | Kernel | Mapping[str, Any]
"""What users may write for a kernel: its name, the kernel itself, or its `kernel_options`."""


def kernel(name: KernelLike, **parameters: Any) -> Kernel:
    """The kernel with a name: ``"perfect"``, ``"fair"`` or ``"poor"``.

    Instead of a name this function takes a kernel, which it returns as it is, or the options from `kernel_options`,
    from which it builds the same kernel again; `parameters` replace some of these options.

    >>> kernel("perfect")
    WhittakerShannon(boundary='symmetric')
    >>> kernel("poor", sigma=0.7)
    TruncatedGaussian(sigma=0.7, radius=1.0)
    """
    if isinstance(name, Kernel):
        if parameters:
            raise ArrnError(f"{name} is a kernel already and takes no further {', '.join(parameters)}")
        return name
    if isinstance(name, Mapping):
        if "name" not in name:
            raise ArrnError(f"a kernel's options need its name, such as {{'name': 'perfect'}}; got {dict(name)!r}")
        return kernel(**{**name, **parameters})
    if not isinstance(name, str) or name not in _KERNELS:
        raise unknown_name("kernel", name, _KERNELS)
    try:
        return _KERNELS[name](**parameters)
    except TypeError:
        allowed = ", ".join(field.name for field in fields(_KERNELS[name]))
        raise ArrnError(f"the {name!r} kernel takes {allowed}; got {parameters!r}") from None


def kernel_options(value: Kernel) -> dict[str, Any]:
    """A kernel as plain data; ``kernel(options)`` builds the same kernel again.

    >>> kernel_options(kernel("fair"))
    {'name': 'fair', 'zero_crossings': 6, 'beta': 14.7697}
    """
    cls = _KERNELS.get(value.name)
    if cls is None or type(value) is not cls:
        raise ArrnError(f"{value!r} is not one of arrn's kernels, so it cannot be written to a file")
    return {"name": value.name} | {field.name: getattr(value, field.name) for field in fields(cls)}
