"""`create_model(name, pretrained=FOLDER)`: the saved weights and options, other classes, and whose names they have."""

from pathlib import Path

import numpy as np
import pytest
import torch

import arrn
import arrn.model_folder
from arrn.errors import ArrnError
from arrn.metadata import Metadata
from arrn.models.registry import _builders
from arrn.nn import ARRN
from saved_networks import Plain, edit, own_transplant, small

ROOT = Path(__file__).parents[1]


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> ARRN:
    monkeypatch.setitem(_builders, "own", own_transplant)
    return arrn.create_model("own").eval()


def test_a_pretrained_network_has_the_saved_weights_and_options(tmp_path: Path) -> None:
    torch.manual_seed(0)
    saved = arrn.create_model("arrn", sizes=(8, 4), features=(4, 8), depth=1, num_classes=3).half()
    arrn.save(saved, tmp_path, Metadata((0.5,) * 3, (0.25,) * 3))
    model = arrn.create_model("arrn", pretrained=tmp_path, dropout=0.5)
    assert model.sizes == (8, 4)
    assert model.dropout.p == 0.5
    assert model.metadata.mean == (0.5,) * 3
    for name, tensor in model.state_dict().items():
        assert tensor.dtype != torch.float16
        torch.testing.assert_close(tensor, saved.state_dict()[name].to(tensor.dtype))


def test_with_other_classes_only_the_classifier_is_new(tmp_path: Path) -> None:
    saved = arrn.create_model("arrn", sizes=(8, 4), features=(4, 8), depth=1, num_classes=3)
    arrn.save(saved, tmp_path)
    model = arrn.create_model("arrn", pretrained=tmp_path, num_classes=5)
    changed = [name for name, t in model.state_dict().items() if t.shape != saved.state_dict()[name].shape]
    assert changed == ["head.classifier.weight", "head.classifier.bias"]
    same = [name for name in model.state_dict() if name not in changed]
    assert all(torch.equal(model.state_dict()[name], saved.state_dict()[name]) for name in same)
    assert model.config["options"]["num_classes"] == 5
    assert arrn.create_model("arrn", pretrained=tmp_path, num_classes=0)(torch.zeros(1, 3, 8, 8)).shape == (1, 8)


def test_as_many_classes_as_there_are_keep_the_classifier(own: ARRN, tmp_path: Path) -> None:
    arrn.save(own, tmp_path)  # which does not say how many
    model = arrn.create_model("own", pretrained=tmp_path, num_classes=5)
    assert torch.equal(model.head.layers.classifier.weight, own.head.layers.classifier.weight)


def test_a_network_that_cannot_change_its_classes_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_builders, "own", Plain)
    arrn.save(arrn.create_model("own"), tmp_path)
    with pytest.raises(ArrnError, match="the num_classes of a Plain cannot be changed"):
        arrn.create_model("own", pretrained=tmp_path, num_classes=3)


def test_names_of_other_classes_are_dropped(tmp_path: Path) -> None:
    told = Metadata((0.5,) * 3, (0.25,) * 3, class_names=("cat", "dog", "ship"))
    arrn.save(small(), tmp_path, told)
    for classes in (5, 0, 2):
        changed = arrn.create_model("arrn", pretrained=tmp_path, num_classes=classes).metadata
        assert changed == Metadata(told.mean, told.std)
    assert arrn.create_model("arrn", pretrained=tmp_path, num_classes=3).metadata == told
    model = arrn.load(tmp_path)
    model.reset_classifier(3)
    assert model.metadata == told
    model.reset_classifier(np.int64(4))
    arrn.save(model, tmp_path / "four")
    assert arrn.load(tmp_path / "four").metadata == Metadata(told.mean, told.std)
    with pytest.raises(ArrnError, match="3 class names for a network of 4 classes"):
        arrn.save(model, tmp_path / "wrong", told)
    assert not (tmp_path / "wrong").exists()


def test_names_are_dropped_where_the_builder_does_not_know_the_classes(own: ARRN, tmp_path: Path) -> None:
    arrn.save(own, tmp_path, Metadata(class_names=tuple("abcde")))
    assert arrn.load(tmp_path).metadata.class_names == tuple("abcde")
    assert arrn.create_model("own", pretrained=tmp_path, num_classes=4).metadata.class_names is None
    edit(tmp_path, inputs={"class_names": ["a", "b"]})
    with pytest.raises(ArrnError, match="2 class names for a network of 5 classes"):
        arrn.load(tmp_path)


def test_a_pretrained_network_is_built_once(own: ARRN, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrn.save(own, tmp_path)
    built = []
    monkeypatch.setitem(_builders, "own", lambda size: built.append(size) or own_transplant(size))
    arrn.create_model("own", pretrained=tmp_path, size=32)
    assert built == [32]


def test_an_option_that_the_saved_network_does_not_have_is_named(tmp_path: Path) -> None:
    arrn.save(small(), tmp_path)
    with pytest.raises(ArrnError, match=r"config.json with \{'dropuot': 0.3\}: unknown option .* mean 'dropout'"):
        arrn.create_model("arrn", pretrained=tmp_path, dropuot=0.3)


def test_weights_of_another_network_are_refused(tmp_path: Path) -> None:
    arrn.save(arrn.create_model("arrn", sizes=(8, 4), features=(4, 8), depth=1), tmp_path)
    with pytest.raises(ArrnError, match="holds the weights of 'arrn', not of 'arrn_small'"):
        arrn.create_model("arrn_small", pretrained=tmp_path)
    with pytest.raises(ArrnError, match="has shape"):
        arrn.create_model("arrn", pretrained=tmp_path, features=(4, 6))


def test_inputs_are_normalised_as_in_training() -> None:
    metadata = Metadata((0.49, 0.48, 0.45), (0.25, 0.24, 0.26))
    images = torch.randint(256, (2, 3, 5, 7), dtype=torch.uint8)
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in (metadata.mean, metadata.std))
    expected = (images / 255 - mean) / std
    torch.testing.assert_close(metadata.normalise(images), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(metadata.normalise(images / 255), expected, rtol=1e-5, atol=1e-5)
    with pytest.raises(arrn.ArrnError, match=r"expected shape \(batch, 3, \*space\), got \(2, 1, 4, 4\)"):
        metadata.normalise(torch.zeros(2, 1, 4, 4))
    with pytest.raises(arrn.ArrnError, match="saved without the mean"):
        Metadata().normalise(images)
    with pytest.raises(arrn.ArrnError, match=r"torch\.uint8, torch\.int16 or floats .*, got torch\.int64"):
        metadata.normalise(images.long())
    with pytest.raises(arrn.ArrnError, match=r"expected a torch\.Tensor, got ndarray"):
        metadata.normalise(images.numpy())  # type: ignore[arg-type]


def test_floats_that_are_not_of_full_scale_1_are_refused() -> None:
    metadata = Metadata((0.49, 0.48, 0.45), (0.25, 0.24, 0.26))
    images = torch.randint(256, (2, 3, 5, 7), dtype=torch.uint8)
    images[0, 0, 0, 0] = 255
    for wrong in (images.float(), images.half(), torch.full((1, 3, 4, 4), -40.0)):
        with pytest.raises(arrn.ArrnError, match=r"should have 1 for full scale, but the largest is .* divide floats"):
            metadata.normalise(wrong)
    checkered = (torch.arange(16)[:, None] + torch.arange(16)) % 2.0
    cubic = torch.nn.functional.interpolate(checkered.expand(1, 3, 16, 16), (61, 61), mode="bicubic")
    assert float(cubic.max()) > 1.05
    metadata.normalise(cubic)  # what resampling overshoots by is no mistake
    metadata.normalise(torch.zeros(0, 3, 4, 4))
    kelvin = Metadata((280.0,), (12.0,))  # of a network of the user's own
    torch.testing.assert_close(kelvin.normalise(torch.full((1, 1, 4), 292.0)), torch.ones(1, 1, 4))


def test_true_is_what_a_clone_of_the_repository_has() -> None:
    model = arrn.create_model("arrn_small", pretrained=True).eval()
    x = torch.rand(1, 3, 12, 12)
    assert torch.equal(model(x), arrn.load(ROOT / "weights" / "arrn_small")(x))
    assert model.metadata.class_names is not None
    assert arrn.create_model("arrn_small", pretrained=True, num_classes=3).num_classes == 3
    with pytest.raises(arrn.ArrnError, match=r"weights has no weights of 'arrn_resnet18', only of arrn_cifar10, "):
        arrn.create_model("arrn_resnet18", pretrained=True)


def test_without_a_clone_it_says_where_weights_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrn.model_folder, "_CHECKOUT", tmp_path)
    with pytest.raises(arrn.ArrnError, match=r"clone it and give the path, pretrained='CLONE/weights/arrn_small'"):
        arrn.create_model("arrn_small", pretrained=True)
    with pytest.raises(arrn.ArrnError, match=r"unknown model 'arrn_smal'; did you mean 'arrn_small'\?"):
        arrn.create_model("arrn_smal", pretrained=True)


def test_pretrained_that_is_no_folder_is_refused() -> None:
    with pytest.raises(arrn.ArrnError, match=r"pretrained takes True or the folder that arrn\.save wrote, got 3"):
        arrn.create_model("arrn_small", pretrained=3)
