"""Backbones by name: of every design, saved and loaded, with pretrained weights, under the heads of other libraries."""

from collections import OrderedDict
from pathlib import Path

import pytest
import torch
from torch import nn

import arrn
from arrn.data import IMAGE
from arrn.metadata import Metadata
from arrn.nn import Backbone
from arrn.runs.building import check_fit

SMALL = {
    "arrn": {"sizes": (16, 8, 4), "features": (4, 6, 8), "depth": 1},
    "arrn_pyramid": {"sizes": (16, 8, 4), "width": 8, "dropout": 0.3},
    "arrn_medium": {"sizes": (16, 8, 4), "width": 8, "repeats": (1, 1)},
    "arrn_small": {},
    "arrn_resnet18": {"size": 64},
    "timm:regnety_002": {"size": 64},
    "torchvision:mobilenet_v3_small": {"size": 64},
    "arrn_audio_small": {},
}


@pytest.mark.parametrize("name", SMALL)
@torch.no_grad()
def test_every_design_is_a_backbone_by_name(name: str) -> None:
    backbone = arrn.create_backbone(name, **SMALL[name])
    assert isinstance(backbone, Backbone)
    info = backbone.feature_info
    x = torch.rand(2, backbone.in_channels, *(max(1, n // 3) for n in backbone.grids[0]))
    maps = backbone.eval()(x)
    assert [tuple(features.shape[1:]) for features in maps] == [
        (channels, *grid) for channels, grid in zip(info.channels(), info.grid(), strict=True)
    ]
    again = arrn.create_model(name, features_only=True, out_indices=(1, -1), **SMALL[name])
    assert isinstance(again, Backbone)
    assert again.out_channels == [info.channels(1), info.channels(len(info) - 1)]
    assert again.config["options"]["out_indices"] == [1, len(info) - 1]


def test_maps_of_a_transplant_are_those_that_timm_gives_of_its_source() -> None:
    timm = pytest.importorskip("timm")
    source = timm.create_model("regnety_002", features_only=True).feature_info
    own = arrn.create_backbone("timm:regnety_002", out_indices=range(1, 6), size=64).feature_info
    assert own.channels() == source.channels()
    assert own.reduction() == source.reduction()
    keys = ["num_chs", "reduction"]
    assert own.get_dicts(keys) == source.get_dicts(keys)


@torch.no_grad()
def test_backbones_are_saved_and_loaded(tmp_path: Path) -> None:
    backbone = arrn.create_backbone("arrn_pyramid", (0, -1), **SMALL["arrn_pyramid"]).eval()
    backbone.policy = "cheap"
    arrn.save(backbone, tmp_path / "net", Metadata((0.5,) * 3, (0.25,) * 3))
    loaded = arrn.load(tmp_path / "net")
    assert isinstance(loaded, Backbone)
    assert (loaded.policy, loaded.feature_info.out_indices) == ("cheap", (0, 3))
    assert loaded.metadata.mean == (0.5,) * 3
    x = torch.rand(2, 3, 9, 11)
    assert all(map(torch.equal, loaded(x), backbone(x)))
    other = arrn.create_backbone("arrn_pyramid", (1,), tmp_path / "net").eval()
    assert torch.equal(other(x)[0], Backbone(backbone.network, (1,))(x)[0])
    with pytest.raises(arrn.ArrnError, match="holds a backbone, not a whole network"):
        arrn.create_model("arrn_pyramid", pretrained=tmp_path / "net")
    with pytest.raises(arrn.ArrnError, match="a backbone returns feature maps instead of probabilities of classes"):
        arrn.Predictor(tmp_path / "net")
    with pytest.raises(
        arrn.ArrnError, match="'arrn_pyramid' is a backbone here, which returns feature maps instead of classes"
    ):
        check_fit(loaded, "arrn_pyramid", IMAGE, "sample")


@torch.no_grad()
def test_backbones_take_the_weights_of_whole_networks(tmp_path: Path) -> None:
    whole = arrn.create_model("arrn", num_classes=3, **SMALL["arrn"]).eval()
    whole.metadata = Metadata((0.5,) * 3, (0.25,) * 3, class_names=("a", "b", "c"))
    arrn.save(whole, tmp_path / "net")
    backbone = arrn.create_backbone("arrn", pretrained=tmp_path / "net").eval()
    x = torch.rand(2, 3, 9, 11)
    torch.testing.assert_close(whole.head(backbone(x)[-1]), whole(x))
    assert (backbone.metadata.mean, backbone.metadata.class_names) == ((0.5,) * 3, None)
    arrn.save(backbone, tmp_path / "backbone")
    assert torch.equal(arrn.load(tmp_path / "backbone")(x)[0], backbone(x)[0])


def test_what_is_no_backbone_is_told() -> None:
    with pytest.raises(arrn.ArrnError, match="made of an adaptive network, and a FixedResolution is none"):
        arrn.create_backbone("resnet18")
    with pytest.raises(arrn.ArrnError, match="also give features_only=True"):
        arrn.create_model("arrn_small", out_indices=(0,))
    with pytest.raises(arrn.ArrnError, match=r"from -3 to 2, got \(3,\)"):
        arrn.create_backbone("arrn_small", (3,))
    assert not isinstance(arrn.create_model("arrn_small", features_only=False, out_indices=None), Backbone)


class Pyramid(nn.Module):
    """What torchvision's detectors take: maps by name, all of one width."""

    def __init__(self, backbone: Backbone, width: int) -> None:
        from torchvision.ops import FeaturePyramidNetwork

        super().__init__()
        self.backbone, self.out_channels = backbone, width
        self.pyramid = FeaturePyramidNetwork(backbone.feature_info.channels(), width)

    def forward(self, x: torch.Tensor) -> OrderedDict[str, torch.Tensor]:
        return self.pyramid(OrderedDict((str(n), features) for n, features in enumerate(self.backbone(x))))


@pytest.mark.parametrize("name", ["arrn", "arrn_pyramid", "arrn_resnet18"])
def test_the_feature_pyramid_of_torchvision_stands_on_it(name: str) -> None:
    pytest.importorskip("torchvision")
    torch.manual_seed(0)
    model = Pyramid(arrn.create_backbone(name, **SMALL[name]), 8).double().eval()
    grids = model.backbone.feature_info.grid()
    for size in ((20, 31), (5, 7), (16, 16), (1, 1)):
        x = torch.randn(2, 3, *size, dtype=torch.float64)
        maps = model(x)
        assert [tuple(features.shape) for features in maps.values()] == [(2, 8, *grid) for grid in grids]
        full = model.pyramid(OrderedDict((str(n), each) for n, each in enumerate(model.backbone(x, adapt=False))))
        for features, expected in zip(maps.values(), full.values(), strict=True):
            torch.testing.assert_close(features, expected, rtol=1e-9, atol=1e-9)


def test_a_detector_of_torchvision_trains_on_it() -> None:
    pytest.importorskip("torchvision")
    from torchvision.models.detection import RetinaNet
    from torchvision.models.detection.anchor_utils import AnchorGenerator

    torch.manual_seed(0)
    backbone = arrn.create_backbone("arrn_pyramid", (1, 2), sizes=(32, 16, 8), width=8, dropout=0.5, draw="sample")
    anchors = AnchorGenerator(((8,), (16,)), ((0.5, 1.0, 2.0),) * 2)
    statistics = {"image_mean": [0.5] * 3, "image_std": [0.25] * 3}
    detector = RetinaNet(Pyramid(backbone, 8), 2, anchor_generator=anchors, min_size=32, max_size=32, **statistics)
    images = [torch.rand(3, 32, 24), torch.rand(3, 17, 20)]
    boxes = [{"boxes": torch.tensor([[4.0, 5, 15, 16]]), "labels": torch.tensor([1])}] * 2
    sum(detector(images, boxes).values()).backward()
    assert all(p.grad is not None for n, p in detector.named_parameters() if p.requires_grad and ".base." not in n)
    assert len(detector.eval()(images)) == 2


@pytest.mark.parametrize("decoder", ["Unet", "FPN", "Segformer"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_decoders_of_segmentation_models_pytorch_stand_on_it(decoder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    library = pytest.importorskip("segmentation_models_pytorch")

    class Encoder(nn.Module):
        def __init__(self, depth: int, output_stride: int) -> None:
            super().__init__()
            self.backbone = arrn.create_backbone("arrn_pyramid", range(depth + 1), sizes=(32, 16, 8), width=8)
            self.out_channels = self.backbone.out_channels
            self.output_stride = self.backbone.feature_info.reduction()[-1]

        def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
            return self.backbone(x)

        def set_in_channels(self, channels: int, pretrained: bool) -> None:
            assert channels == self.backbone.in_channels

    entry = {"encoder": Encoder, "params": {}, "pretrained_settings": {}}
    monkeypatch.setitem(library.encoders.encoders, "arrn", entry)
    options = {"Unet": {"decoder_channels": (16, 8, 8)}, "FPN": {"upsampling": 1}, "Segformer": {}}[decoder]
    model = getattr(library, decoder)("arrn", encoder_depth=3, encoder_weights=None, classes=2, **options).eval()
    assert model(torch.rand(2, 3, 32, 32)).shape == (2, 2, 32, 32)
    assert model(torch.rand(2, 3, 16, 24)).shape == (2, 2, 32, 32)
