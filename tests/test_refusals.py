"""What the library refuses in words of its own: metadata that means nothing, inputs that no network can take."""

from typing import Any

import pytest
import torch

import arrn
from arrn.data import Normalisation
from arrn.errors import ArrnError
from arrn.metadata import Metadata
from saved_networks import small

WRONG = [
    ({"mean": (0.5,) * 3, "std": (0.0,) * 3}, r"std must be above 0 in every channel, got \(0.0"),
    ({"mean": (0.5,) * 3, "std": (0.1, -1.0, 0.1)}, "std must be above 0"),
    ({"mean": (0.5,) * 3, "std": (1e-300,) * 3}, "std must be at least 1e-09"),
    ({"mean": (0.5,) * 3, "std": (0.1, 0.1)}, "mean and std must have one number per channel each, got 3 and 2"),
    ({"mean": (0.5, float("nan")), "std": (0.1, 0.1)}, "mean must be numbers of at most 1e\\+09"),
    ({"mean": (0.5, 10**4000), "std": (0.1, 0.1)}, "mean must be numbers of at most 1e\\+09"),
    ({"mean": ("0.5",), "std": (0.1,)}, "mean must be numbers"),
    ({"mean": (), "std": ()}, "got 0 and 0"),
]


@pytest.mark.parametrize(("options", "message"), WRONG)
def test_statistics_that_nothing_can_be_normalised_by_are_refused(options: dict[str, Any], message: str) -> None:
    for make in (Metadata, Normalisation):
        with pytest.raises(ArrnError, match=message):
            make(**options)


def test_metadata_says_what_it_should_be() -> None:
    for options, message in [
        ({"std": (0.0,)}, "std must be above 0"),
        ({"mean": "high"}, "mean of the metadata is 'high': it should be a tuple"),
        ({"window": -1.0}, "window must be a number of seconds above 0, up to 1e\\+09, got -1.0"),
        ({"window": float("inf")}, "window must be a number of seconds above 0"),
    ]:
        with pytest.raises(ArrnError, match=message):
            Metadata(**options)  # type: ignore[arg-type]
    assert Metadata(mean=[0.5], std=[0.25]).std == (0.25,)  # type: ignore[arg-type]


def test_the_normalisation_of_other_channels_is_not_saved(tmp_path: Any) -> None:
    with pytest.raises(ArrnError, match="mean should have 3 numbers, one for each channel, got"):
        arrn.save(small(), tmp_path / "model", Metadata((0.5,) * 2, (0.25,) * 2))
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("name", ["arrn", "resnet18", "fourier_operator"])
def test_inputs_without_numbers_or_with_gaps_are_refused(name: str) -> None:
    model = arrn.create_model(name).eval()
    x = torch.rand(1, 3, 8, 8)
    with pytest.raises(
        ArrnError, match="the network is on cpu, but the signal is on meta: that device holds no numbers"
    ):
        model(x.to("meta"))
    for sparse in (x.to_sparse(), x.flatten(1).to_sparse_coo()):
        with pytest.raises(ArrnError, match=r"expected a dense tensor, got one of layout torch.sparse_coo"):
            model(sparse)
    with pytest.raises(ArrnError, match="expected a dense tensor, got a nested one"):
        model(torch.nested.nested_tensor([x[0], x[0, :2]], layout=torch.jagged))
    with torch.device("meta"):
        bare = arrn.create_model(name).eval()
    assert bare(x.to("meta")).shape == (1, 10)
    with pytest.raises(ArrnError, match=r"the network is on meta, but the signal is on cpu"):
        bare(x)


def test_an_adapted_network_refuses_them_too() -> None:
    adapted = small().eval().at_resolution(8)
    with pytest.raises(ArrnError, match="the signal is on meta"):
        adapted(torch.rand(1, 3, 8, 8, device="meta"))
    with pytest.raises(ArrnError, match="expected a dense tensor"):
        arrn.signal.resample(torch.rand(1, 3, 8, 8).to_sparse(), 4)
