"""Saving and loading: nothing lost, nothing unpickled, and every broken file named."""

import contextlib
import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st

import arrn
from arrn.metadata import Metadata
from arrn.model_folder import FORMAT_VERSION
from arrn.nn import ARRN, Head, InvertedBlock, LaplacianResidual, Projection, ResidualBase
from arrn.signal import TruncatedGaussian
from arrn.testing import awaken_norms
from arrn.writing import write_atomically
from saved_networks import edit, small


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    arrn.save(small(), tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize(
    "options",
    [
        {"kernel": TruncatedGaussian(0.7, 2.0), "dropout": (0.4,), "draw": "sample", "policy": "cheap"},
        {"block": "zero_preserving", "ndim": 1},
        {"ndim": 3, "in_channels": 1},
    ],
)
def test_round_trip(options: dict, tmp_path: Path) -> None:
    model = small(**options)
    x = torch.randn(4, model.in_channels, *[8] * model.ndim)
    awaken_norms(model, x)
    metadata = Metadata((0.5,) * model.in_channels, (0.25,) * model.in_channels, "perfect", ("cat", "dog", "ship"))
    arrn.save(model, tmp_path / "new" / "model", metadata)
    assert sorted(p.name for p in (tmp_path / "new" / "model").iterdir()) == ["config.json", "model.safetensors"]
    loaded = arrn.load(tmp_path / "new" / "model")
    assert torch.equal(loaded(x), model(x))
    assert repr(loaded) == repr(model)
    assert loaded.metadata == metadata
    assert not loaded.training
    arrn.save(loaded, tmp_path / "again")
    assert arrn.load(tmp_path / "again").metadata == metadata


def test_what_the_network_became_is_saved(tmp_path: Path) -> None:
    model = small()
    model.reset_classifier(7)
    model.policy = "cheap"
    arrn.save(model, tmp_path)
    assert arrn.load(tmp_path).num_classes == 7
    assert arrn.load(tmp_path).policy == "cheap"


def test_defaults_are_written_down(tmp_path: Path) -> None:
    arrn.save(small(sizes=(np.int64(8), 5)), tmp_path)
    options = json.loads((tmp_path / "config.json").read_text())["model"]["options"]
    assert options["kernel"] == "perfect"
    assert options["head_dropout"] == 0.2
    assert options["draw"] == "stratified"


def test_networks_built_by_hand_are_refused(tmp_path: Path) -> None:
    model = ARRN(
        Projection(3, 4), [LaplacianResidual(InvertedBlock(4), 4, 6, 8, 4)], ResidualBase(InvertedBlock(6)), Head(6, 2)
    )
    with pytest.raises(
        arrn.ArrnError, match=r"how to rebuild this ARRN is not known: .*builder='package\.module:function'"
    ):
        arrn.save(model, tmp_path)


def edit_model(saved: Path, **changes: object) -> None:
    edit(saved, model=json.loads((saved / "config.json").read_text())["model"] | changes)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


class Malicious:
    def __reduce__(self) -> tuple:
        return (pytest.fail, ("a pickle was loaded",))


BREAKAGES = {
    "missing weights": (lambda d: (d / "model.safetensors").unlink(), "model.safetensors is missing"),
    "missing config": (lambda d: (d / "config.json").unlink(), "config.json is missing"),
    "exported folder": (
        lambda d: (d / "config.json").rename(d / "manifest.json"),
        "is what `arrn export` made, which predicts and serves: for all else take the folder that it was made from",
    ),
    "truncated weights": (lambda d: truncate(d / "model.safetensors"), "truncated or not a safetensors file"),
    "empty weights": (lambda d: (d / "model.safetensors").write_bytes(b""), "truncated or not a safetensors file"),
    "truncated config": (lambda d: truncate(d / "config.json"), "is not valid JSON"),
    "binary config": (lambda d: (d / "config.json").write_bytes(b"\xff\xfe\x00"), "is not valid JSON"),
    "pickle": (
        lambda d: (d / "model.safetensors").write_bytes(pickle.dumps(Malicious())),
        "is a pickle, which could run any code",
    ),
    "torch.save": (lambda d: torch.save({"a": torch.ones(1)}, d / "model.safetensors"), "is a pickle"),
    "newer version": (
        lambda d: edit(d, format_version=FORMAT_VERSION + 1, arrn_version="9.0"),
        f"has format version {FORMAT_VERSION + 1}, written by arrn 9.0; this arrn",
    ),
    "foreign file": (lambda d: edit(d, format="onnx"), 'it should say "format": "arrn"'),
    "odd version": (lambda d: edit(d, format_version="new"), "format_version must be a whole number"),
    "wrong shape": (
        lambda d: safetensors.torch.save_file(
            arrn.load(d).state_dict() | {"stem.weight": torch.ones(4, 5)}, d / "model.safetensors"
        ),
        "stem.weight has shape (4, 5), expected (4, 3)",
    ),
    "missing tensor": (
        lambda d: safetensors.torch.save_file(
            {k: v for k, v in arrn.load(d).state_dict().items() if k != "stem.weight"}, d / "model.safetensors"
        ),
        "stem.weight is missing",
    ),
    "foreign tensor": (
        lambda d: safetensors.torch.save_file(
            arrn.load(d).state_dict() | {"x": torch.ones(1)}, d / "model.safetensors"
        ),
        "x does not belong to the model",
    ),
    "unknown model": (lambda d: edit(d, model={"name": "arnn", "options": {}}), "did you mean 'arrn'?"),
    "unknown option": (lambda d: edit(d, model={"name": "arrn", "options": {"size": 3}}), "did you mean 'sizes'?"),
    "no options": (lambda d: edit(d, model={"name": "arrn"}), "does not describe a model"),
    "no model": (lambda d: edit(d, model=None), "does not describe a model"),
    "unknown dtype": (lambda d: edit(d, dtype="float33"), "such as 'float32', got 'float33'"),
    "no dtype": (lambda d: edit(d, dtype="nn"), "such as 'float32', got 'nn'"),
    "dtype of whole numbers": (lambda d: edit(d, dtype="int8"), "such as 'float32', got 'int8'"),
    "odd dtypes": (lambda d: edit(d, buffer_dtypes=[3]), "does not describe a model"),
    "unknown dtype of a buffer": (lambda d: edit(d, buffer_dtypes={"stem": 3}), "such as 'float32', got 3"),
    "odd changes": (lambda d: edit_model(d, changed=3), "does not describe a model"),
    "unknown change": (lambda d: edit_model(d, changed={"polcy": "cheap"}), "did you mean 'policy'?"),
    "change to nonsense": (lambda d: edit_model(d, changed={"num_classes": "many"}), "does not describe a model"),
    "odd normalisation": (lambda d: edit(d, inputs={"mean": "high"}), "mean must be a list of numbers, got 'high'"),
    "odd class names": (lambda d: edit(d, inputs={"class_names": [1]}), "class_names must be a list of names"),
    "too few class names": (
        lambda d: edit(d, inputs={"class_names": ["cat", "dog"]}),
        "2 class names for a network of 3 classes: name each class, or let class_names be null",
    ),
}


@pytest.mark.parametrize(("damage", "message"), BREAKAGES.values(), ids=BREAKAGES.keys())
def test_broken_files_are_named(saved: Path, damage, message: str) -> None:
    damage(saved)
    with pytest.raises(arrn.ArrnError) as caught:
        arrn.load(saved)
    assert message in str(caught.value)
    assert str(saved) in str(caught.value)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 40) | st.floats() | st.sampled_from(["", "arrn", "perfect", "float32"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "options", "sizes"]), inner),
    max_leaves=4,
)


@given(data=st.data())
def test_no_damaged_config_reaches_the_user_as_a_traceback(data: st.DataObject, tmp_path_factory) -> None:
    directory = tmp_path_factory.mktemp("fuzz")
    arrn.save(small(), directory)
    document = json.loads((directory / "config.json").read_text())
    key = data.draw(
        st.sampled_from(["model", "dtype", "buffer_dtypes", "inputs", "format_version", "changed", "options", "option"])
    )
    value = data.draw(json_values)
    if key in ("options", "changed"):
        document["model"][key] = value
    elif key == "option":
        document["model"]["options"][data.draw(st.sampled_from(sorted(document["model"]["options"])))] = value
    else:
        document[key] = value
    (directory / "config.json").write_text(json.dumps(document))
    with contextlib.suppress(arrn.ArrnError):
        arrn.load(directory)


def test_a_file_is_not_a_model_directory(saved: Path) -> None:
    with pytest.raises(arrn.ArrnError, match="is not a directory: arrn"):
        arrn.load(saved / "model.safetensors")
    with pytest.raises(arrn.ArrnError, match="is not a directory"):
        arrn.load(saved / "nowhere")


def test_failed_writes_leave_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def full_disk(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    with pytest.raises(arrn.ArrnError, match=r"cannot write .*: No space left on device"):
        arrn.save(small(), tmp_path / "model")
