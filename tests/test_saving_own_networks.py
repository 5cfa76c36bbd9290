"""Saving networks of a user's own builder: its options, what it has no option for, what is no data."""

from pathlib import Path

import numpy as np
import pytest
import torch

import arrn
from arrn.errors import ArrnError
from arrn.metadata import Metadata
from arrn.models.registry import _builders
from arrn.nn import ARRN
from arrn.signal import Kernel, TruncatedGaussian
from saved_networks import Plain, edit, own_transplant, small


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> ARRN:
    monkeypatch.setitem(_builders, "own", own_transplant)
    return arrn.create_model("own").eval()


def test_what_changed_is_saved_though_the_builder_has_no_option_for_it(own: ARRN, tmp_path: Path) -> None:
    own.reset_classifier(np.int64(4))
    own.policy = "cheap"
    assert own.config == {
        "name": "own",
        "options": {"size": 16},
        "changed": {"num_classes": 4, "policy": "cheap"},
    }
    arrn.save(own, tmp_path)
    x = torch.randn(2, 3, 11, 11)
    for _ in range(2):  # what was loaded is saved as well
        loaded = arrn.load(tmp_path)
        assert (loaded.policy, loaded.num_classes) == ("cheap", 4)
        assert torch.equal(loaded(x), own(x))
        assert loaded.config == own.config
        arrn.save(loaded, tmp_path)
    pretrained = arrn.create_model("own", pretrained=tmp_path, num_classes=4, policy="exact").eval()
    assert pretrained.policy == "exact"
    assert torch.equal(pretrained(x, policy="cheap"), own(x))
    assert arrn.create_model("own", pretrained=tmp_path, num_classes=6).num_classes == 6


def test_files_from_before_changes_were_stored_apart_load(own: ARRN, tmp_path: Path) -> None:
    own.reset_classifier(4)
    arrn.save(own, tmp_path)
    edit(tmp_path, model={"name": "own", "options": {"size": 16, "num_classes": 4, "policy": "cheap"}})
    loaded = arrn.load(tmp_path)
    assert (loaded.policy, loaded.num_classes) == ("cheap", 4)


def test_changes_follow_a_builder_that_takes_them_later(
    own: ARRN, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own.policy = "cheap"
    arrn.save(own, tmp_path)
    monkeypatch.setitem(_builders, "own", lambda size, policy="exact": arrn.transplant(Plain(), size, policy=policy))
    assert arrn.load(tmp_path).config["options"] == {"size": 16, "policy": "cheap"}


def test_options_that_a_builder_gathers_are_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_builders, "own", lambda size=16, **options: arrn.transplant(Plain(**options), size))
    model = arrn.create_model("own", stages=3)
    model.policy = "cheap"  # which Plain does not take
    arrn.save(model, tmp_path)
    loaded = arrn.load(tmp_path)
    assert loaded.sizes == (16, 8, 4)
    assert loaded.config == {"name": "own", "options": {"size": 16, "stages": 3}, "changed": {"policy": "cheap"}}
    arrn.save(arrn.create_model("own"), tmp_path)
    assert arrn.load(tmp_path).config["options"] == {"size": 16}


def test_a_builder_that_is_not_registered_here_is_asked_for(own: ARRN, tmp_path: Path) -> None:
    arrn.save(own, tmp_path)
    name = own.config["name"]
    del _builders[name]
    with pytest.raises(arrn.ArrnError, match=rf"unknown model '{name}'.*register\('{name}', builder\)"):
        arrn.load(tmp_path)


def test_a_builders_option_may_be_called_pretrained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_builders, "own", lambda pretrained=False: Plain())
    arrn.save(arrn.create_model("own"), tmp_path)
    assert isinstance(arrn.load(tmp_path), Plain)


def test_options_that_are_no_data_are_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(_builders, "own", lambda file=None, **others: Plain())
    for option in ("file", "other"):
        with pytest.raises(
            ArrnError, match=rf"option '{option}' of model 'own' is \[.*Path\('there'\)\], which cannot be"
        ):
            arrn.save(arrn.create_model("own", **{option: [Path("there")]}), tmp_path / "model")
    with pytest.raises(ArrnError, match="mean of the metadata is tensor"):
        arrn.save(small(), tmp_path / "model", Metadata(mean=torch.ones(3)))
    with pytest.raises(ArrnError, match=r"must be an arrn.saving.Metadata, got \{'mean'"):
        arrn.save(small(), tmp_path / "model", {"mean": [1]})
    assert not list(tmp_path.iterdir())


class OwnKernel(Kernel):
    """A kernel of a user's own."""

    boundary = "symmetric"
    name = "own"

    def _build(self, source: int, target: int) -> np.ndarray:
        return TruncatedGaussian()._build(source, target)


def test_a_kernel_of_ones_own_builds_but_cannot_be_saved(tmp_path: Path) -> None:
    model = small(kernel=OwnKernel())
    assert model(torch.randn(2, 3, 8, 8)).shape == (2, 3)
    with pytest.raises(ArrnError, match=r"option 'kernel' of model 'arrn' is .*OwnKernel.*cannot be written to a file"):
        arrn.save(model, tmp_path / "model")
    assert not list(tmp_path.iterdir())
