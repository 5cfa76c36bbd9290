"""Transplants of networks of timm and torchvision by name: built, saved, loaded, with the libraries' own weights."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import arrn
from arrn.errors import ArrnError
from arrn.models import transplanting
from arrn.models.transplanting import libraries
from saved_networks import edit

timm = pytest.importorskip("timm")
torchvision = pytest.importorskip("torchvision")


def same_answers(model: nn.Module, other: nn.Module, channels: int = 3) -> bool:
    x = torch.rand(2, channels, 21, 18)
    with torch.no_grad():
        return torch.equal(model.eval()(x), other.eval()(x))


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("timm:test_convnext", "difference"),
        ("timm:test_resnet.r160_in1k", "paper"),
        ("torchvision:squeezenet1_1", "paper"),  # whose classifier is a convolution
    ],
)
def test_a_name_and_options_rebuild_it_exactly(name: str, form: str, tmp_path: Path) -> None:
    model = arrn.create_model(name, num_classes=7, in_channels=2, dropout=0.25)
    assert model.form == form
    assert model.config["options"]["form"] == form  # also where later versions would choose another
    arrn.save(model, tmp_path)
    loaded = arrn.load(tmp_path)
    assert loaded.config == model.config
    assert (loaded.sizes, loaded.dropout.p) == (model.sizes, model.dropout.p)
    assert loaded(torch.rand(1, 2, 20, 20)).shape == (1, 7)
    assert same_answers(model, loaded, 2)


def test_what_changed_after_building_is_saved(tmp_path: Path) -> None:
    model = arrn.create_model("timm:test_efficientnet", size=32, num_classes=0)
    assert (model.num_classes, model(torch.rand(2, 3, 9, 9)).ndim) == (0, 2)
    model.reset_classifier(4)
    model.policy = "cheap"
    arrn.save(model, tmp_path)
    loaded = arrn.load(tmp_path)
    assert (loaded.num_classes, loaded.policy) == (4, "cheap")
    assert same_answers(model, loaded)
    assert arrn.create_model("timm:test_efficientnet", pretrained=tmp_path, num_classes=3).num_classes == 3


@pytest.mark.parametrize("library", ["timm", "torchvision"])
def test_a_transplant_of_a_librarys_network_is_saved_by_its_source(library: str, tmp_path: Path) -> None:
    source = timm.create_model("test_resnet") if library == "timm" else torchvision.models.squeezenet1_1(num_classes=5)
    classes = 5 if library == "timm" else None  # the other's classifier is a convolution, which stays
    model = arrn.transplant(source, (32, 48), num_classes=classes, in_channels=1, skip_first=1, form="difference")
    state = torch.get_rng_state()
    arrn.save(model, tmp_path)
    assert torch.equal(torch.get_rng_state(), state)
    loaded = arrn.load(tmp_path)
    expected = "timm:test_resnet" if library == "timm" else "torchvision:squeezenet1_1"
    assert loaded.config["name"] == expected
    assert loaded.grids == model.grids
    assert same_answers(model, loaded, 1)


def test_a_source_that_was_changed_is_not_taken_for_the_librarys(tmp_path: Path) -> None:
    source = timm.create_model("test_resnet")
    source.act1 = nn.Tanh()
    with pytest.raises(ArrnError, match="no transplant of a network of timm or torchvision as these build it; name a"):
        arrn.save(arrn.transplant(source, 32), tmp_path / "never")
    assert not (tmp_path / "never").exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("timm:test_resnt", r"timm has no network named 'test_resnt' .*did you mean 'timm:test_resnet'\?"),
        ("torchvision:fcn_resnet50", "torchvision has no network named 'fcn_resnet50'"),
        ("timm:hf-hub:someone/network", "timm has no network named 'hf-hub:someone/network'"),
        ("timm:local-dir:/tmp", "timm has no network named"),
        ("timm:../x", "timm has no network named"),
        ("timm:", "timm has no network named ''"),
        ("tim:test_resnet:x", "unknown model .*LIBRARY:NAME transplants a network of timm or torchvision"),
        ("timm:test_vit", "the forward of this VisionTransformer cannot be traced"),
    ],
)
def test_names_that_cannot_be(name: str, message: str) -> None:
    with pytest.raises(ArrnError, match=message):
        arrn.create_model(name, size=160)


def test_a_file_cannot_ask_for_more_than_its_weights_are(tmp_path: Path) -> None:
    arrn.save(arrn.create_model("timm:test_resnet", size=32), tmp_path)
    document = json.loads((tmp_path / "config.json").read_text())
    options = document["model"]["options"]
    for name, more, message in (
        ("timm:hf-hub:someone/network", {}, "timm has no network named"),
        ("timm:vgg16", {}, "describes a network of at least [0-9,]+ parameters, but its weights are"),
        ("timm:test_resnet", {"num_classes": 2**40}, "num_classes of model 'timm:test_resnet' must be at most"),
        ("timm:test_resnet", {"size": 2**20}, "size of model 'timm:test_resnet' must be at most"),
        ("timm:test_resnet", {"num_classes": 2**20}, "parameters, but its weights are"),
        ("timm:test_resnet", {"form": "papier"}, "unknown form 'papier'"),
        ("timm:test_resnet", {"pretrained": True}, "unknown option of model 'timm:test_resnet': 'pretrained'"),
    ):
        edit(tmp_path, model={"name": name, "options": options | more})
        with pytest.raises(ArrnError, match=message):
            arrn.load(tmp_path)


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Without a network, and with empty caches of both libraries."""
    from huggingface_hub import constants

    monkeypatch.setattr(libraries, "_is_reachable", lambda host: False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "torch"))
    (tmp_path / "torch" / "checkpoints").mkdir(parents=True)
    return tmp_path


@pytest.mark.parametrize("name", ["timm:test_resnet", "torchvision:squeezenet1_1"])
def test_weights_that_cannot_be_got_are_one_line(name: str, no_network: Path) -> None:
    with pytest.raises(ArrnError, match=f"weights of {name} are not in .*cannot be reached: connect") as caught:
        arrn.create_model(name, pretrained=True)
    assert "\n" not in str(caught.value)
    assert arrn.create_model(name, pretrained=False).config["name"] == name


def test_networks_without_weights_say_so(no_network: Path) -> None:
    with pytest.raises(ArrnError, match=r"timm has no network named 'resnet18\.nothing'"):
        arrn.create_model("timm:resnet18.nothing", pretrained=True)
    without = next(name for name in sorted(timm.list_models("resne*")) if not timm.get_pretrained_cfg(name).has_weights)
    with pytest.raises(ArrnError, match=f"timm has no pretrained weights for '{without}'"):
        arrn.create_model(f"timm:{without}", pretrained=True)


def test_weights_of_timm_come_from_its_cache(no_network: Path) -> None:
    source = timm.create_model("test_resnet")
    there = no_network / "hub" / "models--timm--test_resnet.r160_in1k"
    snapshot = there / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (there / "refs").mkdir()
    (there / "refs" / "main").write_text("0" * 40)
    save_file(source.state_dict(), snapshot / "model.safetensors")
    model = arrn.create_model("timm:test_resnet", size=32, pretrained=True)
    assert holds_weights_of(model, source) > 10
    assert model.metadata.mean == (0.5, 0.5, 0.5)
    assert model.num_classes == 10
    assert "pretrained" not in model.config["options"]
    assert arrn.create_model("timm:test_resnet", size=32, pretrained=True, in_channels=1).metadata.mean is None


def test_weights_of_torchvision_come_from_its_cache(no_network: Path, tmp_path: Path) -> None:
    source = torchvision.models.squeezenet1_1()
    file = Path(torchvision.models.SqueezeNet1_1_Weights.DEFAULT.url).name
    torch.save(source.state_dict(), no_network / "torch" / "checkpoints" / file)
    model = arrn.create_model("torchvision:squeezenet1_1", size=64, num_classes=3, pretrained=True)
    assert holds_weights_of(model, source) > 20
    assert model.metadata.std == pytest.approx((0.229, 0.224, 0.225))
    arrn.save(model, tmp_path / "saved")
    assert same_answers(model, arrn.load(tmp_path / "saved"))
    (no_network / "torch" / "checkpoints" / file).write_bytes(b"PK damaged")
    with pytest.raises(ArrnError, match="could not be read: "):
        arrn.create_model("torchvision:squeezenet1_1", pretrained=True)
    torch.save(torchvision.models.resnet18().state_dict(), no_network / "torch" / "checkpoints" / file)
    with pytest.raises(ArrnError, match="do not fit this version of the library"):
        arrn.create_model("torchvision:squeezenet1_1", pretrained=True)


def holds_weights_of(model: nn.Module, source: nn.Module) -> int:
    """How many of the source's convolutions a transplant has, unchanged."""
    mine = [p for p in model.parameters() if p.ndim == 4]
    return sum(any(torch.equal(p, q) for q in mine if q.shape == p.shape) for p in source.parameters() if p.ndim == 4)


def test_the_paper_transplants_have_names_still() -> None:
    assert set(transplanting.TRANSPLANTS) < {name.removeprefix("arrn_") for name in arrn.list_models()}
    assert not [name for name in arrn.list_models() if ":" in name]
