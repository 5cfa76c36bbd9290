"""What a file must say to rebuild a network that `create_model` did not build: a builder, or a transplant's source."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import fx, nn

from arrn.errors import ArrnError
from arrn.models import registry
from arrn.models.limits import built_within
from arrn.models.transplanting import Transplant
from arrn.models.transplanting.libraries import library_names, source_network
from arrn.nn.introspection import count_parameters
from arrn.nn.network import config_of, plain_option


def config_for(
    model: nn.Module, builder: str | None = None, options: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """What rebuilds a network: its own `config`, or that of a transplant's source, or of a builder of the user's.

    Args:
        model: the network.
        builder: ``"package.module:function"``, for a network of the user's own; its module is imported, and the
            function called to see that it makes this network.
        options: keyword arguments of that function.

    Raises:
        ArrnError: for a network of which it is not known, and for a builder that makes another one.
    """
    if builder is not None:
        return _config_with(builder, options, model)
    if options is not None:
        raise ArrnError("options are for a builder of your own: also give builder='package.module:function'")
    if getattr(model, "config", None) is not None:
        return config_of(model)
    if isinstance(model, Transplant) and (found := _config_of_transplant(model)) is not None:
        return found
    raise ArrnError(
        f"how to rebuild this {type(model).__name__} is not known: it was not made by arrn.create_model, and is no "
        "transplant of a network of timm or torchvision as these build it; name a function that builds it with "
        "builder='package.module:function'"
    )


def _config_with(builder: str, options: Mapping[str, Any] | None, model: nn.Module) -> dict[str, Any]:
    """The `config` of a network that a builder of the user's makes; imports its module and builds it once.

    Args:
        builder: ``"package.module:function"``.
        options: keyword arguments of the builder.
        model: the network that it should make, but for the values of its weights.

    Raises:
        ArrnError: for a builder that cannot be found, or that makes another network.
    """
    place, colon, _ = str(builder).partition(":")
    if not isinstance(builder, str) or not colon or registry.is_of_library(builder):
        raise ArrnError(f"builder should be 'package.module:function', got {builder!r:.80}")
    if place == "__main__":
        raise ArrnError(
            f"the builder {builder!r} stands in the program that runs, which others cannot import: put it into a "
            "module of its own"
        )
    with torch.random.fork_rng(devices=[]), registry.importing([place]):
        try:
            built = registry.create_model(builder, **(options or {}))
        except TypeError as error:
            raise ArrnError(f"the builder {builder!r} cannot be called with {dict(options or {})}: {error}") from error
    mine, theirs = _shapes(model), _shapes(built)
    wrong = [f"it makes no {name}" for name in mine if name not in theirs]
    wrong += [f"it makes {name}, which the network does not have" for name in theirs if name not in mine]
    wrong += [
        f"its {name} has shape {theirs[name]}, the network's {mine[name]}"
        for name in mine
        if name in theirs and mine[name] != theirs[name]
    ]
    if wrong:
        more = f" (and {len(wrong) - 2} more)" if len(wrong) > 2 else ""
        raise ArrnError(f"the builder {builder!r} makes another network: {'; '.join(wrong[:2])}{more}")
    config: dict[str, Any] = built.config  # type: ignore[assignment]  # set by the registry
    return config


def _config_of_transplant(model: Transplant) -> dict[str, Any] | None:
    """The `config` of a transplant whose source is a network of a library as that builds it; None for others.

    The source is found by its class and its name, where it has one; that it gives the same transplant is checked,
    layer by layer.
    """
    origin = model.origin
    if origin is None:
        return None
    options = {
        "size": model.sizes[0],
        "in_channels": model.in_channels,
        "skip_first": origin.skip_first,
        "form": model.form,
        "kernel": plain_option(model.kernel),
        "dropout": model.dropout.p,
        "draw": model.dropout.draw,
        "policy": model.policy,
    }
    # A classifier that is no linear layer counts 0 classes.
    classes_told = [model.num_classes] if model.num_classes else [_outputs(model), 0]
    for name in library_names(origin.module, origin.architecture):
        for classes in classes_told:
            if not _has_the_layers(name, classes, model):
                continue
            try:
                with torch.random.fork_rng(devices=[]), built_within(count_parameters(model)):
                    built = registry.create_model(name, num_classes=classes, **options)
            except ArrnError:
                continue
            if list(_layers(built)) == list(_layers(model)):
                found: dict[str, Any] = built.config  # type: ignore[assignment]
                return found
    return None


@torch.no_grad()
def _outputs(model: Transplant) -> int:
    bare = copy.deepcopy(model).to("meta").eval()
    return int(
        bare(torch.empty(1, model.in_channels, *model.grids[-1], device="meta", dtype=bare.stem.weight.dtype)).shape[-1]
    )


def _has_the_layers(name: str, classes: int, model: Transplant) -> bool:
    """Whether a library's network has all weights of a transplant, by their names and shapes: that is quick to see."""
    library, _, network = name.partition(":")
    try:
        with torch.device("meta"):
            source = source_network(library, network, max(1, classes))
    except NotImplementedError:  # its constructor computes with tensors
        source = source_network(library, network, max(1, classes))
    theirs = _shapes(source)
    mine = {
        own: shape
        for key, shape in _shapes(model).items()
        if (own := re.sub(r"^(residuals\.\d+\.block|base|head\.layers)\.", "", key)) != key
        and not own.endswith("entering_offset.value")
    }
    return all(theirs.get(key) == shape for key, shape in mine.items())


def _layers(model: nn.Module) -> Iterator[tuple[str, ...]]:
    """All that tells one network from another, but for its weights' values."""
    for name, module in model.named_modules():
        code = module.code if isinstance(module, fx.GraphModule) else ""
        yield name, type(module).__name__, module.extra_repr(), code
    for name, shape in _shapes(model).items():
        yield name, str(shape)


def _shapes(model: nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
