"""8-bit files: what is kept, what is not, and what the manifest says of each."""

import json
from pathlib import Path

import numpy as np
import pytest

import arrn
from small_runs import coloured

pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")

from arrn.deploy import export_network
from arrn.deploy.quantising import Quantiser, open_quantiser
from arrn.runtime import OnnxPredictor


@pytest.fixture(scope="module")
def quantiser(finished: Path) -> Quantiser:
    return open_quantiser(finished)


@pytest.fixture
def speed(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """How fast 8-bit files seem to be: tests time nothing."""
    chosen = {"speed": 2.0}
    monkeypatch.setattr("arrn.deploy.quantising._compare_speed", lambda *_: chosen["speed"])
    return chosen


def test_a_file_that_is_fast_and_accurate_is_kept(
    finished: Path, quantiser: Quantiser, speed: dict[str, float], tmp_path: Path
) -> None:
    exported = export_network(finished, tmp_path / "out", quantise=quantiser)
    top, base = (level.int8 for level in exported.manifest.levels)
    assert top is not None and base is not None  # noqa: PT018
    assert top.kept is not None
    assert (tmp_path / "out" / top.kept.file).read_bytes()
    assert top.speed == 2.0
    assert (top.samples, top.calibrated) == (9, 18)
    assert top.float_accuracy is not None and abs(top.float_accuracy - (top.accuracy or 0)) <= 0.01  # noqa: PT018
    # It answers inputs of other sizes than the level's grid too, and nearly as the level's own file does.
    inputs = [coloured(size, size + 3, size % 3, size) for size in (5, 8, 13, 20)]
    whole, small = (OnnxPredictor(tmp_path / "out", int8=int8)(inputs) for int8 in (False, True))
    found = [(one.probability, other.probability) for one, other in zip(whole, small, strict=True)]
    assert any(one != other for one, other in found)
    assert all(abs(one - other) < 0.05 for one, other in found)


def test_a_file_that_is_slow_is_not_kept_and_the_manifest_says_why(
    finished: Path, quantiser: Quantiser, speed: dict[str, float], tmp_path: Path
) -> None:
    speed["speed"] = 1.25
    said: list[str] = []
    export_network(finished, tmp_path / "out", levels=["8"], quantise=quantiser, say=said.append)
    assert [path.name for path in tmp_path.glob("out/*int8*")] == []
    document = json.loads((tmp_path / "out/manifest.json").read_text())
    found = document["levels"][0]["int8"]
    assert found["kept"] is None
    assert found["accuracy"] is not None
    assert found["reason"].endswith("1.25 times as fast: it should be 1.3 times as fast at least")
    assert said[-1].startswith("level-8-int8.onnx: not kept: ")
    with pytest.raises(arrn.ArrnError, match="holds no 8-bit files"):
        OnnxPredictor(tmp_path / "out", int8=True)


def test_a_file_that_loses_accuracy_is_not_kept(
    finished: Path, quantiser: Quantiser, speed: dict[str, float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Classes that the float file gets right and the other one does not, by labels that follow what the float file says.
    answers = iter([np.eye(3)[[0] * 9], np.eye(3)[[1] * 9]])
    monkeypatch.setattr("arrn.deploy.quantising._answer", lambda *_: next(answers))
    exported = export_network(finished, tmp_path / "out", levels=["4"], quantise=quantiser)
    found = exported.manifest.levels[0].int8
    assert found is not None
    # A third of the images are of each class.
    assert found.float_accuracy == found.accuracy == pytest.approx(1 / 3)
    answers = iter([np.eye(3)[[n % 3 for n in range(9)]], np.eye(3)[[0] * 9]])
    monkeypatch.setattr("arrn.deploy.quantising._answer", lambda *_: next(answers))
    exported = export_network(finished, tmp_path / "again", levels=["4"], quantise=quantiser)
    found = exported.manifest.levels[0].int8
    assert found is not None
    assert (found.float_accuracy, found.kept) == (1.0, None)
    assert "33.3% right against 100.0% in float32 (9 samples)" in found.reason
    assert "it may lose 1 point of accuracy at most" in found.reason


def test_what_cannot_be_quantised_is_exported_without(
    finished: Path, quantiser: Quantiser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> bytes:
        raise RuntimeError("no range\nof a value")

    monkeypatch.setattr("arrn.deploy.quantising.quantise", fail)
    exported = export_network(finished, tmp_path / "out", levels=["4"], quantise=quantiser)
    found = exported.manifest.levels[0].int8
    assert found is not None
    assert (found.kept, found.accuracy, found.speed, found.reason) == (None, None, None, "it failed: no range")
