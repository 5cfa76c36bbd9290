"""Skipping levels changes nothing, whichever way the network runs: fused, in half precision, exported."""

import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch

import arrn
from arrn.nn import ARRN
from arrn.nn.arrn import AdaptedARRN
from arrn.signal import resample
from arrn.testing import awaken_norms
from strategies import relative_error

TOLERANCES = {
    "float64": 1e-12,
    "float32": 1e-5,
    "fused, float64": 1e-12,
    "fused, float32": 1e-5,
    "torch.export, float64": 1e-12,
    "torch.export, float32": 1e-5,
    "ONNX, float32": 1e-5,
    "float16": 1e-2,
    "fused, float16": 1e-2,
    "bfloat16": 5e-2,
    "fused, bfloat16": 5e-2,
    "autocast to bfloat16": 5e-2,
}
"""The largest difference between skipping levels and running all of them, relative to the answer, by the way to run."""

# Odd sizes, ratios that are no whole numbers, rectangles, 1 to 3 axes, every kind of block, every form.
NETWORKS = {
    "sound": {"ndim": 1, "sizes": (24, 13, 7)},
    "image": {"sizes": ((12, 10), (7, 7), (5, 3)), "depth": 2},
    "periodic image": {"sizes": (13, 8), "kernel": {"name": "perfect", "boundary": "periodic"}},
    "zero-preserving image": {"sizes": (12, 7), "block": "zero_preserving"},
    "difference form": {"sizes": (12, 8, 5), "form": "difference"},
    "volume": {"ndim": 3, "sizes": ((8, 7, 6), (5, 4, 4))},
    "gated": {"name": "arrn_pyramid", "sizes": ((12, 10), (7, 7), (5, 3)), "width": 8},
    "tied": {"name": "arrn_mini", "sizes": (13, 8, 5), "width": 4, "repeats": (1, 1)},
}
# Exporting takes a second or more each.
EXPORTED = {
    "torch.export": ["sound", "image", "volume", "gated", "tied"],
    "ONNX": ["image", "difference form", "gated", "tied"],
}
DTYPES = {"float64": torch.float64, "float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}

Run = Callable[[torch.Tensor], torch.Tensor]


@cache
def network(name: str) -> ARRN:
    """In float64, with norms as after training; every level matters."""
    torch.manual_seed(3)
    options = {"name": "arrn", "num_classes": 5} | NETWORKS[name]
    if options["name"] == "arrn":
        options = {"features": (8, 10, 12)[: len(options["sizes"])], "expansion": 2, "depth": 1} | options
    model = arrn.create_model(**options).double()
    awaken_norms(model, torch.randn(8, 3, *model.grids[0], dtype=torch.float64), 3)
    return model.eval()


def as_it_runs(way: str, adapted: AdaptedARRN, x: torch.Tensor, folder: Path) -> Run:
    """The adapted network the way that it is asked for."""
    if way.startswith("fused"):
        return adapted.fuse()
    if way.startswith("torch.export"):
        return torch.export.export(adapted, (x,)).module()
    if way.startswith("ONNX"):
        runtime = pytest.importorskip("onnxruntime")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the exporter's, of its own insides
            torch.onnx.export(adapted, (x,), folder / "x.onnx", dynamo=True, verbose=False)
        session = runtime.InferenceSession(folder / "x.onnx", providers=["CPUExecutionProvider"])
        return lambda x: torch.from_numpy(session.run(None, {session.get_inputs()[0].name: x.numpy()})[0])
    return adapted


CASES = [
    (way, name)
    for way in TOLERANCES
    for name in NETWORKS
    if name in EXPORTED.get(way.partition(",")[0], NETWORKS.keys())
]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(("way", "name"), CASES)
@torch.no_grad()
def test_skipping_levels_changes_nothing_the_way_a_network_runs(way: str, name: str, tmp_path: Path) -> None:
    if way.startswith("ONNX"):
        pytest.importorskip("onnxscript")
    rounded = way.startswith("autocast")
    dtype = torch.float32 if rounded else DTYPES[way.rpartition(", ")[2]]
    model = network(name)
    own = arrn.create_model(model.config["name"], **model.config["options"]).to(dtype).eval()
    own.load_state_dict(model.state_dict())
    levels = range(1, 2) if way.partition(",")[0] in EXPORTED else range(len(own.grids))
    for level in levels:
        size = tuple(max(1, n - 1) for n in own.grids[level])
        assert own.level(size) == level
        generator = torch.Generator().manual_seed(level)
        x = torch.randn(8, 3, *size, generator=generator, dtype=torch.float64).to(dtype)
        with torch.autocast("cpu", torch.bfloat16, enabled=rounded):
            full = own(x, adapt=False).double()
            run = as_it_runs(way, own.at_resolution(size), x, tmp_path)
            assert relative_error(run(x).double(), full) < TOLERANCES[way]
            assert relative_error(own(x).double(), full) < TOLERANCES[way]


@pytest.mark.parametrize("name", NETWORKS)
@torch.no_grad()
def test_the_levels_that_are_skipped_matter(name: str) -> None:
    model = network(name)
    detailed = torch.randn(8, 3, *model.grids[0], dtype=torch.float64)
    answer = model(detailed)
    for grid in model.grids[1:]:
        assert relative_error(model(resample(detailed, grid, model.kernel)), answer) > max(TOLERANCES.values())
