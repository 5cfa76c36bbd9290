"""Images of differing sizes, 8 to 64 px, in one folder: trained and evaluated by level."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

import arrn
from arrn.data import Batch
from arrn.nn import ARRN
from arrn.nn.network import entry_grid
from arrn.runs import Machine, RunSettings, evaluate_run, load_network, run_training
from arrn.training import Recipe, TrainingStep
from small_runs import COLOURS, TINY, coloured, timeless_log, write_mixed_folder

SIZES = [(8, 8), (11, 17), (16, 16), (24, 24), (32, 32), (40, 64), (64, 64), (9, 8), (64, 10)]
LADDER = {"sizes": [64, 32, 16, 8], "features": [4, 4, 6, 8], "depth": 1, "expansion": 2, "dropout": 0.0}
# What "exact" makes of them: the lowest grid that holds the image along both axes.
GRIDS = {8: 1, 16: 2, 32: 3, 64: 3}  # of each nine images


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[tuple[tuple[int, ...], int]], Counter[str]]:
    """The run, the batches as they came, and how many samples each level's block saw."""
    root = tmp_path_factory.mktemp("mixed")
    data = write_mixed_folder(root / "data", SIZES, per_class=18)
    batches: list[tuple[tuple[int, ...], int]] = []
    seen: Counter[str] = Counter()
    whole = TrainingStep.__call__

    def noted(self: TrainingStep, batch: Batch, number: int) -> None:
        batches.append((tuple(batch.images.shape[2:]), len(batch.labels)))
        if number == 0:
            assert isinstance(self.model, ARRN)
            for name, block in [*((str(r.size[0]), r.block) for r in self.model.levels), ("base", self.model.base)]:
                block.register_forward_hook(lambda _, inputs, __, name=name: seen.update({name: len(inputs[0])}))
        whole(self, batch, number)

    recipe = Recipe(epochs=4, batch_size=6, learning_rate=0.01)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(TrainingStep, "__call__", noted)
        run_training(RunSettings(str(data), "arrn", LADDER, recipe), root / "run", Machine("cpu"))
    return root / "run", batches, seen


def test_batches_are_of_one_level_each(trained: Any) -> None:
    _, batches, _ = trained
    by_grid: Counter[tuple[int, ...]] = Counter()
    for grid, count in batches:
        by_grid[grid] += count
    # Two rounds of the nine sizes, three classes, four epochs.
    assert by_grid == {(n, n): 4 * 3 * 2 * count for n, count in GRIDS.items()}


def test_each_levels_block_sees_only_the_samples_that_enter_at_it_or_above(trained: Any) -> None:
    _, _, seen = trained
    epochs = 4 * 3 * 2
    assert seen == {
        "64": epochs * GRIDS[64],
        "32": epochs * (GRIDS[64] + GRIDS[32]),
        "16": epochs * (GRIDS[64] + GRIDS[32] + GRIDS[16]),
        "base": epochs * 9,
    }


def test_it_learns(trained: Any) -> None:
    log = timeless_log(trained[0])
    assert log[-1]["loss"] < 0.7 * log[0]["loss"]


def test_accuracy_is_reported_by_level(trained: Any) -> None:
    report = evaluate_run(trained[0], policies=["exact"], device="cpu")
    as_they_come = [result for result in report.results if result["resolution"] is None]
    assert [result["adapt"] for result in as_they_come] == [True, False]
    adapted, full = as_they_come
    assert [(level["grid"], level["total"]) for level in adapted["levels"]] == [
        (str(n), 3 * 2 * GRIDS[n]) for n in sorted(GRIDS, reverse=True)
    ]
    assert sum(level["correct"] for level in adapted["levels"]) == adapted["correct"]
    assert [(level["grid"], level["total"]) for level in full["levels"]] == [("64", 54)]
    assert adapted["total"] == 54
    assert adapted["agreement"] == 1.0


def test_it_answers_each_image_as_if_it_were_alone(trained: Any) -> None:
    """A straightforward loop over the files, one image at a time, gives the same counts."""
    model, _, normalisation = load_network(trained[0], torch.device("cpu"))
    result = evaluate_run(trained[0], policies=["exact"], adapt=[True], device="cpu").results[0]
    correct: Counter[str] = Counter()
    with torch.no_grad():
        for label in range(3):
            for number in range(18):
                pixels = torch.from_numpy(coloured(*SIZES[number % 9], label, 1000 + number)).permute(2, 0, 1)[None]
                grid = entry_grid(model, tuple(pixels.shape[2:]))
                correct[str(grid[0])] += int(model(normalisation(pixels)).argmax()) == sorted(COLOURS).index(
                    COLOURS[label]
                )
    assert {level["grid"]: level["correct"] for level in result["levels"]} == dict(correct)


def test_images_above_the_top_grid_are_smoothed_down_to_it(trained: Any, tmp_path: Path) -> None:
    data = write_mixed_folder(tmp_path / "large", [(80, 70), (100, 65)], per_class=2)
    report = evaluate_run(trained[0], dataset=str(data), policies=["exact", "cheap"], device="cpu")
    for result in report.results:
        assert [level["grid"] for level in result["levels"]] == ["64"] or result["resolution"] is not None
    assert report.results[0]["total"] == 6


def test_a_network_for_any_size_trains_on_them_too(tmp_path: Path) -> None:
    data = write_mixed_folder(tmp_path / "data", [(8, 8), (6, 12)], per_class=2)
    options = {"features": 4, "modes": 2, "depth": 1, "size": 8}
    recipe = Recipe(epochs=1, batch_size=4)
    run_training(RunSettings(str(data), "fourier_operator", options, recipe), tmp_path / "run", Machine("cpu"))
    report = evaluate_run(tmp_path / "run", [8, 4], device="cpu")
    assert [(r["resolution"], r["adapt"], r["policy"], r["total"]) for r in report.results] == [
        (8, None, None, 6),
        (4, None, None, 6),
    ]
    assert arrn.load(tmp_path / "run").sizes == (8,)


def test_two_processes_train_on_them_too(tmp_path: Path) -> None:
    """Batches on the lower grid have no gradients for the level above it, in either process."""
    data = write_mixed_folder(tmp_path / "data", [(8, 8), (4, 4)], per_class=4)
    tiny = [word for name, value in TINY.items() for word in ("--option", f"{name}={json.dumps(value)}")]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = ["-m", "arrn", "train", str(data), "--model", "arrn", *tiny, "--out", str(tmp_path / "run")]
    done = subprocess.run(
        [*torchrun, *command, "--epochs", "2", "--batch-size", "6", "--device", "cpu"],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert [entry["epoch"] for entry in timeless_log(tmp_path / "run")] == [1, 2]
