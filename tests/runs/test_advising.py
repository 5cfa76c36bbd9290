"""What is proposed for a data set, and that it trains as it is, within little memory."""

from pathlib import Path

import pytest
import torch

import arrn
from arrn.data import IMAGE, SOUND, Form
from arrn.runs import RunSettings, advise
from arrn.runs.advising import spell_seconds
from arrn.runs.proposing import Facts, ladder_for, options_for, propose
from pictures import write_folder


def facts(
    sizes: list[tuple[int, ...]], counts: dict[str, int] | None = None, form: Form = IMAGE, **more: object
) -> Facts:
    return Facts(form, sizes, counts or {"a": len(sizes) // 2, "b": len(sizes) - len(sizes) // 2}, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("top", "ndim", "ladder"),
    [
        (128, 2, [128, 64, 32, 16, 8, 4]),
        (900, 2, [128, 64, 32, 16, 8, 4]),
        (100, 2, [96, 48, 24, 12, 6]),
        (32, 2, [32, 16, 8, 4]),
        (12, 2, [12, 6]),
        (5, 2, [4, 2]),
        (28, 3, [28, 14, 7]),
        (200, 3, [64, 32, 16, 8, 4]),
        (16000, 1, [16000, 8000, 4000, 2000, 1000, 500, 250, 125, 62]),
    ],
)
def test_ladders_halve_down_to_a_cheap_base(top: int, ndim: int, ladder: list[int]) -> None:
    assert ladder_for(top, ndim) == ladder


@pytest.mark.parametrize(("ndim", "channels"), [(1, 1), (2, 3), (3, 1)])
def test_every_proposed_ladder_can_be_built(ndim: int, channels: int) -> None:
    for top in (3, 4, 7, 30, 99, 128, 1000, 8000):
        options = options_for(ladder_for(top, ndim), ndim)
        network = arrn.create_model("arrn", ndim=ndim, in_channels=channels, num_classes=3, **options).eval()
        size = network.grids[-1]
        assert network(torch.zeros(1, channels, *size)).shape == (1, 3)


def test_mixed_sizes_get_a_ladder_that_four_in_five_fit() -> None:
    sizes = [(n, n) for n in range(24, 161)]
    found = propose(facts(sizes))
    assert found.options["sizes"][0] == 128
    assert found.settings["holdout"] == round(0.15 * len(sizes))


def test_few_and_uneven_classes_are_told() -> None:
    found = propose(facts([(32, 32)] * 792, {"many": 780, "few": 12}))
    told = " ".join(found.reasons)
    assert "classes are uneven, 12 of 'few' and 780 of 'many': look at the balanced accuracy" in told
    assert "'few' has 12 samples" in told
    assert found.settings["keep"] == "best"


def test_many_rectangles_are_padded_and_a_split_of_its_own_is_enough() -> None:
    sizes = [(20, 60)] * 60 + [(30, 30)] * 40
    found = propose(facts(sizes, has_validation=True))
    assert found.settings == {"aspect": "pad"}


def test_every_class_keeps_samples_to_train_on() -> None:
    assert propose(facts([(32, 32)] * 6, {"a": 3, "b": 3})).settings["holdout"] == 1
    assert "holdout" not in propose(facts([(32, 32)] * 4, {"a": 2, "b": 2})).settings


def test_a_window_is_as_long_as_nine_in_ten_clips() -> None:
    seconds = [0.4] * 95 + [3.0] * 5
    found = propose(facts([(8000,)] * 100, form=SOUND, seconds=seconds))
    assert found.settings["window"] == 0.4
    assert found.options["sizes"][0] == 3200
    assert found.recipe["flip"] is False


def test_times_in_words() -> None:
    assert [spell_seconds(n) for n in (0.04, 99.6, 130, 4000)] == ["0.0 s", "100 s", "2 min", "67 min"]


def test_what_the_user_decides_stays(tmp_path: Path) -> None:
    write_folder(tmp_path / "set", {"cat": [(16, 16)] * 20, "dog": [(12, 20)] * 20})
    start = RunSettings(str(tmp_path / "set"))
    advice = advise(
        start,
        options={"sizes": [16, 8], "features": [4, 8], "expansion": 2, "depth": 1},
        recipe={"epochs": 3},
        given={"holdout": 4, "seed": 5},
        device="cpu",
    )
    assert advice.settings.options["sizes"] == [16, 8]
    assert (advice.settings.recipe.epochs, advice.settings.holdout, advice.settings.seed) == (3, 4, 5)
    assert advice.settings.recipe.batch_size == 8
    assert advice.seconds > 0
    assert "arrn with 16 -> 8, batch 8, about" in str(advice)
    assert "--option 'sizes=[16,8]'" in advice.command
    assert "--holdout 4" in advice.command


def test_sizes_that_the_user_decides_may_be_rectangles(tmp_path: Path) -> None:
    write_folder(tmp_path / "set", {"cat": [(16, 24)] * 10, "dog": [(16, 24)] * 10})
    options = {"sizes": [[16, 24], [8, 12]], "features": [4, 8], "expansion": 2, "depth": 1}
    advice = advise(RunSettings(str(tmp_path / "set")), options=options, device="cpu")
    assert "arrn with 16x24 -> 8x12, batch 8, about" in str(advice)


def test_sound_is_as_long_as_its_clips() -> None:
    told = str(facts([(8000,)] * 4, form=SOUND, seconds=[0.4, 0.55, 0.4, 1.0]))
    assert told == "4 clips from 0.4 to 1 s"
    assert str(facts([(8000,)] * 2, form=SOUND)) == "2 clips of 8000 samples"
