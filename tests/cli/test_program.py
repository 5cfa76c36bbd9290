"""The commands as programs, one after the other, as a user would run them."""

import json
from pathlib import Path

from commands import program
from small_runs import TINY, write_mixed_folder


def test_train_evaluate_predict(tmp_path: Path) -> None:
    data, run = write_mixed_folder(tmp_path / "data", [(8, 8), (5, 4)], per_class=4), tmp_path / "run"
    options = [word for name, value in TINY.items() for word in ("--option", f"{name}={value}")]
    quick = ["--epochs", "2", "--batch-size", "4", "--device", "cpu"]
    trained = program("train", data, "--model", "arrn", *options, *quick, "--out", run)
    assert trained.stderr == ""
    assert trained.stdout.count("epoch ") == 2
    assert "\x1b" not in trained.stdout  # plain lines: this is no terminal
    evaluated = program("evaluate", run, "--resolutions", "16,8,4", "--device", "cpu")
    assert evaluated.stderr == "no image is larger than 8: resolution 16 measures them at their own size\n"
    assert len(json.loads((run / "evaluation.json").read_text())["results"]) == 3 * 2 * 2
    assert (run / "evaluation.png").read_bytes().startswith(b"\x89PNG")
    images = sorted((data / "test").rglob("*.png"))
    predicted = program("predict", run, *images, "--device", "cpu")
    assert predicted.stderr == ""
    assert predicted.stdout.count(".png") == len(images) == 12
