"""Networks of timm, of torchvision and of one's own on the command line: trained, evaluated, asked, gone on with."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import arrn
from arrn.models import registry
from commands import Command
from small_runs import write_mixed_folder

SHORT = ("--epochs", "1", "--batch-size", "6", "--device", "cpu")

CODE = """
import torch
from torch import nn
import arrn


class Looking(nn.Module):
    "Looks at the values of its input, so that nothing can be counted without data."

    def __init__(self, num_classes=3):
        super().__init__()
        self.num_classes = num_classes
        self.layers = nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1), nn.ReLU(), nn.Conv2d(4, 4, 3, 2, 1), nn.ReLU())
        self.fc = nn.Linear(4, num_classes)

    def forward(self, x):
        if float(x.mean()) > 100:
            return x
        return self.fc(self.layers(x).mean((2, 3)))


class Plain(Looking):
    def forward(self, x):
        return self.fc(self.layers(x).mean((2, 3)))


def adaptive(num_classes=3, dropout=0.0):
    return arrn.transplant(Plain(num_classes), 8, dropout=dropout, form="paper")
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_mixed_folder(tmp_path / "data", [(8, 8), (6, 9)], 3)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module in the folder that the user is in."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    Path("own_networks.py").write_text(CODE)
    yield "own_networks"
    sys.modules.pop("own_networks", None)
    registry._imported.discard("own_networks")


@pytest.mark.parametrize("builder", ["adaptive", "Looking"])
def test_a_builder_of_ones_own_goes_through_every_command(
    arrn_command: Command, data: Path, module: str, builder: str
) -> None:
    model, asked = ("--model", f"{module}:{builder}"), ("--import", module)
    refused = f"is built by code of the module '{module}', which runs only if you ask for it"
    assert refused in arrn_command("train", data, *model, *SHORT, "--out", "never", code=2).err
    assert module not in sys.modules
    arrn_command("train", data, *model, *asked, *SHORT, "--out", "run")
    sample = data / "test" / "red" / "000.png"
    registry._imported.discard(module)
    for command in (("predict", "run", sample), ("evaluate", "run")):
        assert refused in arrn_command(*command, "--device", "cpu", code=2).err
    assert sample.name in arrn_command("predict", "run", sample, *asked, "--device", "cpu").out
    arrn_command("evaluate", "run", "--resolutions", "8", *asked, "--device", "cpu")
    document = json.loads(Path("run/evaluation.json").read_text())
    assert bool(document["cost"]) == (builder == "adaptive")
    assert ("Not known: the network looks" in Path("run/evaluation.html").read_text()) == (builder == "Looking")
    assert "is finished" in arrn_command("train", "--resume", "--out", "run", *asked, "--device", "cpu").out


def test_a_module_that_is_not_there_is_one_line(arrn_command: Command, data: Path, module: str) -> None:
    told = arrn_command("train", data, "--import", "own_network", *SHORT, code=2).err
    assert "cannot import 'own_network': ModuleNotFoundError" in told


@pytest.mark.parametrize("name", ["timm:test_resnet", "torchvision:squeezenet1_1"])
def test_a_librarys_network_is_transplanted_trained_evaluated_and_asked(
    arrn_command: Command, data: Path, tmp_path: Path, name: str
) -> None:
    pytest.importorskip(name.partition(":")[0])
    run = tmp_path / "run"
    arrn_command("train", data, "--model", name, "--option", "size=32", "--dropout", "0.3", *SHORT, "--out", run)
    model = arrn.load(run)
    assert (model.config["name"], model.dropout.p) == (name, 0.3)
    assert model.num_classes == 3 or model(torch.rand(1, 3, 32, 32)).shape == (1, 3)
    arrn_command("evaluate", run, "--resolutions", "8,6", "--device", "cpu")
    out = arrn_command("predict", run, data / "test" / "red" / "000.png", "--device", "cpu").out
    assert any(colour in out for colour in ("red", "green", "blue"))


def test_pretrained_weights_are_the_start_and_their_normalisation_is_kept(
    arrn_command: Command, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timm = pytest.importorskip("timm")
    from huggingface_hub import constants

    monkeypatch.setattr("arrn.models.transplanting.libraries._is_reachable", lambda host: False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    train = ("train", data, "--model", "timm:test_resnet", "--pretrained", "--option", "size=32", *SHORT)
    missing = arrn_command(*train, "--out", tmp_path / "never", code=2).err
    assert "the pretrained weights of timm:test_resnet are not in" in missing
    assert not (tmp_path / "never").exists()
    # What a download would have left in the cache.
    torch.manual_seed(9)
    source, there = timm.create_model("test_resnet"), tmp_path / "hub" / "models--timm--test_resnet.r160_in1k"
    (there / "snapshots" / ("0" * 40)).mkdir(parents=True)
    (there / "refs").mkdir()
    (there / "refs" / "main").write_text("0" * 40)
    save_file(source.state_dict(), there / "snapshots" / ("0" * 40) / "model.safetensors")
    arrn_command(*train, "--learning-rate", "1e-9", "--out", tmp_path / "run")
    model = arrn.load(tmp_path / "run")
    assert model.metadata.mean == (0.5, 0.5, 0.5)
    mine = [p for p in model.parameters() if p.ndim == 4]
    theirs = [p for p in source.parameters() if p.ndim == 4]
    near = sum(any(p.shape == q.shape and torch.allclose(p, q, atol=1e-4) for q in mine) for p in theirs)
    assert near == len(theirs)
