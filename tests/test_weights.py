"""Published weights: halved without harm, checksummed, loadable by name; those in weights/ are what they claim."""

import hashlib
import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest
import torch
from safetensors.torch import load_file

import arrn
from arrn.runs import evaluate_run
from small_runs import train_tiny, write_easy_set

ROOT = Path(__file__).parents[1]
PUBLISHED = sorted(path.parent for path in (ROOT / "weights").glob("*/config.json"))


def load_tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("publish_weights", ROOT / "tools" / "publish_weights.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def check_sums(folder: Path) -> None:
    for line in (folder / "SHA256SUMS").read_text().splitlines():
        expected, name = line.split("  ")
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == expected, name


def test_a_run_becomes_a_folder_in_half_precision_that_answers_the_same(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")  # tables come with the figures
    easy = write_easy_set(tmp_path / "easy")
    run, out = train_tiny(easy, tmp_path / "run"), tmp_path / "weights"
    report = load_tool().publish(run, out, None, "cpu", resolutions=(8, 4))
    check_sums(out)
    assert {path.name for path in out.iterdir()} == {
        "model.safetensors",
        "config.json",
        "recipe.toml",
        "accuracy.json",
        "README.md",
        "SHA256SUMS",
    }
    stored = load_file(out / "model.safetensors").values()
    assert {tensor.dtype for tensor in stored if tensor.is_floating_point()} == {torch.float16}
    whole = evaluate_run(run, (8, 4), device="cpu")
    assert [r["accuracy"] for r in report.results] == pytest.approx([r["accuracy"] for r in whole.results], abs=0.12)
    model, original = arrn.create_model("arrn", pretrained=out).eval(), arrn.load(run)
    x = torch.randn(2, 3, 8, 8)
    assert next(model.parameters()).dtype == torch.float32
    torch.testing.assert_close(model(x), original(x), rtol=0.05, atol=0.05)
    assert "| adapted, exact |" in (out / "README.md").read_text()


@pytest.mark.parametrize("folder", PUBLISHED, ids=lambda folder: folder.name)
def test_published_weights_are_whole_small_and_load_by_name(folder: Path) -> None:
    check_sums(folder)
    assert sum(path.stat().st_size for path in folder.iterdir()) < 17e6
    assert json.loads((folder / "accuracy.json").read_text())["results"]
    arrn.create_model(folder.name, pretrained=folder)


def test_arrn_small_knows_the_images_that_ship_with_the_package() -> None:
    report = evaluate_run(
        ROOT / "weights" / "arrn_small", (32, 16, 8), policies=("exact",), adapt=(True,), dataset="sample", device="cpu"
    )
    # 83.0, 77.8 and 63.2 of the 10,000; the 1,000 in the package are stored with loss.
    assert [result["accuracy"] for result in report.results] == pytest.approx([0.814, 0.740, 0.610], abs=0.004)


def test_halving_the_weights_of_arrn_cifar10_did_not_change_its_accuracy() -> None:
    halved = json.loads((ROOT / "weights" / "arrn_cifar10" / "accuracy.json").read_text())["results"]
    run = json.loads((ROOT / "results" / "cifar10" / "arrn_cifar10-seed0.json").read_text())["report"]["results"]
    assert [(r["resolution"], r["adapt"], r["policy"]) for r in halved] == [
        (r["resolution"], r["adapt"], r["policy"]) for r in run
    ]
    assert [r["accuracy"] for r in halved] == pytest.approx([r["accuracy"] for r in run], abs=0.001)
