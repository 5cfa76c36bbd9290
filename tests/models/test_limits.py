"""What a stranger's config may ask for is bounded before it is built; what can be trained is far below."""

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import arrn
from arrn.errors import ArrnError
from arrn.models.limits import built_within, check_options
from arrn.signal import KaiserSinc
from saved_networks import small

BEYOND: dict[str, tuple[dict[str, Any], str]] = {
    "features": ({"features": [20000] * 2}, "at least 800,000,000 parameters, but its weights are 609 numbers"),
    "more features": ({"features": [10**6] * 2}, "features of model 'arrn' must be at most 65536, got 1000000"),
    "expansion": ({"expansion": 1e7}, "expansion of model 'arrn' must be at most 1024, got 10000000.0"),
    "infinite expansion": ({"expansion": float("inf")}, "must be at most 1024, got inf"),
    "expansion is no number": ({"expansion": float("nan")}, "expansion must be a positive number"),
    "sizes": ({"sizes": [30000, 29000]}, "8 hidden channels on a grid of 30000 are 7.2e+09 values a sample"),
    "one size": ({"sizes": [2000000, 8]}, "values a sample, and should be at most 2.1e+09"),
    "volumes": ({"sizes": [900, 8], "ndim": 3}, "values a sample"),
    "depth": ({"depth": 10**5}, "depth of model 'arrn' must be at most 1000, got 100000"),
    "repeats": ({"repeats": [1, 10**5]}, "repeats of model 'arrn' must be at most 1000, got 100000"),
    "both": ({"depth": 100, "repeats": 10}, "depth times repeats, over all sizes, must be at most 1000, got 2000"),
    "ladder": ({"sizes": list(range(600, 3, -1))}, "sizes must have at most 256 entries, got 597"),
    "nested": ({"dropout": [[0.5] * 1000]}, "dropout must have at most 256 entries, got 1000"),
    "classes": ({"num_classes": 10**7}, "parameters, but its weights are 609 numbers"),
    "many classes": ({"num_classes": 2**60}, "num_classes of model 'arrn' must be at most 16777216"),
    "crossings": (
        {"kernel": {"name": "fair", "zero_crossings": 10**9}},
        "zero_crossings must be a number from 1 to 1000",
    ),
    "beta": ({"kernel": {"name": "fair", "beta": 1e300}}, "beta must be a number from 0.001 to 500, got 1e+300"),
    "radius": ({"kernel": {"name": "poor", "radius": 1e300}}, "radius must be a number from 0.5 to 1000, got 1e+300"),
    "sigma": ({"kernel": {"name": "poor", "sigma": 1e-300}}, "sigma must be a number from 0.001 to 1000, got 1e-300"),
    "a kernel's name": ({"kernel": {"name": ["fair"]}}, "unknown kernel ['fair']"),
    "matrices": ({"kernel": "fair", "sizes": [12000, 9000]}, "the 'fair' kernel needs matrices of 4.3e+08 entries"),
    "blockless": (
        {"kernel": "fair", "sizes": [9000, 5], "blockless": list(range(8900, 8890, -1))},
        "the 'fair' kernel needs matrices of",
    ),
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("limits")
    arrn.save(small(), folder)
    return folder


def ask_for(saved: Path, tmp_path: Path, model: dict[str, Any]) -> Path:
    (tmp_path / "model.safetensors").symlink_to(saved / "model.safetensors")
    document = json.loads((saved / "config.json").read_text())
    document["model"] |= model
    (tmp_path / "config.json").write_text(json.dumps(document))
    return tmp_path


@pytest.mark.parametrize(("options", "message"), BEYOND.values(), ids=BEYOND.keys())
def test_a_config_beyond_the_limits_is_refused_before_anything_is_built(
    saved: Path, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    whole = json.loads((saved / "config.json").read_text())["model"]["options"] | options
    folder = ask_for(saved, tmp_path, {"options": whole})
    began = time.monotonic()
    with pytest.raises(ArrnError) as caught:
        arrn.load(folder)
    assert message in str(caught.value)
    assert str(folder / "config.json") in str(caught.value)
    assert len(str(caught.value)) < 1000
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("resnet18", {"num_classes": 10**7}),
        ("resnet18", {"size": 10**5}),
        ("resnet18_small_stem", {"width": 2000}),
        ("fourier_operator", {"modes": 500}),
        ("fourier_operator", {"depth": 10**5}),
        ("fourier_operator", {"depth": 900}),
        ("arrn_small", {"num_classes": 2**24}),
        ("arrn_mini", {"own_repeats": [10**9]}),
        ("arrn_mini", {"repeats": [10**5]}),
        ("arrn_pyramid", {"base_repeats": 10**9}),
        ("arrn_pyramid", {"width": 4000}),
        ("arrn_small", {"in_channels": 2**20}),
        ("arrn_resnet18", {"num_classes": 2**22}),
    ],
)
def test_other_networks_are_bounded_by_their_weights_too(
    saved: Path, tmp_path: Path, name: str, options: dict[str, Any]
) -> None:
    with pytest.raises(ArrnError, match=r"must be at most|parameters, but its weights are 609 numbers"):
        arrn.load(ask_for(saved, tmp_path, {"name": name, "options": options}))


@pytest.mark.parametrize(
    ("name", "options", "entries"),
    [
        ("arrn_mini", {"sizes": [5790, 5], "lift": [8, 1]}, "5.4e+08"),
        ("arrn_mini", {"sizes": [5790, 5700], "lift": [8, 8]}, "1.1e+09"),
        ("arrn_pyramid", {"sizes": [5790, 5789]}, "2e+08"),
    ],
)
def test_matrices_to_the_larger_grids_on_which_levels_work_are_counted(
    saved: Path, tmp_path: Path, name: str, options: dict[str, Any], entries: str
) -> None:
    """Before they were, one number took 8.7 GB: lift."""
    whole = options | {"ndim": 1, "in_channels": 1, "width": 8, "kernel": "fair", "blockless": []}
    with pytest.raises(ArrnError, match=f"the 'fair' kernel needs matrices of {re.escape(entries)} entries"):
        arrn.load(ask_for(saved, tmp_path, {"name": name, "options": whole}))


def test_what_was_changed_after_building_is_bounded_too(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(ArrnError, match=r"at least 60,000,\d+ parameters, but its weights are 609"):
        arrn.load(ask_for(saved, tmp_path, {"changed": {"num_classes": 10**7}}))


def test_long_lines_and_large_images_are_within_the_limits() -> None:
    sound = arrn.create_model(
        "arrn", sizes=(10**6, 10**5, 10**4, 1000, 100), features=(4, 8, 16, 32, 64), ndim=1, in_channels=1
    )
    assert sound.sizes[0] == 10**6
    with torch.device("meta"):
        for options in (
            {"sizes": (2048, 1024, 512, 256, 64), "features": (16, 32, 64, 128, 256)},
            {"sizes": (512, 128, 32), "features": (4, 16, 64), "ndim": 3},
            {"sizes": (1024, 512, 256), "kernel": KaiserSinc(), "features": (16, 32, 64)},
            {"sizes": (64, 32, 16, 8), "features": (512, 1024, 2048, 4096), "depth": 6, "repeats": 12},
            {"num_classes": 21841, "in_channels": 300},
        ):
            assert arrn.create_model("arrn", **options).grids


def test_only_what_is_built_inside_and_in_this_thread_is_counted() -> None:
    with (
        pytest.raises(ArrnError, match="at least 1,000,000,000 parameters, but its weights are 5 numbers"),
        built_within(5),
    ):
        torch.nn.Linear(10**5, 10**4)
    torch.nn.Linear(10, 10)
    with built_within(5):
        torch.nn.Linear(10, 10)


def test_options_that_are_no_numbers_are_left_to_the_builder() -> None:
    check_options("arrn", {"features": "many", "depth": None, "sizes": [[8, "x"]], "mine": 10**30})


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("arrn", {"sizes": [5000, 8], "features": [4, 6], "num_classes": 3}),
        ("resnet18", {"size": 8000, "num_classes": 3}),
        # Eight times its grid, where the widest layer of the grid itself would be far from the limit.
        ("arrn_mini", {"sizes": [500, 50, 8], "lift": [8, 1, 1], "width": 8, "num_classes": 3}),
    ],
)
def test_a_network_that_would_fill_the_memory_as_it_runs_is_refused_as_it_is_loaded(
    tmp_path: Path, name: str, options: dict[str, Any]
) -> None:
    arrn.save(arrn.create_model(name, **options), tmp_path)
    with pytest.raises(ArrnError, match=r"one sample on a grid of \d+ would take \d+\.\d GB of memory, and 1.1 GB are"):
        arrn.load(tmp_path)


def test_the_user_may_allow_more_memory(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arrn.models.limits.MOST_MEMORY", 1000)
    with pytest.raises(ArrnError, match=r"would take .* set the environment variable ARRN_MAX_MEMORY, such as"):
        arrn.load(saved)
    monkeypatch.setenv("ARRN_MAX_MEMORY", "1MB")
    assert arrn.load(saved).sizes == (8, 5)
    monkeypatch.setenv("ARRN_MAX_MEMORY", "lots")
    with pytest.raises(ArrnError, match="ARRN_MAX_MEMORY takes a size such as 500kB, 32MB or 1GiB, got 'lots'"):
        arrn.load(saved)
