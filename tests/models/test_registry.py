"""The registry: names in, networks out."""

import pytest
import torch

import arrn
from arrn.models import model_options, register
from arrn.models.registry import _builders


def test_the_generic_builder_is_listed_and_builds() -> None:
    assert "arrn" in arrn.list_models()
    model = arrn.create_model("arrn")
    assert model.sizes == (32, 16, 8)
    assert model.eval()(torch.rand(1, 3, 20, 24)).shape == (1, 10)


def test_options_per_size() -> None:
    model = arrn.create_model("arrn", sizes=(8, 5), features=(4, 6), depth=(1, 3), expansion=(2, 1.5))
    assert not hasattr(model.residuals[0].block, "depthwise2")
    assert model.base.block.depthwise3.weight.shape == (9, 1, 3, 3)


def test_names_are_registered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_builders, "mine", lambda width=3: torch.nn.Linear(width, width))
    assert arrn.create_model("mine", width=4).config == {"name": "mine", "options": {"width": 4}}
    with pytest.raises(arrn.ArrnError, match="'mine' is registered already"):
        register("mine", torch.nn.Identity)


def test_options_that_a_builder_gathers_are_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(width: int, *rest: object, bias: bool = True, **others: object) -> torch.nn.Module:
        return torch.nn.Linear(width, len(others), bias)

    monkeypatch.setitem(_builders, "mine", build)
    model = arrn.create_model("mine", width=4, a=(1, 2), b=None)
    assert model.config["options"] == {"width": 4, "bias": True, "a": [1, 2], "b": None}
    assert model.out_features == 2
    assert set(model_options("mine")) == {"width", "bias"}


def test_an_option_that_a_builder_does_not_take_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_builders, "mine", lambda width=3, *rest: torch.nn.Linear(width, width))
    for option in ("widht", "rest"):
        with pytest.raises(arrn.ArrnError, match=rf"unknown option of model 'mine': '{option}'.*\(known: 'width'\)"):
            arrn.create_model("mine", **{option: 4})


def test_an_option_that_is_gone_is_read_with_the_value_that_stayed() -> None:
    model = arrn.create_model("arrn_small", rejection="mean")
    assert model.config["options"] == model_options("arrn_small") | {"blockless": []}
    with pytest.raises(arrn.ArrnError, match="rejection='response' is no longer an option of model 'arrn_small'"):
        arrn.create_model("arrn_small", rejection="response")


def test_options_are_shared_and_defaults_are_the_builders_own() -> None:
    shared = {"num_classes", "in_channels", "kernel"}
    assert set(model_options("resnet18")) == shared | {"size"}
    assert set(model_options("arrn_resnet18")) == shared | {"size", "skip_first", "form", "dropout", "draw", "policy"}
    assert set(model_options("arrn_small")) < set(model_options("arrn"))
    assert model_options("arrn_mobilenet_v3_small")["skip_first"] == 2
    assert model_options("arrn_volume_small")["in_channels"] == 1
