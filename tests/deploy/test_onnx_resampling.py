"""Resampling in an ONNX graph is the library's, at any sizes."""

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from arrn.signal import WhittakerShannon, resample

pytest.importorskip("onnxscript")
ort = pytest.importorskip("onnxruntime")

from arrn.deploy.onnx_graph import Graph  # noqa: E402
from arrn.deploy.onnx_program import resampling_file  # noqa: E402
from arrn.deploy.onnx_resampling import resample_between, takes_any_size  # noqa: E402

BOUNDARIES = ["symmetric", "periodic"]


@cache
def session(ndim: int, boundary: str) -> Any:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    return ort.InferenceSession(resampling_file(ndim, WhittakerShannon(boundary)).SerializeToString(), options)


def error(ndim: int, boundary: str, source: tuple[int, ...], target: tuple[int, ...]) -> float:
    x = torch.randn(2, 2, *source)
    (found,) = session(ndim, boundary).run(None, {"signal": x.numpy(), "grid": np.array(target)})
    exact = resample(x.double(), target, WhittakerShannon(boundary))
    assert found.shape == tuple(exact.shape)
    return float((torch.from_numpy(found) - exact).abs().max())


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_sizes_in_one_to_three_dimensions(data: st.DataObject) -> None:
    ndim = data.draw(st.integers(1, 3))
    sides = st.integers(1, {1: 300, 2: 60, 3: 14}[ndim])
    source, target = (tuple(data.draw(sides) for _ in range(ndim)) for _ in range(2))
    assert error(ndim, data.draw(st.sampled_from(BOUNDARIES)), source, target) < 1e-5


@pytest.mark.parametrize(("source", "target"), [((1000, 9), (64, 8)), ((1000, 7), (1000, 5)), ((3, 500), (4, 999))])
def test_sides_of_a_thousand_pixels(source: tuple[int, ...], target: tuple[int, ...]) -> None:
    assert error(2, "symmetric", source, target) < 1e-5


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize(("source", "target"), [(8000, 3999), (3001, 8000), (22050, 8000)])
def test_long_lines_by_transforms(boundary: str, source: int, target: int) -> None:
    assert error(1, boundary, (source,), (target,)) < 2e-5


@pytest.mark.parametrize(("source", "target"), [((1500, 3), (750, 2)), ((2, 1200), (2, 1100)), ((6, 5), (3, 5))])
def test_known_sizes(source: tuple[int, ...], target: tuple[int, ...]) -> None:
    graph, x = Graph(), torch.randn(1, 2, *source)
    answer = resample_between(graph, "x", source, target, WhittakerShannon())
    model = graph.model({"x": ("float32", [1, 2, *source])}, {"y": ("float32", [1, 2, *target])}, [answer])
    (found,) = ort.InferenceSession(model.SerializeToString()).run(None, {"x": x.numpy()})
    assert float((torch.from_numpy(found) - resample(x.double(), target)).abs().max()) < 1e-5


def test_an_input_on_the_grid_passes_as_it_is() -> None:
    x = torch.randn(1, 3, 9, 8).numpy()
    (found,) = session(2, "symmetric").run(None, {"signal": x, "grid": np.array([9, 8])})
    assert np.array_equal(found, x)


def test_matrices_of_a_kernel_of_ones_own_are_not_computed() -> None:
    class Other(WhittakerShannon):
        pass

    assert not takes_any_size(Other())
