"""The predictor over an exported folder: the answers of the one over the network, in any number of threads."""

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from PIL import Image

import arrn
from arrn.deploy import export_network
from arrn.metadata import Metadata
from arrn.runtime import OnnxPredictor
from arrn.testing import awaken_norms
from pictures import encoded, picture

pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network of three levels in "saved", and its export in "out"."""
    place = tmp_path_factory.mktemp("export")
    torch.manual_seed(0)
    model = arrn.create_model("arrn", sizes=(16, 8, 4), features=(4, 6, 8), depth=1, num_classes=3)
    awaken_norms(model, torch.randn(6, 3, 16, 16))
    arrn.save(model, place / "saved", Metadata((0.4,) * 3, (0.25,) * 3, class_names=("ant", "bee", "cat")))
    export_network(place / "saved", place / "out")
    return place


def inputs() -> list[Any]:
    """Inputs of every kind, of all levels, in no order."""
    sizes = [(16, 16), (3, 5), (40, 7), (8, 8), (4, 4), (9, 30), (1, 1), (8, 8)]
    arrays = [picture(*size, seed=seed) for seed, size in enumerate(sizes)]
    return [*arrays[:4], Image.fromarray(arrays[4]), encoded(arrays[5]), *arrays[6:]]


def as_pairs(answers: Any) -> list[tuple[Any, ...]]:
    return [(answer.name, answer.level, answer.size, answer.multiply_adds) for answer in answers]


@pytest.mark.parametrize("policy", ["exact", "cheap"])
def test_its_answers_are_those_of_the_network(folder: Path, policy: Any) -> None:
    expected = arrn.Predictor(folder / "saved", device="cpu", policy=policy)(inputs(), top=3)
    found = OnnxPredictor(folder / "out", policy=policy)(inputs(), top=3)
    assert as_pairs(found) == as_pairs(expected)
    for one, other in zip(found, expected, strict=True):
        assert dict(one.top) == pytest.approx(dict(other.top), abs=1e-5)


def test_no_file_is_opened_within_the_time_of_an_answer(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first batch of mixed sizes needs the file that resamples, too."""
    predictor = OnnxPredictor(folder / "out")
    run = predictor.run

    def run_with_what_is_open(level: int, signals: Any) -> Any:
        before = set(predictor._sessions)
        answers = run(level, signals)
        assert set(predictor._sessions) == before
        return answers

    monkeypatch.setattr(predictor, "run", run_with_what_is_open)
    assert len(predictor([picture(16, 16), picture(12, 9), picture(4, 4)])) == 3


def test_threads_share_one(folder: Path) -> None:
    predictor = OnnxPredictor(folder / "out", threads=1)
    alone = [OnnxPredictor(folder / "out", threads=1)(each).top for each in inputs()]
    with ThreadPoolExecutor(8) as pool:
        many = list(pool.map(lambda _: predictor(inputs()), range(16)))
    for answers in many:
        assert [answer.top[0][0] for answer in answers] == [top[0][0] for top in alone]
        assert [answer.probability for answer in answers] == pytest.approx([top[0][1] for top in alone], abs=1e-6)


def test_files_that_are_not_what_the_manifest_says_are_refused(folder: Path, tmp_path: Path) -> None:
    exported = export_network(folder / "saved", tmp_path / "out", levels=["4"])
    file = tmp_path / "out" / exported.manifest.levels[0].exported.file
    right = file.read_bytes()

    def error() -> str:
        with pytest.raises(arrn.ArrnError) as caught:
            OnnxPredictor(tmp_path / "out")(np.zeros((4, 4, 3), np.uint8))
        return str(caught.value)

    file.write_bytes(right[:-1] + b"x")
    assert f"{file} is damaged: its SHA-256 is" in error()
    file.unlink()
    assert error() == f"{file} is missing"
    manifest = tmp_path / "out/manifest.json"
    document = json.loads(manifest.read_text())
    document["levels"][0]["exported"]["file"] = "../saved/model.safetensors"
    manifest.write_text(json.dumps(document))
    assert "a file's name must be letters, digits, dots and dashes without any folder" in error()


def test_weights_in_other_files_are_not_read(folder: Path, tmp_path: Path) -> None:
    exported = export_network(folder / "saved", tmp_path / "out", levels=["4"])
    file = tmp_path / "out" / exported.manifest.levels[0].exported.file
    onnx.save(onnx.load(file), file, save_as_external_data=True, location="weights.bin", size_threshold=0)
    manifest = tmp_path / "out/manifest.json"
    document = json.loads(manifest.read_text())
    content = file.read_bytes()
    document["levels"][0]["exported"] |= {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
    manifest.write_text(json.dumps(document))
    with pytest.raises(arrn.ArrnError, match="keeps its weights in other files, which are not read"):
        OnnxPredictor(tmp_path / "out")(np.zeros((4, 4, 3), np.uint8))
