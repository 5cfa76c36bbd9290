"""Resampling written as an ONNX graph: by matrices of cosines, or by transforms for lines too long for a matrix.

With a perfect kernel the graph computes them from the sizes that it finds when it runs, so a file takes inputs of any
size. Angles are reduced as whole numbers before the cosine, which keeps float32 exact enough (`Kernel.matrix` says the
same in float64). Matrices of other kernels are constants, for two sizes that are known.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from arrn.deploy.onnx_graph import Graph
from arrn.signal.grid import Grid
from arrn.signal.kernels import Kernel, WhittakerShannon
from arrn.signal.operators import axes_to_resample
from arrn.signal.resample import LARGEST_MATRIX, too_long_for_matrices


class Complex(NamedTuple):
    """The names of a real and an imaginary part."""

    real: str
    imaginary: str


def takes_any_size(kernel: Kernel) -> bool:
    """Whether the graph itself can compute the matrices of a kernel, for any two sizes.

    >>> takes_any_size(WhittakerShannon())
    True
    """
    return type(kernel) is WhittakerShannon


def resample_between(graph: Graph, x: str, source: Grid, target: Grid, kernel: Kernel) -> str:
    """From one known grid to another, as networks resample between their levels.

    Args:
        graph: where the nodes go.
        x: a value of shape (batch, channels, *source).
        source, target: the grids.
        kernel: the smoothing kernel.

    Returns:
        A value of shape (batch, channels, *target).
    """
    ndim = len(source)
    by_transform = too_long_for_matrices(source, target, kernel)
    for axis in axes_to_resample(kernel, source, target):
        if by_transform:
            assert isinstance(kernel, WhittakerShannon)
            x = _transform_axis(graph, x, axis, ndim, graph.scalar(source[axis]), graph.scalar(target[axis]), kernel)
        else:
            matrix = kernel.matrix(source[axis], target[axis]).float().numpy()
            if axis == ndim - 1:  # stored as it is multiplied, once
                x = graph.op("MatMul", x, graph.constant(matrix.T.copy()))
            else:
                x = _apply(graph, x, graph.constant(matrix), axis, ndim)
    return x


def resample_to(graph: Graph, x: str, target: str, ndim: int, kernel: WhittakerShannon) -> str:
    """From whatever grid `x` is on to one that is computed too.

    Along axes that have the size already nothing runs. Lines of one axis go by transforms where their matrix would have
    more entries than those of networks do (`LARGEST_MATRIX`).

    Args:
        graph: where the nodes go.
        x: a value of shape (batch, channels, *any).
        target: a value of shape (ndim,), whole numbers.
        ndim: axes of space.
        kernel: the perfect kernel.

    Returns:
        A value of shape (batch, channels, *target).
    """
    shape = graph.op("Shape", x)
    for axis in range(ndim):
        n = graph.op("Gather", shape, graph.scalar(2 + axis))
        m = graph.op("Gather", target, graph.scalar(axis))
        changes = graph.op("Not", graph.op("Equal", n, m))
        if kernel.boundary == "periodic":  # on an even grid the Nyquist bin goes
            even = graph.op("Equal", graph.op("Mod", n, graph.scalar(2)), graph.scalar(0))
            changes = graph.op("Or", changes, even)
        x = _when(graph, changes, x, axis, ndim, n, m, kernel)
    return x


def _when(graph: Graph, changes: str, x: str, axis: int, ndim: int, n: str, m: str, kernel: WhittakerShannon) -> str:
    def by_matrix(inner: Graph) -> list[str]:
        return [_apply(inner, x, _matrix(inner, n, m, kernel), axis, ndim)]

    def by_transform(inner: Graph) -> list[str]:
        return [_transform_axis(inner, x, axis, ndim, n, m, kernel)]

    def either(inner: Graph) -> list[str]:
        if ndim > 1:
            return by_matrix(inner)
        long = inner.op("Greater", inner.op("Mul", n, m), inner.scalar(LARGEST_MATRIX))
        return inner.choose(long, by_transform, by_matrix)

    (answer,) = graph.choose(changes, either, lambda inner: [x])
    return answer


def _apply(graph: Graph, x: str, matrix: str, axis: int, ndim: int) -> str:
    """The (target, source) matrix along one axis of space."""
    if axis == ndim - 1:
        return graph.op("MatMul", x, graph.op("Transpose", matrix, perm=[1, 0]))
    if axis == ndim - 2:
        return graph.op("MatMul", matrix, x)
    order = [0, 1, 3, 2, 4]  # depth, which changes places with height
    turned = graph.op("MatMul", matrix, graph.op("Transpose", x, perm=order))
    return graph.op("Transpose", turned, perm=order)


def _to_float(graph: Graph, x: str) -> str:
    return graph.op("Cast", x, to=1)


def _ratio(graph: Graph, number: float, by: str) -> str:
    return graph.op("Div", graph.constant(np.float32(number)), _to_float(graph, by))


def _shared_modes(graph: Graph, n: str, m: str, kernel: WhittakerShannon) -> str:
    """How many frequencies k = 0, 1, ... both grids hold."""
    least = graph.op("Min", n, m)
    if kernel.boundary == "symmetric":
        return least
    one = graph.scalar(1)
    half = graph.op("Div", graph.op("Sub", least, one), graph.scalar(2))
    return graph.op("Add", half, one)


def _mode_weights(graph: Graph, n: str, count: str) -> str:
    """1/n for k = 0, and 2/n for the other modes."""
    zero, one = graph.scalar(0), graph.scalar(1)
    k = graph.op("Range", zero, count, one)
    return graph.op(
        "Div", _to_float(graph, graph.op("Min", graph.op("Add", k, one), graph.scalar(2))), _to_float(graph, n)
    )


def _matrix(graph: Graph, n: str, m: str, kernel: WhittakerShannon) -> str:
    """The (m, n) matrix of the perfect kernel, from sizes that are computed."""
    count = _shared_modes(graph, n, m, kernel)
    weights = graph.op("Unsqueeze", _mode_weights(graph, n, count), graph.whole(1))
    before, after = _modes(graph, n, count, kernel), _modes(graph, m, count, kernel)
    products = [
        graph.op("MatMul", graph.op("Transpose", high, perm=[1, 0]), graph.op("Mul", weights, low))
        for low, high in zip(before, after, strict=True)
    ]
    return products[0] if len(products) == 1 else graph.op("Add", *products)


def _modes(graph: Graph, size: str, count: str, kernel: WhittakerShannon) -> list[str]:
    """Cosines (and for periodic signals sines) of the first frequencies on a grid, each of shape (count, size)."""
    zero, one, two = (graph.scalar(n) for n in (0, 1, 2))
    k = graph.op("Unsqueeze", graph.op("Range", zero, count, one), graph.whole(1))
    odd = graph.op("Range", one, graph.op("Mul", two, size), two)
    turns = 4 if kernel.boundary == "symmetric" else 2
    phase = graph.op("Mod", graph.op("Mul", k, odd), graph.op("Mul", graph.scalar(turns), size))
    angle = graph.op("Mul", _to_float(graph, phase), _ratio(graph, 2 * math.pi / turns, size))
    return [graph.op("Cos", angle)] if turns == 4 else [graph.op("Cos", angle), graph.op("Sin", angle)]


def _transform_axis(graph: Graph, x: str, axis: int, ndim: int, n: str, m: str, kernel: WhittakerShannon) -> str:
    """Along one axis, from n samples to m, by Fourier transforms."""
    if axis == ndim - 1:
        return _transform_lines(graph, x, n, m, kernel)
    order = list(range(ndim + 2))
    order[2 + axis], order[-1] = order[-1], order[2 + axis]
    lines = _transform_lines(graph, graph.op("Transpose", x, perm=order), n, m, kernel)
    return graph.op("Transpose", lines, perm=order)


def _transform_lines(graph: Graph, x: str, n: str, m: str, kernel: WhittakerShannon) -> str:
    """The last axis from n samples to m: its lowest coefficients, with half a cell of phase taken off and put on."""
    count = _shared_modes(graph, n, m, kernel)
    symmetric = kernel.boundary == "symmetric"
    # The half-sample symmetric extension has period 2 n; the real parts of its first half are the cosine series.
    before, after = (graph.op("Mul", graph.scalar(2), size) if symmetric else size for size in (n, m))
    k = graph.op("Range", graph.scalar(0), count, graph.scalar(1))
    coefficients = _times(graph, _chirp_z(graph, Complex(x, ""), n, count, before, -1), _turn(graph, k, before, -1))
    weights = _mode_weights(graph, n, count)
    real, imaginary = (graph.op("Mul", part, weights) for part in coefficients)
    weighted = Complex(real, "" if symmetric else imaginary)
    return _chirp_z(graph, _times(graph, weighted, _turn(graph, k, after, 1)), count, m, after, 1).real


def _turn(graph: Graph, whole: str, period: str, sign: int) -> Complex:
    """exp(sign pi i q / period) for whole numbers q."""
    phase = graph.op("Mod", whole, graph.op("Mul", graph.scalar(2), period))
    angle = graph.op("Mul", _to_float(graph, phase), _ratio(graph, math.pi, period))
    sine = graph.op("Sin", angle)
    return Complex(graph.op("Cos", angle), sine if sign > 0 else graph.op("Neg", sine))


def _times(graph: Graph, a: Complex, b: Complex) -> Complex:
    """The product of two complex numbers; the first may be real."""
    real, imaginary = graph.op("Mul", a.real, b.real), graph.op("Mul", a.real, b.imaginary)
    if not a.imaginary:
        return Complex(real, imaginary)
    return Complex(
        graph.op("Sub", real, graph.op("Mul", a.imaginary, b.imaginary)),
        graph.op("Add", imaginary, graph.op("Mul", a.imaginary, b.real)),
    )


def _chirp_z(graph: Graph, x: Complex, given: str, wanted: str, period: str, sign: int) -> Complex:
    """sum over i of x_i exp(2 pi i sign i k / period), for k < wanted: Bluestein's transform.

    It is a convolution with a chirp, by transforms whose length is a power of two. ONNX Runtime's own transforms of
    other lengths make the chirp in float32, and are wrong in the third digit at 16,000 samples.
    """
    zero, one = graph.scalar(0), graph.scalar(1)

    def chirp(whole: str, direction: int) -> Complex:
        return _turn(graph, graph.op("Mul", whole, whole), period, direction)

    length = _power_of_two(graph, graph.op("Sub", graph.op("Add", given, wanted), one))
    places = graph.op("Range", zero, length, one)
    # Differences k - i from 0 up to the wanted, and from the end downwards the negative ones; squared, signs go.
    distance = graph.op("Where", graph.op("Less", places, wanted), places, graph.op("Sub", length, places))
    turned = _times(graph, x, chirp(graph.op("Range", zero, given, one), sign))
    spectrum = _times(graph, _fourier(graph, turned, length), _fourier(graph, chirp(distance, -sign), length))
    convolved = _fourier(graph, spectrum, length, inverse=1)
    kept = Complex(*(_first(graph, part, wanted) for part in convolved))
    return _times(graph, kept, chirp(graph.op("Range", zero, wanted, one), sign))


def _power_of_two(graph: Graph, least: str) -> str:
    powers = graph.constant(2 ** np.arange(40, dtype=np.int64))
    below = graph.op("Cast", graph.op("Less", powers, least), to=7)
    return graph.op("Gather", powers, graph.op("ReduceSum", below, keepdims=0))


def _first(graph: Graph, x: str, count: str) -> str:
    ends = graph.op("Unsqueeze", count, graph.whole(0))
    return graph.op("Slice", x, graph.whole(0), ends, graph.whole(-1))


def _fourier(graph: Graph, x: Complex, length: str, inverse: int = 0) -> Complex:
    """The transform of the last axis, filled up with zeros to `length`."""
    last = graph.whole(-1)
    parts = [graph.op("Unsqueeze", part, last) for part in x]
    answer = graph.op("DFT", graph.op("Concat", *parts, axis=-1), length, inverse=inverse)
    real, imaginary = graph.ops("Split", answer, count=2, axis=-1, num_outputs=2)
    return Complex(graph.op("Squeeze", real, last), graph.op("Squeeze", imaginary, last))
