"""Exported tied networks: shared weights are stored once, and what lies below open gates does not run."""

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import arrn
from arrn.deploy.export import Exported, export_network
from arrn.deploy.parts import take_apart
from arrn.deploy.quantising import _fold_scales, quantise
from arrn.metadata import Metadata
from arrn.nn import multiply_adds, multiply_adds_of_noise
from arrn.signal import resample
from arrn.signal.grid import format_grid
from arrn.testing import awaken_norms

pytest.importorskip("onnxscript")
onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")

FINE, BLURRED, FLAT = 0, 1, 2  # details of the top level; of the level below alone; none
CONVOLUTIONS = 20  # of arrn_mini's CNN
OWN_CONVOLUTIONS = 4  # of the two blocks that its top level has for itself


def signals(grids: Any, *kinds: int) -> torch.Tensor:
    """Stored numbers on the first grid, of one sample for each kind."""
    fine = torch.randint(0, 256, (1, 3, *grids[0]), generator=torch.Generator().manual_seed(0)).float()
    made = [fine, resample(resample(fine, grids[1]), grids[0]), torch.full_like(fine, 90)]
    return torch.cat([made[kind] for kind in kinds])


@pytest.fixture(scope="module")
def mini(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Exported]:
    """arrn_mini with norms that differ between its levels, and its export."""
    folder = tmp_path_factory.mktemp("mini")
    torch.manual_seed(0)
    model = arrn.create_model("arrn_mini", num_classes=4)
    awaken_norms(model, torch.randn(6, 3, 32, 32))
    arrn.save(model, folder / "saved", Metadata(mean=(0.45,) * 3, std=(0.2,) * 3))
    return arrn.load(folder / "saved").eval(), export_network(folder / "saved", folder / "out")


def differ(model: Any, path: Path, stored: torch.Tensor) -> float:
    """The largest difference of logarithms of probabilities: those that all classes share would not hide an error."""
    found = ort.InferenceSession(str(path)).run(None, {"signal": stored.numpy()})[0]
    with torch.no_grad():
        expected = model(take_apart(model, model.metadata).normalise(stored)).log_softmax(1)
    return float(np.abs(np.log(found) - expected.numpy()).max())


@pytest.mark.parametrize("kinds", [(FINE,), (BLURRED,), (FLAT,), (FINE, FINE), (FINE, BLURRED, FLAT), (FLAT, FINE)])
def test_batches_of_any_kind_answer_as_the_network(mini: tuple[Any, Exported], kinds: tuple[int, ...]) -> None:
    model, exported = mini
    assert exported.refused == ()
    for name in ("any-size", "level-32"):
        assert differ(model, exported.folder / f"{name}.onnx", signals(model.grids, *kinds)) < 2e-4
    for name in ("any-size", "level-16"):
        assert differ(model, exported.folder / f"{name}.onnx", signals(model.grids[1:], *kinds)) < 2e-4


def test_gates_may_be_open_shut_or_between_in_one_batch(mini: tuple[Any, Exported]) -> None:
    model, exported = mini
    fine = signals(model.grids, FINE)
    stored = torch.cat([128 + (fine - 128) / shrunk for shrunk in (1, 4, 16, 32, 64, 128)])
    gates = model.residuals[0]._openness(details(model, stored)).flatten()
    assert gates[0] == 1
    assert ((gates > 0.01) & (gates < 0.99)).any()
    for name in ("any-size", "level-32"):
        assert differ(model, exported.folder / f"{name}.onnx", stored) < 2e-4
        for n in range(len(stored)):
            assert differ(model, exported.folder / f"{name}.onnx", stored[n : n + 1]) < 2e-4


def details(model: Any, stored: torch.Tensor) -> torch.Tensor:
    """What the top level's gate reads."""
    x = take_apart(model, model.metadata).normalise(stored)
    return x - resample(resample(x, model.grids[1]), model.grids[0])


def test_what_lies_below_open_gates_does_not_run(mini: tuple[Any, Exported], tmp_path: Path) -> None:
    model, exported = mini

    def convolutions(name: str, stored: torch.Tensor) -> int:
        options = ort.SessionOptions()
        options.enable_profiling = True
        options.profile_file_prefix = str(tmp_path / "profile")
        # Without fusions, so that every convolution is counted as one.
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = ort.InferenceSession(str(exported.folder / f"{name}.onnx"), options)
        session.run(None, {"signal": stored.numpy()})
        events = json.loads(Path(session.end_profiling()).read_text())
        return Counter(event.get("args", {}).get("op_name") for event in events)["Conv"]

    entrance = projection = 1
    for names, grids in ((("any-size", "level-32"), model.grids), (("any-size", "level-16"), model.grids[1:])):
        levels = len(grids)
        always = entrance + projection * (levels - 1) + OWN_CONVOLUTIONS * (grids == model.grids)
        expected = {
            (FINE,): always + CONVOLUTIONS,
            (FINE, FINE): always + CONVOLUTIONS,
            (BLURRED,): always + 2 * CONVOLUTIONS,
            (FLAT,): always + levels * CONVOLUTIONS,
            (FINE, FLAT): always + levels * CONVOLUTIONS,
        }
        for name in names:
            counts = {kinds: convolutions(name, signals(grids, *kinds)) for kinds in expected}
            assert counts == expected
    assert convolutions("any-size", signals(model.grids[-1:] * 2, FLAT)) == entrance + CONVOLUTIONS


def test_shared_weights_are_stored_once(mini: tuple[Any, Exported]) -> None:
    model, exported = mini
    parameters = sum(parameter.nbytes for parameter in model.parameters())
    files = [exported.manifest.all_levels, *(level.exported for level in exported.manifest.levels)]
    assert all(file is not None and file.bytes < 1.3 * parameters for file in files)


def test_weights_that_half_precision_holds_take_half_the_bytes(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = arrn.create_model("arrn_mini", num_classes=4)
    awaken_norms(model, torch.randn(6, 3, 32, 32))
    arrn.save(model.half(), tmp_path / "saved", Metadata(mean=(0.45,) * 3, std=(0.2,) * 3))
    exported = export_network(tmp_path / "saved", tmp_path / "out")
    every, level = exported.manifest.all_levels, exported.manifest.levels[0].exported
    assert every is not None
    assert level is not None
    assert every.bytes < 0.6 * level.bytes
    assert exported.refused == ()
    x = signals(model.grids, FINE, BLURRED, FLAT)
    assert differ(arrn.load(tmp_path / "saved").float().eval(), tmp_path / "out" / "any-size.onnx", x) < 1e-3
    stored = onnx.load(tmp_path / "out" / "any-size.onnx").graph.initializer
    halves = [tensor for tensor in stored if tensor.data_type == onnx.TensorProto.FLOAT16]
    assert sum(math.prod(tensor.dims) for tensor in halves) > 0.9 * sum(p.numel() for p in model.parameters())


def test_the_manifest_counts_what_runs_for_signals_with_details(mini: tuple[Any, Exported]) -> None:
    model, exported = mini
    for level in exported.manifest.levels:
        cast, shape = model.at_resolution(level.grid), (1, 3, *level.grid)
        assert level.multiply_adds == multiply_adds_of_noise(cast, shape)
        assert (level.multiply_adds < multiply_adds(cast, shape)) == (level.grid != model.grids[-1])
        assert exported.manifest.facts["most_multiply_adds"][format_grid(level.grid)] == multiply_adds(cast, shape)
    predictor = arrn.Predictor(model)
    assert [predictor.cost(n) for n in range(3)] == [level.multiply_adds for level in exported.manifest.levels]


@pytest.mark.parametrize("size", [32, 8])
def test_eight_bit_files_have_no_norms_beside_their_convolutions(
    mini: tuple[Any, Exported], tmp_path: Path, size: int
) -> None:
    model, exported = mini
    path = exported.folder / f"level-{size}.onnx"
    folded = _fold_scales(onnx.load(path))
    kinds = Counter(node.op_type for node in onnx.load(path).graph.node)
    left = Counter(node.op_type for node in folded.graph.node)
    assert {kind: kinds[kind] - left[kind] for kind in kinds if kinds[kind] != left[kind]} == {
        "Mul": CONVOLUTIONS,
        "Add": CONVOLUTIONS,
    }
    onnx.save(folded, tmp_path / "folded.onnx")
    grids = [grid for grid in model.grids if grid[0] <= size] * 2
    stored = signals(grids, FINE, BLURRED, FLAT)
    assert differ(model, tmp_path / "folded.onnx", stored) < 2e-4
    small = quantise(path, [stored.numpy()], f"entrance-{size}")
    # The CNN of the level in 8 bits and, where there are levels below, their shared weights in 32.
    parameters = sum(parameter.nbytes for parameter in model.parameters())
    assert len(small) < (1.4 if size > 8 else 0.4) * parameters
    answers = [ort.InferenceSession(file).run(None, {"signal": stored.numpy()})[0] for file in (small, str(path))]
    assert 0 < np.abs(answers[0] - answers[1]).max() < 0.1


@pytest.mark.slow
def test_other_shapes_of_tied_networks(tmp_path: Path) -> None:
    options = {"sizes": ((12, 10), (6, 5), (3, 3)), "width": 4, "repeats": (1, 1), "own_repeats": (1,), "lift": 1}
    torch.manual_seed(0)
    model = arrn.create_model("arrn_mini", **options, num_classes=4)
    awaken_norms(model, torch.randn(6, 3, 12, 10))
    arrn.save(model, tmp_path / "saved", Metadata(mean=(0.45,) * 3, std=(0.2,) * 3))
    model = arrn.load(tmp_path / "saved").eval()
    export_network(tmp_path / "saved", tmp_path / "out", levels=["12x10", "3"])
    for kinds in ((FINE,), (BLURRED,), (FLAT, FINE)):
        assert differ(model, tmp_path / "out/any-size.onnx", signals(model.grids, *kinds)) < 2e-4
