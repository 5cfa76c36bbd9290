"""A rehearsal of the plan: every run builds, trains and is evaluated, on a few images of its data set's size."""

import functools
import shutil
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
import torch

from arrn.datasets import facts_of
from arrn.experiments.costs import list_multiply_adds
from arrn.experiments.jobs import Job, carry_out
from arrn.experiments.plan import PlannedRun, plan, resolutions_for, settings_of
from arrn.experiments.results import read_result
from arrn.models import create_model, model_options
from arrn.runs import Machine
from small_runs import write_easy_set

PAPER = ("cifar10", "cifar100", "tinyimagenet", "imagenette96", "imagenette224")
# What is rehearsed beyond CIFAR-10, of which everything is; larger images take a CPU minutes.
REHEARSED = (
    "arrn_cifar100",
    "arrn_tinyimagenet",
    "arrn_stl10",
    "arrn_imagenette224",
    "*-poor",
    "resnet18",
    "resnet18*-random-resolution",
    "resnet18_switchable",
    "arrn_resnet18",
    "arrn_mobilenet_v3_small",
    "arrn_mini",
)


def runs_of(dataset: str) -> list[PlannedRun]:
    runs = plan(dataset)
    if dataset == "cifar10":
        return runs
    return [run for run in runs if any(fnmatchcase(run.name, pattern) for pattern in REHEARSED)]


@pytest.mark.parametrize("dataset", ["tinyimagenet", "imagenette224"])
def test_every_network_can_be_built_at_the_size_of_its_data_set(dataset: str) -> None:
    size = facts_of(dataset).size
    for run in plan(dataset):
        if run.model.startswith("arrn_") and "resnet" in run.model + run.name:  # tests of transplants build these
            continue
        options = {"size": size} if "size" in model_options(run.model) else {}
        with torch.device("meta"):
            model = create_model(run.model, **{**options, **run.options})
            costs = {entry["multiply_adds"] for entry in list_multiply_adds(model, [size])}
        assert min(costs) > 0, run.name


@pytest.fixture(scope="module")
def few_images(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int, int], Path]:
    """Writes a folder of so many images of a size, once."""
    return functools.cache(lambda count, n: write_easy_set(tmp_path_factory.mktemp(f"{count}at{n}"), count, 3, n))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dataset", "run"), [(d, run) for d in PAPER for run in runs_of(d)], ids=lambda value: getattr(value, "name", value)
)
def test_every_run_trains_and_is_evaluated(
    dataset: str, run: PlannedRun, few_images: Callable[[int, int], Path], tmp_path: Path
) -> None:
    size = facts_of(dataset).size
    # Of fewer, some resolutions would have one image in a batch, or none.
    images = few_images(64 if "frontier" in run.experiments else 16, size)
    settings = settings_of(run, dataset, data=str(images), epochs=1)
    job = Job(run.name, settings, tmp_path / "runs", tmp_path / "results", run.experiments, machine=Machine("cpu"))
    result = read_result(carry_out(job))
    assert job.state() == "finished"
    shutil.rmtree(job.out)  # a gigabyte of each of the largest
    assert sorted(result.accuracies(), reverse=True) == list(resolutions_for(size, dataset))
    approximate = run.options.get("kernel", "perfect") != "perfect"
    assert bool(result.own_kernel) == approximate
    if result.adaptive and not approximate:
        assert max(each["discrepancy"] for each in result.discrepancies) < 1e-4
