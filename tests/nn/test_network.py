"""What every network tells of itself, where inputs enter it, and what is taken for granted of any other module."""

import copy

import pytest
import torch
from torch import nn

import arrn
from arrn.metadata import Metadata
from arrn.models import entry_grid, entry_kernel, signal_axes
from arrn.nn import Network
from arrn.nn.layers import way_in
from arrn.nn.network import as_network, classes_of, enter_together
from arrn.signal import kernel, resample

OPTIONS = {
    "arrn": {"sizes": (12, 8, 5), "features": (4, 6, 8), "depth": 1},
    "resnet18": {"size": 12},
    "resnet18_switchable": {"sizes": (12, 8)},
    "fourier_operator": {"size": 12, "features": 4, "modes": 2, "depth": 1},
}


@pytest.fixture(params=OPTIONS)
def model(request: pytest.FixtureRequest) -> nn.Module:
    if request.param.startswith("resnet"):
        pytest.importorskip("torchvision")
    return arrn.create_model(request.param, num_classes=4, in_channels=2, **OPTIONS[request.param])


def test_every_network_tells_what_it_is(model: nn.Module) -> None:
    assert isinstance(model, Network)
    assert (model.ndim, model.in_channels, model.num_classes) == (2, 2, 4)
    assert model.sizes == tuple(grid[0] for grid in model.grids)
    assert model.config is not None
    assert model.adapts == (model.config["name"] == "arrn") == (model.policy is not None)
    assert as_network(model) is model
    assert signal_axes(model) == 2
    model.reset_classifier(7)
    assert (model.num_classes, classes_of(model), model.config["options"]["num_classes"]) == (7, 7, 7)


def test_a_fresh_network_says_that_its_normalisation_is_not_known(model: nn.Module) -> None:
    assert model.metadata == Metadata()
    with pytest.raises(arrn.ArrnError, match=r"is untrained, or was saved without the mean .*: set model\.metadata ="):
        model.metadata.normalise(torch.rand(1, 2, 12, 12))


def test_one_network_s_metadata_is_not_another_s(model: nn.Module) -> None:
    model.metadata = Metadata(mean=(0.5,), std=(0.5,))
    assert copy.deepcopy(model).metadata == model.metadata
    assert type(model).metadata == Metadata()


def test_inputs_enter_on_grids_of_the_network() -> None:
    grids = {}
    for name in ("arrn", "resnet18_switchable", "fourier_operator"):
        model = arrn.create_model(name, **OPTIONS[name])
        grids[name] = [entry_grid(model, (n, n)) for n in (5, 7, 9, 20)]
        assert entry_kernel(model) == kernel("perfect")
    assert grids["arrn"] == [(5, 5), (8, 8), (12, 12), (12, 12)]
    assert grids["resnet18_switchable"] == [(8, 8), (8, 8), (12, 12), (12, 12)]
    assert grids["fourier_operator"] == [(5, 5), (7, 7), (9, 9), (12, 12)]
    model = arrn.create_model("arrn", **OPTIONS["arrn"])
    assert entry_grid(model, (7, 7), "cheap") == (5, 5)
    assert entry_grid(model, (7, 7), adapt=False) == (12, 12)


def test_any_other_module_takes_images_of_any_size() -> None:
    module = nn.Conv2d(3, 4, 1)
    stand_in = as_network(module)
    assert (stand_in.grids, stand_in.ndim, stand_in.adapts, stand_in.policy) == ((), 2, False, None)
    assert stand_in.grids_for_all_parts == ()
    assert entry_grid(module, (7, 9)) == (7, 9)
    assert entry_kernel(module) == kernel("perfect")
    assert signal_axes(module) is None


def test_what_enters_on_one_grid_is_one_batch() -> None:
    model = arrn.create_model("arrn", **OPTIONS["arrn"])
    signals = [torch.rand(count, 3, size, size) for count, size in ((1, 7), (2, 12), (3, 8))]
    found = list(enter_together(model, signals, prepare=lambda x: 2 * x))
    assert [(grid, places) for grid, _, places in found] == [((8, 8), [0, 2]), ((12, 12), [1])]
    torch.testing.assert_close(found[0][1], 2 * torch.cat([resample(signals[0], 8), signals[2]]))
    torch.testing.assert_close(found[1][1], 2 * signals[1])
    ((grid, whole, places),) = enter_together(model, signals, adapt=False)
    assert (grid, tuple(whole.shape), places) == ((12, 12), (6, 3, 12, 12), [0, 1, 2])


@torch.no_grad()
def test_the_way_in_is_planned_once_and_serves_every_copy() -> None:
    plan = way_in((12, 9), (16, 16), kernel("perfect"), 3, 64)
    assert way_in((12, 9), (16, 16), kernel("perfect"), 3, 64) is plan
    assert not any(isinstance(part, torch.Tensor) for part in plan)
    model = arrn.create_model("arrn", **OPTIONS["arrn"]).eval()
    x = torch.rand(2, 3, 7, 6)
    answer = model(x)
    twin = copy.deepcopy(model).double()
    torch.testing.assert_close(twin(x.double()).float(), answer)
    torch.testing.assert_close(twin.float()(x), answer)
    twin.stem.weight.mul_(2)
    assert not torch.allclose(twin(x), answer)
