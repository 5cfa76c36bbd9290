"""The batch size of a run: checked against the memory before the first step, or chosen to fit it."""

import copy
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from arrn.data import IMAGE, Augmentation, Normalisation
from arrn.errors import ArrnError
from arrn.models import create_model
from arrn.runs import Machine, RunSettings, read_settings, run_training
from arrn.runs.batch_size import check_batch, choose_batch, usual_batch
from arrn.runs.trial_step import StepCost, is_surely_small, try_steps
from arrn.training import Recipe, TrainingStep
from commands import QUIET
from small_runs import TINY, said_by, tiny_settings, weights, write_mixed_folder

WIDE = {"sizes": [32, 16, 8], "features": [32, 64, 128], "expansion": 4}
GIGABYTE = 1e9


def make_step(model: torch.nn.Module) -> TrainingStep:
    normalisation = Normalisation((0.5,) * 3, (0.5,) * 3)
    return TrainingStep(model, Augmentation(normalisation, True, 0.125, False, 0.0), Recipe(), 1, 0)


def cost_of(free: float = 8 * GIGABYTE, most: int = 16, **options: object) -> StepCost:
    model = create_model("arrn", **({**WIDE, "dropout": 0.4} | options))
    return try_steps(model, make_step, IMAGE, (32, 32), free=free, most=most)


def test_a_trial_foretells_the_memory_of_larger_batches() -> None:
    foretold = cost_of(most=8)
    measured = cost_of(most=16)
    assert foretold.tried < measured.tried
    assert foretold.memory(16) == pytest.approx(measured.memory(16), rel=0.1)
    assert measured.memory(16) > 16 * 32 * 32 * 128 * 4  # one hidden signal at the top alone
    assert measured.seconds > 0


def test_dropout_takes_less_memory_and_wider_networks_more() -> None:
    assert cost_of(dropout=0.5).each < 0.85 * cost_of(dropout=0).each
    assert cost_of(features=[64, 128, 256]).each > 1.7 * cost_of().each


def test_a_trial_does_not_change_the_network_that_it_copies() -> None:
    model = create_model("arrn", **WIDE, dropout=0.4)
    before = copy.deepcopy(model.state_dict())
    try_steps(copy.deepcopy(model), make_step, IMAGE, (32, 32), free=GIGABYTE, most=8)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize(
    "recipe",
    [
        Recipe(resolutions=(32, 24, 16, 12, 8, 6, 4)),
        Recipe(resolutions=(32, 16, 8), shares=((32, 0.8), (16, 0.12), (8, 0.08)), views=2, optimizer="sgd"),
    ],
)
def test_a_trial_has_images_enough_for_every_resolution_of_a_switchable_network(recipe: Recipe) -> None:
    def with_recipe(network: torch.nn.Module) -> TrainingStep:
        return TrainingStep(network, Augmentation(Normalisation((0.5,) * 3, (0.5,) * 3)), recipe, 1, 0)

    model = create_model("resnet18_switchable", sizes=recipe.resolutions, width=4)
    cost = try_steps(model, with_recipe, IMAGE, (32, 32), free=8 * GIGABYTE, most=128)
    assert 16 < cost.tried < 128


def test_a_trial_that_does_not_fit_is_refused_not_killed() -> None:
    with pytest.raises(ArrnError, match=r"a training step on 4 images at 32 takes more than .*, and 0.005 GB are free"):
        cost_of(free=5e6)


def test_small_work_needs_no_trial() -> None:
    tiny, wide = create_model("arrn", **TINY), create_model("arrn", **WIDE)
    assert is_surely_small(tiny, 4, IMAGE, (8, 8), 1, GIGABYTE)
    assert not is_surely_small(wide, 128, IMAGE, (32, 32), 1, GIGABYTE)


def test_a_batch_is_chosen_by_samples_and_by_memory() -> None:
    said: list[str] = []
    cost = StepCost(fixed=1e8, each=1e7, seconds=0.01, tried=8)
    assert choose_batch(cost, 10 * GIGABYTE, 300, said.append) == 32
    assert choose_batch(cost, 1 * GIGABYTE, 5000, said.append) == 64
    assert choose_batch(None, 1 * GIGABYTE, 5000, said.append) == 128
    assert said == [
        "batch size 32: a step takes about 0.4 GB of memory, and 10.0 GB are free (an eighth of the 300 "
        "training samples)",
        "batch size 64: a step takes about 0.7 GB of memory, and 1.0 GB are free (128 would take 1.4 GB)",
        "batch size 128, the usual size",
    ]
    with pytest.raises(ArrnError, match=r"a step on 2 samples takes about 0.1 GB of memory, and 0.1 GB are free"):
        choose_batch(cost, 0.1 * GIGABYTE, 300, said.append)
    assert usual_batch(3) == 8


def test_a_batch_that_does_not_fit_is_refused_with_one_that_does() -> None:
    said: list[str] = []
    cost = StepCost(fixed=0, each=1e8, seconds=0.01, tried=8)
    check_batch(64, cost, 10 * GIGABYTE, said.append)
    assert said == []
    check_batch(90, cost, 10 * GIGABYTE, said.append)
    assert "nearly all of the 10.0 GB that are free; if the step does not fit, take --batch-size 64 (6.4 GB)" in said[0]
    with pytest.raises(ArrnError, match=r"batch of 128 takes about 12.8 GB of memory, and 10.0 GB are free: take -"):
        check_batch(128, cost, 10 * GIGABYTE, said.append)


def test_what_was_chosen_is_written_down_and_stays(tmp_path: Path, easy: Path) -> None:
    settings = tiny_settings(easy, batch_size="auto")
    said = said_by(settings, tmp_path / "run", Machine("cpu"))
    assert "batch size 8, an eighth of the 18 training samples" in said
    kept = read_settings(tmp_path / "run")
    assert kept is not None
    assert kept.recipe.batch_size == 8
    assert "batch_size = 8\n" in (tmp_path / "run" / "recipe.toml").read_text()
    assert said_by(settings, tmp_path / "run", resume=True) == [f"the run in {tmp_path / 'run'} is finished"]
    run_training(tiny_settings(easy, batch_size=8), tmp_path / "same", Machine("cpu"))
    assert weights(tmp_path / "same") == weights(tmp_path / "run")


def test_a_run_is_refused_before_its_first_step(tmp_path: Path, easy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arrn.runs.batch_size.free_memory", lambda device: 60e6)
    settings = RunSettings(str(easy), "arrn", WIDE, Recipe(epochs=1, batch_size=18))
    with pytest.raises(ArrnError, match=r"a step with a batch of 18 takes about .* take --batch-size"):
        run_training(settings, tmp_path / "run", Machine("cpu"))
    assert not (tmp_path / "run").exists()


LARGE = ["--model", "arrn", "--option", "sizes=[64,32,16]", "--option", "features=[24,48,96]", "--epochs", "1"]


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is limited as Linux does it")
def test_under_a_real_limit_of_memory_auto_trains_and_too_much_is_told(tmp_path: Path) -> None:
    """Without the check, the second run ends in an allocation that fails, or is killed."""
    root = write_mixed_folder(tmp_path / "set", [(64, 64), (40, 60)], 8)
    limited = """
import resource, sys
import torch, torchvision, arrn.runs, arrn.cli.app  # what is loaded counts too
taken = int(open("/proc/self/statm").read().split()[5]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_DATA, (taken + 400_000_000, resource.RLIM_INFINITY))
from arrn.cli import main
sys.argv = ["arrn", *sys.argv[1:]]
main()
"""

    def train(out: str, *more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", limited, "train", str(root), "--out", str(tmp_path / out), *LARGE, *more]
        return subprocess.run(command, capture_output=True, text=True, env=os.environ | QUIET, check=False)

    chosen = train("auto", "--batch-size", "auto")
    assert chosen.returncode == 0, chosen.stderr
    assert re.search(r"batch size [24]: a step takes about 0\.. GB of memory, and 0\.. GB are free", chosen.stdout)
    refused = train("refused", "--batch-size", "24")
    assert refused.returncode == 2
    assert "a step with a batch of 24 takes about" in refused.stderr
