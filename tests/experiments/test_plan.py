"""The experiments as data: every run has its own name, and can be built."""

from dataclasses import asdict

import pytest
import torch

from arrn.datasets import DATASETS, REPRODUCED
from arrn.errors import ArrnError
from arrn.experiments.costs import list_multiply_adds
from arrn.experiments.plan import choose, plan, resolutions_for, settings_of
from arrn.models import DESIGNS, create_model, model_options
from arrn.training import FRONTIER, recipe_for


@pytest.mark.parametrize("dataset", REPRODUCED)
def test_names_are_unique_and_options_are_those_of_the_model_and_the_recipe(dataset: str) -> None:
    runs = plan(dataset)
    assert len({run.name for run in runs}) == len(runs)
    for run in runs:
        assert set(run.options) <= set(model_options(run.model)), run.name
        recipe_for(dataset).with_options(run.recipe)
    assert DATASETS[dataset].size == DESIGNS[DATASETS[dataset].design].sizes[0]


def test_each_experiment_has_the_papers_networks() -> None:
    runs = plan("cifar10")
    robust = [run.name for run in choose(runs, "robustness")]
    assert robust[:5] == [
        "arrn_cifar10",
        "arrn_cifar10-no-dropout",
        "resnet18",
        "mobilenet_v3_large",
        "efficientnet_v2_s",
    ]
    assert len(robust) == 12
    assert [run.name for run in choose(runs, "efficiency")] == robust
    general = [run.name for run in choose(runs, "generalization")]
    assert len(general) == 14
    assert all(f"arrn_{name}" in general for name in general if not name.startswith("arrn_"))
    ablated = choose(runs, "ablation")
    assert {(run.options["kernel"], run.options.get("dropout")) for run in ablated} == {
        (kernel, p) for kernel in ("perfect", "fair", "poor") for p in (None, 0.0)
    }
    assert len(choose(runs, "all")) == len(runs) == 12 + 6 + 4 + 7 + 12


def test_the_rivals_learn_at_lower_resolutions() -> None:
    rivals = {run.name: run for run in choose(plan("cifar10"), "rivals")}
    assert rivals["specialist-8"].recipe == {"resolutions": [8]}
    assert rivals["specialist-16"].recipe == {"resolutions": [16]}
    assert rivals["resnet18_small_stem-random-resolution"].recipe == {"resolutions": [32, 24, 16, 12, 8, 6, 4]}
    assert rivals["resnet18_switchable"].options == {"sizes": [32, 24, 16, 12, 8, 6, 4]}
    assert "specialist-24" in {run.name for run in plan("stl10")}


@pytest.mark.parametrize(("dataset", "sizes"), [("cifar10", [32, 16, 8]), ("tinyimagenet", [64, 32, 16])])
def test_the_frontier_is_one_recipe_at_the_sizes_of_the_data_set(dataset: str, sizes: list[int]) -> None:
    runs = {run.name: run for run in choose(plan(dataset), "frontier")}
    assert runs["arrn_medium"].options == runs["arrn_mini"].options == {"sizes": sizes}
    recipes = {name: recipe_for(dataset).with_options(run.recipe) for name, run in runs.items()}
    low = recipes["arrn_medium"]
    assert [resolution * 32 // sizes[0] for resolution, _ in low.shares] == [32, 24, 16, 12, 8, 6, 4]
    assert [share for _, share in low.shares] == [share for _, share in FRONTIER.shares]
    assert low.cutmix_from == sizes[1]
    for name, recipe in recipes.items():
        at_one_size = name.startswith("native") or name == "resnet18_small_stem-frontier"
        assert bool(recipe.shares) != at_one_size, name
        changed = {"shares", "cutmix_from", "resolutions"}
        assert {f: getattr(recipe, f) for f in asdict(recipe) if f not in changed} == {
            f: getattr(FRONTIER, f) for f in asdict(FRONTIER) if f not in changed
        }


def test_rivals_of_the_frontier_cost_what_the_designs_do() -> None:
    runs = {run.name: run for run in choose(plan("cifar10"), "frontier")}

    def cost(name: str, resolution: int) -> float:
        with torch.device("meta"):
            model = create_model(runs[name].model, **runs[name].options)
            return max(entry["multiply_adds"] for entry in list_multiply_adds(model, [resolution]))

    for design, resolution, width in (
        ("arrn_medium", 32, "-54"),
        ("arrn_medium", 16, ""),
        ("arrn_medium", 8, "-96"),
        ("arrn_mini", 32, "-18"),
        ("arrn_mini", 16, "-21"),
        ("arrn_mini", 8, "-32"),
    ):
        ours = min(
            entry["multiply_adds"]
            for entry in list_multiply_adds(create_model(runs[design].model, **runs[design].options), [resolution])
        )
        assert cost(f"resnet18_switchable{width}-frontier", resolution) / ours == pytest.approx(1, abs=0.03)


@pytest.mark.parametrize(("dataset", "design"), [("fsdd", "arrn_audio_small"), ("adrenalmnist3d", "arrn_volume_small")])
def test_sound_and_volumes_have_the_arrn_with_and_without_dropout(dataset: str, design: str) -> None:
    assert [run.name for run in plan(dataset)] == [design, f"{design}-no-dropout"]
    assert set(resolutions_for(DATASETS[dataset].size, dataset)) <= set(DESIGNS[design].sizes)


def test_transplants_have_a_dropout_of_their_own() -> None:
    runs = [run for run in choose(plan("cifar10"), "generalization") if run.name.startswith("arrn_")]
    assert len(runs) == 7
    assert all(0 < run.options["dropout"] < DESIGNS["arrn_cifar10"].dropout for run in runs)


@pytest.mark.parametrize(
    ("dataset", "first"),
    [
        ("cifar100", ["arrn_cifar100", "arrn_cifar100-no-dropout", "arrn_cifar100-fair"]),
        ("tinyimagenet", ["arrn_tinyimagenet", "arrn_tinyimagenet-no-dropout", "resnet18", "mobilenet_v3_large"]),
        ("imagenette224", ["arrn_imagenette224", "arrn_imagenette224-no-dropout", "resnet18"]),
    ],
)
def test_what_tells_most_about_a_data_set_comes_first(dataset: str, first: list[str]) -> None:
    assert [run.name for run in plan(dataset)][: len(first)] == first


def test_images_as_large_as_imagenets_have_no_rivals_with_a_stem_for_small_ones() -> None:
    names = {run.name for run in plan("imagenette224")}
    assert "resnet18-random-resolution" in names
    assert not [name for name in names if "small_stem" in name or "switchable" in name or "specialist" in name]
    (random,) = choose(plan("imagenette224"), "rivals")
    assert random.recipe == {"resolutions": [224, 168, 112, 84, 56, 42, 28]}


def test_all_networks_on_tinyimagenet_are_trained_for_as_many_epochs_as_its_arrn() -> None:
    runs = [run for run in plan("tinyimagenet") if "frontier" not in run.experiments]
    assert {settings_of(run, "tinyimagenet").recipe.epochs for run in runs} == {40}
    assert {settings_of(run, "cifar100").recipe.epochs for run in plan("cifar100")} == {100}


def test_shorter_runs_warm_up_for_as_large_a_part() -> None:
    (run,) = choose(plan("cifar10"), "frontier", ["arrn_mini"])
    assert settings_of(run, "cifar10", epochs=50).recipe.warm_up == FRONTIER.warm_up / 2


def test_runs_are_chosen_by_name_or_pattern() -> None:
    runs = plan("sample")
    assert [run.name for run in choose(runs, "all", ["specialist-*", "resnet18"])] == [
        "resnet18",
        "specialist-8",
        "specialist-16",
    ]
    with pytest.raises(ArrnError, match="unknown run of rivals: 'resnet18_switchabel'; did you mean"):
        choose(runs, "rivals", ["resnet18_switchabel"])
    with pytest.raises(ArrnError, match="unknown experiment 'robust'; did you mean 'robustness'"):
        choose(runs, "robust")
    with pytest.raises(ArrnError, match="unknown data set of the experiments 'cifar'"):
        plan("cifar")


@pytest.mark.parametrize(
    ("size", "resolutions"),
    [
        (32, (32, 28, 24, 20, 16, 12, 8, 6, 4)),
        (64, (64, 56, 48, 40, 32, 24, 16, 12, 8)),
        (96, (96, 80, 64, 48, 32, 24, 16, 12)),
        (224, (224, 160, 112, 80, 56, 40, 28)),
    ],
)
def test_each_size_has_its_resolutions(size: int, resolutions: tuple[int, ...]) -> None:
    assert resolutions_for(size) == resolutions
