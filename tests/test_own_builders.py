"""Networks of a user's own code in files: the builder that `arrn.save` is told, the modules that `arrn.load` is."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import arrn
from arrn.errors import ArrnError
from arrn.metadata import Metadata
from arrn.models import registry
from saved_networks import edit

CODE = """
from os import system
import torch
from torch import nn
import arrn

print("imported")
LAYERS = 2


class Own(nn.Module):
    def __init__(self, num_classes=5, width=4):
        super().__init__()
        self.num_classes = num_classes
        layers = (nn.Conv2d(width if n else 3, width, 3, stride=2, padding=1) for n in range(LAYERS))
        self.layers = nn.Sequential(*layers)
        self.fc = nn.Linear(width, num_classes)

    def forward(self, x):
        return self.fc(self.layers(x).mean((2, 3)))


def adaptive(size=16, **options):
    return arrn.transplant(Own(**options), size)


def nothing():
    return "a text"


arrn.models.register("registered_on_import", Own)
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a package with a module `nets` of the code above, which nobody has imported yet."""
    folder = tmp_path / "code" / "ownpackage"
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / "nets.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(folder.parent))
    yield "ownpackage.nets"
    for name in ("ownpackage", "ownpackage.nets"):
        sys.modules.pop(name, None)
    registry._imported.discard("ownpackage.nets")
    registry._builders.pop("registered_on_import", None)


def built(own: str, function: str, **options: object) -> torch.nn.Module:
    with registry.importing([own]):
        return getattr(sys.modules[own], function)(**options)


def test_a_builder_rebuilds_a_network_where_it_is_asked_for(own: str, tmp_path: Path) -> None:
    told = Metadata((0.5,) * 3, (0.25,) * 3)
    for function, options in (("adaptive", {"num_classes": 7}), ("Own", {"width": 6})):
        model = built(own, function, **options).eval()
        folder = tmp_path / function
        arrn.save(model, folder, told, builder=f"{own}:{function}", options=options)
        loaded = arrn.load(folder, imports=[own])
        x = torch.rand(2, 3, 9, 11)
        assert torch.equal(loaded(x), model(x))
        assert loaded.config["options"].items() >= options.items()
        assert loaded.metadata == told
        arrn.save(loaded, folder / "again")  # what was loaded knows its builder
        assert torch.equal(arrn.load(folder / "again", imports=[own])(x), model(x))


def test_nothing_is_imported_unless_it_is_asked_for(
    own: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arrn.save(built(own, "adaptive"), tmp_path, builder=f"{own}:adaptive")
    del sys.modules[own]
    registry._builders.pop("registered_on_import")
    capsys.readouterr()
    with pytest.raises(ArrnError, match=rf"config.json: the network '{own}:adaptive' .* imports=\['{own}'\] or --imp"):
        arrn.load(tmp_path)
    with pytest.raises(ArrnError, match="which runs only if you ask for it"):
        arrn.load(tmp_path, imports=["math"])
    assert capsys.readouterr().out == ""
    assert own not in sys.modules
    arrn.load(tmp_path, imports=[own])
    assert capsys.readouterr().out == "imported\n"
    with pytest.raises(ArrnError, match="which runs only if you ask for it"):  # each call asks for itself
        arrn.load(tmp_path)
    assert isinstance(arrn.create_model("registered_on_import"), torch.nn.Module)


@pytest.mark.parametrize("function", ["system", "torch", "missing", "LAYERS"])
def test_only_what_the_module_defines_is_called(own: str, function: str, tmp_path: Path) -> None:
    arrn.save(built(own, "Own"), tmp_path, builder=f"{own}:Own")
    edit(tmp_path, model={"name": f"{own}:{function}", "options": {"command": "touch /tmp/never"}})
    with pytest.raises(ArrnError, match=f"the module '{own}' defines no function or class '{function}'"):
        arrn.load(tmp_path, imports=[own])


def test_a_builder_of_another_network_is_refused(own: str, tmp_path: Path) -> None:
    model = built(own, "Own", width=6)
    for builder, options, message in (
        (
            f"{own}:Own",
            None,
            r"makes another network: its layers.0.weight has shape \(4, 3, 3, 3\), the network's \(6,",
        ),
        (f"{own}:adaptive", None, "makes another network: it makes no layers.0.weight; .* more"),
        (f"{own}:Own", {"depth": 3}, "unknown option of model 'ownpackage.nets:Own': 'depth'"),
        (f"{own}:nothing", None, r"returned a str, no network \(an nn.Module\)"),
        ("ownpackage.net:Own", None, "cannot import 'ownpackage.net': ModuleNotFoundError"),
        ("Own", None, "builder should be 'package.module:function', got 'Own'"),
        ("timm:test_resnet", None, "builder should be 'package.module:function'"),
        ("__main__:Own", None, "put it into a module of its own"),
    ):
        with pytest.raises(ArrnError, match=message):
            arrn.save(model, tmp_path / "never", builder=builder, options=options)
    with pytest.raises(ArrnError, match="options are for a builder of your own"):
        arrn.save(model, tmp_path / "never", options={})
    with pytest.raises(ArrnError, match=r"how to rebuild this Own is not known: .*builder='package.module:function'"):
        arrn.save(model, tmp_path / "never")
    assert not (tmp_path / "never").exists()


def test_imports_that_cannot_be(own: str, tmp_path: Path) -> None:
    (tmp_path / "code" / "ownpackage" / "broken.py").write_text("raise KeyError('oh')")
    for imports, message in (
        (["ownpackage.broken"], "cannot import 'ownpackage.broken': KeyError: 'oh'"),
        (own, r"imports takes a list of modules, such as \['package.module'\], got 'ownpackage.nets'"),
        ([""], "cannot import '': ValueError"),
        ([".nets"], "cannot import '.nets': TypeError"),
    ):
        with pytest.raises(ArrnError, match=message):
            arrn.load(tmp_path, imports=imports)


def test_saving_leaves_what_is_random_alone(own: str, tmp_path: Path) -> None:
    model = built(own, "Own")
    state = torch.get_rng_state()
    arrn.save(model, tmp_path / os.fspath("model"), builder=f"{own}:Own")
    assert torch.equal(torch.get_rng_state(), state)
