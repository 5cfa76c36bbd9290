"""From settings and data to the network: options that fit, and those that do not."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

import arrn
from arrn.errors import ArrnError
from arrn.runs import Machine, RunSettings, read_settings, run_training
from arrn.training import Recipe, read_recipe
from small_runs import TINY, said_by, tiny_settings, train_tiny, weights


@pytest.mark.parametrize(
    "options", [{"num_classes": 4}, {"name": "x"}, {"size": "big"}, {"in_channels": 1}, {"ndim": 1}]
)
def test_options_that_do_not_fit_are_refused(easy: Path, tmp_path: Path, options: dict[str, object]) -> None:
    settings = dataclasses.replace(tiny_settings(easy), options=TINY | options)
    with pytest.raises(ArrnError):
        run_training(settings, tmp_path / "run", Machine("cpu"))


@pytest.mark.parametrize("size", ["big", -3, 0, [1, 2, 3], {"a": 1}, 1.5])
def test_a_size_that_means_nothing_is_refused(easy: Path, tmp_path: Path, size: object) -> None:
    settings = dataclasses.replace(tiny_settings(easy), model="fourier_operator", options={"size": size})
    with pytest.raises(ArrnError):
        run_training(settings, tmp_path / "run", Machine("cpu"))


@pytest.mark.parametrize("changes", [{"window": 2.0}, {"sample_rate": 8000}])
def test_settings_of_sound_are_refused_for_images(easy: Path, tmp_path: Path, changes: dict[str, float]) -> None:
    settings = dataclasses.replace(tiny_settings(easy), **changes)
    with pytest.raises(ArrnError, match="holds images"):
        run_training(settings, tmp_path / "run", Machine("cpu"))


def test_a_models_policy_option_is_kept_and_the_recipes_is_used_otherwise(easy: Path, tmp_path: Path) -> None:
    chosen = dataclasses.replace(tiny_settings(easy, epochs=1), options=TINY | {"policy": "cheap"})
    run_training(chosen, tmp_path / "option", Machine("cpu"))
    train_tiny(easy, tmp_path / "recipe", epochs=1, policy="cheap")
    for name in ("option", "recipe"):
        assert arrn.load(tmp_path / name).policy == "cheap"
        assert read_recipe(tmp_path / name / "recipe.toml").policy == "cheap"


def test_a_fixed_network_is_made_for_the_usual_size_and_a_switchable_one_learns_at_each_of_its(
    easy: Path, tmp_path: Path
) -> None:
    small = dataclasses.replace(tiny_settings(easy, epochs=1), model="resnet18_small_stem", options={"width": 2})
    run_training(small, tmp_path / "fixed", Machine("cpu"))
    assert arrn.load(tmp_path / "fixed").sizes == (8,)
    switchable = RunSettings(str(easy), "resnet18_switchable", {"sizes": [8, 4]}, Recipe(epochs=1, batch_size=18))
    assert "resolutions = [8, 4]" in " ".join(said_by(switchable, tmp_path / "switchable"))
    assert read_recipe(tmp_path / "switchable" / "recipe.toml").resolutions == (8, 4)


def test_shares_become_the_dropout_that_an_arrn_is_saved_with(easy: Path, tmp_path: Path) -> None:
    recipe = Recipe(epochs=2, batch_size=18, shares=((8, 0.5), (6, 0.2), (4, 0.3)), final_shares=((8, 1.0),))
    settings = RunSettings(str(easy), "arrn", TINY | {"blockless": [6]}, recipe)
    said = said_by(settings, tmp_path / "run")
    assert "the shares {8: 0.5, 6: 0.2, 4: 0.3} give a dropout of 0.5, 0.6" in said
    assert arrn.load(tmp_path / "run").config["options"]["dropout"] == pytest.approx([0.5, 0.6])
    assert read_recipe(tmp_path / "run" / "recipe.toml") == recipe
    assert read_settings(tmp_path / "run") == settings


def test_shares_are_the_resolutions_of_a_fixed_network(easy: Path, tmp_path: Path) -> None:
    recipe = Recipe(epochs=1, batch_size=18, shares=((8, 0.5), (4, 0.5)), final_shares=((6, 1.0),))
    settings = RunSettings(str(easy), "resnet18_small_stem", {"width": 2}, recipe)
    assert "resolutions = [8, 6, 4], from the shares" in said_by(settings, tmp_path / "run")
    assert read_recipe(tmp_path / "run" / "recipe.toml").resolutions == (8, 6, 4)


@pytest.mark.parametrize(
    ("model", "options", "recipe", "message"),
    [
        ("arrn", TINY | {"dropout": 0.5}, {}, "leave out dropout=0.5, or the shares"),
        ("arrn", TINY, {"resolutions": [8, 4]}, "takes its resolutions from the shares"),
        ("arrn", TINY, {"shares": {8: 0.5, 6: 0.5}}, r"shares has 6, but .* 8, 4 only: .*blockless=\[6\]"),
        ("arrn", TINY, {"final_shares": {8: 0.5, 6: 0.5}}, r"shares has 6, but .* 8, 4 only"),
        ("resnet18_small_stem", {"width": 2}, {"resolutions": [8]}, r"name \[4\], but its resolutions are \[8\]"),
        ("resnet18_switchable", {"sizes": [8, 4, 2]}, {}, r"each of its sizes, but the shares leave out \['2'\]"),
    ],
)
def test_shares_that_do_not_fit_the_network_are_refused(
    easy: Path, tmp_path: Path, model: str, options: dict[str, object], recipe: dict[str, object], message: str
) -> None:
    chosen = Recipe(shares=((8, 0.5), (4, 0.5))).with_options(recipe)
    with pytest.raises(ArrnError, match=message):
        run_training(RunSettings(str(easy), model, options, chosen), tmp_path / "run", Machine("cpu"))


def test_it_says_how_images_and_ladder_fit(easy: Path, tmp_path: Path) -> None:
    low = dataclasses.replace(tiny_settings(easy, epochs=1), options=TINY | {"sizes": [4, 2]})
    assert (
        "all images are larger than the network's top grid of 4 (the largest is 8)" in said_by(low, tmp_path / "low")[1]
    )
    high = dataclasses.replace(
        tiny_settings(easy, epochs=1), options=TINY | {"sizes": [16, 8, 4], "features": [4, 4, 4]}
    )
    assert (
        "no image is larger than 8, so the levels above this grid are not trained"
        in said_by(high, tmp_path / "high")[1]
    )


@pytest.mark.parametrize(
    ("changed", "wrong"),
    [
        ({"model": "arrn_smal"}, "unknown model 'arrn_smal'; did you mean 'arrn_small'"),
        ({"options": {"szies": [8, 4]}}, "unknown option of model 'arrn': 'szies'; did you mean 'sizes'"),
        ({"options": {"sizes": [8, 4]}}, "features must have one value for each of the 2 sizes"),
        ({"options": {"sizes": [[8] * 3, [4] * 3], "features": [4] * 3}}, "one value for each of the 2 sizes"),
        ({"options": TINY | {"features": [4, "many"]}}, "features must be a positive whole number"),
        ({"options": TINY | {"dropout": 1.5}}, r"p must be in \[0, 1\], got 1.5"),
        ({"model": "resnet18", "options": {}, "pretrained": True}, "has no weights of 'resnet18'"),
        ({"model": "torchvision:squeezenet1_1", "options": {}, "pretrained": True}, "are not in .*cannot be reached"),
    ],
)
def test_what_cannot_be_built_is_found_before_any_data_are_read(
    easy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any], wrong: str
) -> None:
    monkeypatch.setattr("arrn.runs.training.open_run_data", lambda *arguments: pytest.fail("it reads the data"))
    monkeypatch.setattr("arrn.models.transplanting.libraries._is_reachable", lambda host: False)
    monkeypatch.setattr("torch.hub.get_dir", lambda: str(tmp_path))
    with pytest.raises(ArrnError, match=wrong):
        run_training(dataclasses.replace(tiny_settings(easy), **changed), tmp_path / "run", Machine("cpu"))
    assert not (tmp_path / "run").exists()


def test_a_ladder_of_ones_own_has_dropout_unless_it_is_told_otherwise(easy: Path, tmp_path: Path) -> None:
    settings = dataclasses.replace(tiny_settings(easy, epochs=1), options=TINY)
    said = said_by(settings, tmp_path / "usual")
    assert [line for line in said if "dropout" in line] == [
        "Laplacian dropout p = 0.4, so that the network learns lower resolutions too; --dropout sets another p, and "
        "p = 0 turns dropout off"
    ]
    kept = read_settings(tmp_path / "usual")
    assert kept is not None
    assert kept.options == TINY | {"dropout": 0.4}
    network = arrn.load(tmp_path / "usual")
    assert (network.dropout.p, network.config["options"]["dropout"]) == (0.4, 0.4)
    run_training(tiny_settings(easy, epochs=1), tmp_path / "told", Machine("cpu"))
    assert weights(tmp_path / "told") == weights(tmp_path / "usual")
    assert said_by(settings, tmp_path / "usual", resume=True) == [f"the run in {tmp_path / 'usual'} is finished"]


def test_training_without_dropout_says_what_it_costs(easy: Path, tmp_path: Path) -> None:
    settings = dataclasses.replace(tiny_settings(easy, epochs=1), options=TINY | {"dropout": 0.0})
    said = said_by(settings, tmp_path / "none")
    assert [line for line in said if "dropout" in line] == [
        "training without Laplacian dropout (p = 0): the network will be best at its full resolution, and far less "
        "accurate at lower resolutions; --dropout 0.4 is usual (docs/choosing.md)"
    ]
    assert arrn.load(tmp_path / "none").dropout.p == 0.0


def test_a_run_from_before_there_was_a_usual_dropout_goes_on_without(easy: Path, tmp_path: Path) -> None:
    told = dataclasses.replace(tiny_settings(easy, epochs=2), options=TINY | {"dropout": 0.0})
    run_training(told, tmp_path / "whole", Machine("cpu"))
    run_training(told, tmp_path / "old", Machine("cpu", checkpoint_every=1.0))
    for left in ("model.safetensors", "config.json", "checkpoints/checkpoint-0002.safetensors"):
        (tmp_path / "old" / left).unlink()
    document = json.loads((tmp_path / "old" / "run.json").read_text())
    del document["settings"]["options"]["dropout"]
    (tmp_path / "old" / "run.json").write_text(json.dumps(document))
    said = said_by(dataclasses.replace(told, options=TINY), tmp_path / "old", resume=True)
    assert "going on from checkpoint-0001.safetensors" in said
    assert weights(tmp_path / "old") == weights(tmp_path / "whole")


def test_a_named_design_keeps_the_dropout_of_its_own(easy: Path, tmp_path: Path) -> None:
    settings = RunSettings(str(easy), "arrn_small", {}, Recipe(epochs=1, batch_size=18))
    assert not [line for line in said_by(settings, tmp_path / "run") if "dropout" in line]
    assert read_settings(tmp_path / "run") == settings
