"""Exported folders: what is in them, that their files answer as PyTorch does, and what is refused."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import arrn
from arrn.deploy.export import TOLERANCE, export_network, noise
from arrn.deploy.parts import Entrance, _entrance, take_apart
from arrn.metadata import Metadata
from arrn.runtime import OnnxPredictor, read_manifest
from arrn.runtime.levels import level_of
from arrn.testing import awaken_norms

pytest.importorskip("onnxscript")
ort = pytest.importorskip("onnxruntime")


def saved(path: Path, **options: Any) -> Any:
    """A small network that behaves like a trained one, saved."""
    torch.manual_seed(0)
    ladder = {"sizes": (9, 4), "features": (4, 6), "depth": 1, "expansion": 2}
    named = {"name": "arrn", "num_classes": 4} | ({} if "name" in options else ladder) | options
    model = arrn.create_model(named.pop("name"), **named)
    awaken_norms(model, torch.randn(6, model.in_channels, *model.grids[0]))
    channels = model.in_channels
    names = tuple(f"class {n}" for n in range(model.num_classes))
    metadata = Metadata(mean=(0.45,) * channels, std=(0.2,) * channels, class_names=names)
    arrn.save(model, path, metadata)
    return arrn.load(path).eval()


def largest_difference(model: Any, folder: Path, sizes: list[tuple[int, ...]]) -> float:
    """Between any-size.onnx and the whole network."""
    session = ort.InferenceSession(str(folder / "any-size.onnx"))
    parts = take_apart(model, model.metadata)
    worst = 0.0
    for size in sizes:
        stored = noise(parts, 2, size, seed=sum(size))
        found, level = session.run(None, {"signal": stored})
        assert level == model.level(size)
        with torch.no_grad():
            # Logarithms, so that answers that all classes share would not hide an error.
            expected = model(parts.normalise(torch.from_numpy(stored))).log_softmax(1).numpy()
        worst = max(worst, float(np.abs(np.log(found) - expected).max()))
    return worst


@pytest.fixture(scope="module")
def two_levels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network of two levels and one evaluation, with its export in "out"."""
    folder = tmp_path_factory.mktemp("two")
    saved(folder / "saved", sizes=(9, 4), features=(16, 24), expansion=4)
    results = [{"resolution": n, "adapt": True, "policy": "exact", "accuracy": n / 20, "total": 99} for n in (9, 7)]
    report = {"model": "arrn", "dataset": "invented", "results": results, "provenance": {"torch": "2"}}
    (folder / "saved/evaluation.json").write_text(json.dumps(report))
    exported = export_network(folder / "saved", folder / "out")
    assert exported.refused == ()
    return folder


NETWORKS: dict[str, dict[str, Any]] = {
    "paper": {"sizes": (12, 7, 4), "features": (4, 6, 8)},
    "rectangle": {"sizes": ((12, 10), (7, 10), (5, 4)), "features": (4, 6, 8), "policy": "cheap"},
    "difference": {"block": "dense", "form": "difference"},
    "context": {"block": "zero_preserving", "kernel": {"name": "perfect", "boundary": "periodic"}},
    "tied": {"name": "arrn_mini", "sizes": (12, 6, 3), "width": 4, "repeats": (1, 1)},
    "pyramid": {"name": "arrn_pyramid", "sizes": (12, 6, 3), "width": 4},
    "sound": {"ndim": 1, "sizes": (60, 30), "in_channels": 1},
    "volume": {"ndim": 3, "sizes": (6, 3), "in_channels": 1},
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", NETWORKS)
def test_one_file_answers_at_any_size(kind: str, tmp_path: Path) -> None:
    model = saved(tmp_path / "saved", **NETWORKS[kind])
    exported = export_network(tmp_path / "saved", tmp_path / "out")
    assert exported.refused == ()
    grids = model.grids
    larger, smaller = tuple(2 * n + 1 for n in grids[0]), tuple(max(1, n - 2) for n in grids[-1])
    sizes = [*grids, larger, smaller, *(tuple(max(1, n - 1 - k) for k, n in enumerate(grid)) for grid in grids)]
    assert largest_difference(model, tmp_path / "out", sizes) < 2e-4
    # What was measured at export is in the manifest, and it is the largest that is allowed at most.
    files = [*(level.exported for level in exported.manifest.levels), exported.manifest.all_levels]
    assert all(file is not None and 0 <= (file.difference or 0) <= TOLERANCE for file in files)


def test_small_inputs_and_large_ones_answer_as_the_network(two_levels: Path) -> None:
    model = arrn.load(two_levels / "saved").eval()
    assert largest_difference(model, two_levels / "out", [(9, 9), (4, 4), (20, 3), (5, 2), (1, 1)]) < 2e-4


def test_the_manifest_tells_what_a_reader_needs(two_levels: Path) -> None:
    document = json.loads((two_levels / "out/manifest.json").read_text())
    assert document["format"] == "arrn-export"
    assert document["normalisation"]["mean"] == [0.45] * 3
    assert document["level_by_size"]["exact"] == [
        {"from": 1, "to": 4, "level": "4"},
        {"from": 5, "to": None, "level": "9"},
    ]
    assert document["accuracy"]["provenance"] == {"torch": "2"}
    manifest = read_manifest(two_levels / "out")
    assert [level.accuracy for level in manifest.levels] == [0.45, None]
    assert manifest.grids == ((9, 9), (4, 4))
    assert manifest.class_names == tuple(f"class {n}" for n in range(4))
    costs = [level.multiply_adds for level in manifest.levels]
    assert costs == sorted(costs, reverse=True)
    present = {path.name for path in (two_levels / "out").iterdir()}
    assert present == {file.file for file in manifest.files} | {"manifest.json"}


def test_levels_that_are_skipped_do_not_run(two_levels: Path, tmp_path: Path) -> None:

    def convolutions(size: int) -> int:
        options = ort.SessionOptions()
        options.enable_profiling = True
        options.profile_file_prefix = str(tmp_path / f"profile{size}")
        # Without fusions, so that every convolution is counted as one.
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = ort.InferenceSession(str(two_levels / "out/any-size.onnx"), options)
        session.run(None, {"signal": np.zeros((1, 3, size, size), np.float32)})
        events = json.loads(Path(session.end_profiling()).read_text())
        kinds = Counter(event["args"]["op_name"] for event in events if "op_name" in event.get("args", {}))
        return kinds["Conv"]

    base = 1 + 3  # the entrance; expansion, depthwise convolution and contraction
    level = 3 + 1  # the same, and its projection
    assert [convolutions(size) for size in (3, 4, 5, 9)] == [base, base, base + level, base + level]


def test_weights_are_stored_once(two_levels: Path) -> None:
    largest = (two_levels / "out/level-9.onnx").stat().st_size
    assert (two_levels / "out/any-size.onnx").stat().st_size < 1.1 * largest


@pytest.mark.slow
def test_some_levels(tmp_path: Path) -> None:
    model = saved(tmp_path / "saved", sizes=(12, 7, 4), features=(4, 6, 8))
    exported = export_network(tmp_path / "saved", tmp_path / "out", levels=["4", "12"])
    assert exported.manifest.grids == ((12, 12), (4, 4))
    session = ort.InferenceSession(str(tmp_path / "out/any-size.onnx"))
    parts = take_apart(model, model.metadata)
    for size in ((7, 7), (4, 3)):
        stored = noise(parts, 1, size)
        found, level = session.run(None, {"signal": stored})
        assert level == [0, 2][level_of(exported.manifest.grids, size, "exact")]
        # By the level above it is the same: skipping is exact.
        assert np.abs(found - parts.answer(parts.normalise(torch.from_numpy(stored))).numpy()).max() < TOLERANCE


@pytest.mark.slow
def test_another_kernel_takes_its_grids_alone(tmp_path: Path) -> None:
    saved(tmp_path / "saved", kernel="fair")
    exported = export_network(tmp_path / "saved", tmp_path / "out")
    assert not exported.manifest.any_size
    assert exported.manifest.all_levels is None
    predictor = OnnxPredictor(tmp_path / "out")
    assert predictor(np.zeros((9, 9, 3), np.uint8)).level == (9, 9)
    with pytest.raises(arrn.ArrnError, match="takes inputs of 9 or 4 only"):
        predictor(np.zeros((7, 7, 3), np.uint8))


def test_a_file_that_differs_is_removed(two_levels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def without_shift(*arguments: Any) -> Entrance:
        right = _entrance(*arguments)
        return Entrance(right.weight, 0 * right.shift)

    monkeypatch.setattr("arrn.deploy.parts._entrance", without_shift)
    said: list[str] = []
    with pytest.raises(arrn.ArrnError, match=r"nothing was exported: level-4.onnx was removed: its answers differ"):
        export_network(two_levels / "saved", tmp_path / "out", levels=["4"], say=said.append)
    assert "more than 0.0001" in said[0]
    assert list(tmp_path.iterdir()) == []


def test_accuracies_name_the_level_and_its_cost(two_levels: Path, tmp_path: Path) -> None:
    def results(folder: Path) -> list[tuple[int, str]]:
        document = json.loads((folder / "manifest.json").read_text())
        costs = {str(level["grid"][0]): level["multiply_adds"] for level in document["levels"]}
        assert all(each["multiply_adds"] == costs[each["level"]] for each in document["accuracy"]["results"])
        return [(each["resolution"], each["level"]) for each in document["accuracy"]["results"]]

    assert results(two_levels / "out") == [(9, "9"), (7, "9")]
    # Another level answers to these sizes where the highest is not exported.
    export_network(two_levels / "saved", tmp_path / "out", levels=["4"])
    assert results(tmp_path / "out") == []
