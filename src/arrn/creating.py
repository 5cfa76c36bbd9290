"""Networks by name: fresh, with weights to start from, or as backbones."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from arrn.errors import ArrnError
from arrn.hub import locate
from arrn.model_folder import shipped_weights
from arrn.models import registry
from arrn.nn.backbone import Backbone
from arrn.nn.network import change_option, classes_of
from arrn.saving import read_saved


def create_model(name: str, pretrained: str | os.PathLike[str] | bool | None = None, **options: Any) -> nn.Module:
    """Builds a network by name.

    The generic builder ``"arrn"`` makes any ladder; see `arrn.models.LadderOptions` for its options.

    Args:
        name: one of `arrn.list_models`; or ``"timm:NAME"`` or ``"torchvision:NAME"``, the transplant of a network of
            these libraries; or ``"package.module:function"`` of a module in `arrn.models.importing`.
        pretrained: True for the weights that belong to the name: those of timm or torchvision, which are downloaded
            once, or those in ``weights/NAME`` of the clone of the repository that `arrn` runs from. Or a folder
            that `arrn.save` wrote for a network of that name, or the address of such a folder on the hub,
            ``hf://OWNER/NAME``. Options that are not given are then the saved options, and the weights are float32.
            With another `num_classes` the classifier starts with new weights.
        options: the options of the model. Every adaptive network also takes ``features_only=True`` and `out_indices`,
            which return its `Backbone`: see `create_backbone`.

    Raises:
        ArrnError: for a name or an option that is not known, for weights of another model, and for files that `load`
            refuses.

    >>> model = create_model("arrn", sizes=(16, 8), features=(8, 16), depth=1, num_classes=4)
    >>> model.sizes
    (16, 8)
    """
    if pretrained is None or pretrained is False:
        return registry.create_model(name, **options)
    registry.model_options(name)  # a name that is not known is the first thing to say
    if isinstance(pretrained, str | os.PathLike):
        pretrained = locate(pretrained)
    if options.get("features_only") and not _holds_backbone(pretrained):
        whole = {key: value for key, value in options.items() if key not in registry.BACKBONE_OPTIONS}
        return Backbone(create_model(name, pretrained, **whole), options.get("out_indices"))
    if pretrained is True:
        if (builder := registry.pretrained_builder(name)) is not None:
            return registry.build_model(name, builder, options)
        pretrained = shipped_weights(name)
    if not isinstance(pretrained, Path):
        raise ArrnError(f"pretrained takes True or the folder that arrn.save wrote, got {pretrained!r}")
    saved = read_saved(pretrained)
    if saved.name != name:
        raise ArrnError(f"{pretrained} holds the weights of {saved.name!r}, not of {name!r}")
    if saved.options.get("features_only") and not options.get("features_only"):
        raise ArrnError(f"{pretrained} holds a backbone, not a whole network: arrn.load({str(pretrained)!r}) reads it")
    classes = options.pop("num_classes", None)  # the saved classifier must fit the saved weights first
    model = saved.build(options)
    saved.fill(model, None)
    if classes is not None and classes != classes_of(model):
        change_option(model, "num_classes", classes)
    return model


def _holds_backbone(pretrained: object) -> bool:
    return isinstance(pretrained, Path) and bool(read_saved(pretrained).options.get("features_only"))


def create_backbone(
    name: str,
    out_indices: Sequence[int] | None = None,
    pretrained: str | os.PathLike[str] | bool | None = None,
    **options: Any,
) -> Backbone:
    """Builds an adaptive network without its head, which returns feature maps: ``features_only=True`` of timm.

    For inputs of every size, the list of maps has the same length, and each map has the same channels and grid.

    Args:
        name: an adaptive network, as for `create_model`.
        out_indices: which maps the backbone returns, counted from the highest resolution; negative numbers count from
            the end. None is all maps.
        pretrained: as for `create_model`. The weights are those of a whole network; its head is left out.
        options: the options of the model.

    Raises:
        ArrnError: for a network that does not adapt, for an index without a map, and in the cases of `create_model`.

    >>> import torch
    >>> backbone = create_backbone("arrn_small", out_indices=(0, 1))
    >>> backbone.feature_info.channels(), backbone.feature_info.reduction()
    ([16, 32], [1, 2])
    >>> [tuple(features.shape) for features in backbone(torch.rand(1, 3, 20, 30))]
    [(1, 16, 32, 32), (1, 32, 16, 16)]
    """
    backbone = create_model(name, pretrained, features_only=True, out_indices=out_indices, **options)
    assert isinstance(backbone, Backbone)
    return backbone
