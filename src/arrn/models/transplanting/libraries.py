"""Transplants by name: the paper's architectures, and any network of torchvision or timm as ``LIBRARY:NAME``.

A name and options are all that a file needs to rebuild such a transplant: the source is built afresh, with random
weights, and transplanted again; the saved weights then replace them.
"""

from __future__ import annotations

import socket
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlparse
from urllib.request import getproxies

import torch
from torch import nn

from arrn.errors import ArrnError, first_line, needs
from arrn.metadata import Metadata
from arrn.models.fixed import torchvision_network
from arrn.models.limits import is_described_by_file
from arrn.models.registry import AdaptiveOptions, as_whole, takes
from arrn.models.transplanting.fitting import Transplant
from arrn.models.transplanting.transplant import transplant
from arrn.nn.difference import Form
from arrn.signal.grid import Size

TRANSPLANTS = {
    "resnet18": 0,
    "resnet50": 0,
    "resnet101": 0,
    "wide_resnet50_2": 0,
    "wide_resnet101_2": 0,
    "mobilenet_v3_small": 2,
    "mobilenet_v3_large": 2,
}
"""Each architecture of the paper and how many of its first residuals the paper discards."""


@dataclass(frozen=True, kw_only=True)
class TransplantOptions(AdaptiveOptions):
    """What a transplant by name can be told.

    Attributes:
        size: the highest resolution.
        skip_first: how many of the first residuals are discarded.
        form: of the residuals, ``"paper"`` or ``"difference"``; None: the one that suits the network.
    """

    size: Size = 32
    skip_first: int = 0
    form: Form | None = "paper"


def transplant_builder(name: str, skip_first: int) -> Callable[..., Transplant]:
    """A builder for the registry: torchvision's network of that name, randomly initialised, transplanted."""

    @takes(TransplantOptions(skip_first=skip_first))
    def build(options: TransplantOptions) -> Transplant:
        source = torchvision_network(name, options.num_classes, options.in_channels)
        # Tests check it; here that would take longer than all the rest, at each load too.
        return transplant(source, **vars(options), check=False)

    build.__doc__ = f"torchvision's {name} as an ARRN, see `arrn.transplant`."
    return build


LIBRARIES = ("timm", "torchvision")
"""What can stand before the colon of a transplant's name."""

_FIRST_SIZE = 64


def library_builder(name: str, pretrained: bool = False) -> Callable[..., Transplant]:
    """A builder for the registry: the transplant of a library's network, such as ``"timm:regnety_002"``.

    Args:
        name: the library and the network's name in it.
        pretrained: whether the source has the weights that the library offers, instead of random ones; the
            transplant's `metadata` then tells how these want their inputs normalised.

    Raises:
        ArrnError: for a library that is not installed and a name that it does not know; the builder also for weights
            that cannot be got, and for networks that cannot be transplanted.
    """
    library, _, network = name.partition(":")
    _check_known(library, network)

    @takes(TransplantOptions(size=_FIRST_SIZE, form=None))
    def build(options: TransplantOptions) -> Transplant:
        classes = as_whole("num_classes", options.num_classes, least=0)
        source = source_network(library, network, max(1, classes), pretrained)
        given = vars(options) | {"num_classes": None if classes else 0}  # the source has the right classifier
        # A network that a file describes passed the check when it was built first.
        model = transplant(source, **given, check=not is_described_by_file())
        if pretrained:
            model.metadata = _normalisation_of(library, network, model.in_channels)
        return model

    build.__doc__ = f"{library}'s {network} as an ARRN, see `arrn.transplant`."
    return build


def _check_known(library: str, network: str) -> None:
    known = _known_networks(library)
    if network in known or (library == "timm" and network in _timm_weights()):
        return
    near = get_close_matches(network[:80], known, n=1, cutoff=0.5)
    hint = f"; did you mean {f'{library}:{near[0]}'!r}?" if near else ""
    raise ArrnError(f"{library} has no network named {network!r:.80} that can be transplanted{hint}")


@lru_cache
def _known_networks(library: str) -> frozenset[str]:
    if library == "timm":
        with needs("timm", "a network named timm:NAME", "timm"):
            import timm
        return frozenset(timm.list_models())
    with needs("torchvision", "a network named torchvision:NAME"):
        from torchvision import models
    return frozenset([*models.list_models(module=models), *models.list_models(module=models.video)])


def library_names(module: str, architecture: str | None) -> list[str]:
    """The names under which a library may have made a network, by the module of its class and its name in timm."""
    library = module.partition(".")[0]
    if library == "timm" and architecture is not None:
        names = [architecture] if architecture in _known_networks("timm") else []
    elif library == "torchvision":
        from torchvision.models import get_model_builder

        names = [name for name in sorted(_known_networks(library)) if get_model_builder(name).__module__ == module]
    else:
        names = []
    return [f"{library}:{name}" for name in names]


@lru_cache
def _timm_weights() -> frozenset[str]:
    """Names of networks together with those of their weights, such as ``"resnet50.a1_in1k"``."""
    import timm

    return frozenset(timm.list_pretrained())


def source_network(library: str, network: str, num_classes: int, pretrained: bool = False) -> nn.Module:
    """A network of a library, before it is transplanted.

    Args:
        library: one of `LIBRARIES`.
        network: its name there.
        num_classes: outputs, at least 1.
        pretrained: with the library's weights, from its cache or the network; a classifier for other classes is new.

    Raises:
        ArrnError: for weights that cannot be got; for options that the network does not take.
    """
    build = _timm_network if library == "timm" else _torchvision_source
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the default initialisation of some will change
        return build(network, num_classes, pretrained)


def _timm_network(network: str, num_classes: int, pretrained: bool) -> nn.Module:
    import timm

    if not pretrained:
        return timm.create_model(network, num_classes=num_classes)
    if not getattr(timm.get_pretrained_cfg(network), "has_weights", False):
        raise ArrnError(f"timm has no pretrained weights for {network!r}: leave out pretrained, or choose another")
    from huggingface_hub import constants

    host = urlparse(constants.ENDPOINT).hostname or constants.ENDPOINT
    offline = nullcontext() if _is_reachable(host) else _from_the_cache()
    with _getting_weights(f"timm:{network}", host, cached=True, cache=constants.HF_HUB_CACHE), offline:
        return timm.create_model(network, pretrained=True, num_classes=num_classes)


def _torchvision_source(network: str, num_classes: int, pretrained: bool) -> nn.Module:
    from torchvision.models import get_model, get_model_weights

    built: nn.Module = get_model(network, weights=None, num_classes=num_classes)
    if pretrained:
        if not list(get_model_weights(network)):
            raise ArrnError(f"torchvision has no pretrained weights for {network!r}: leave out pretrained")
        weights = get_model_weights(network).DEFAULT
        url, cache = urlparse(weights.url), Path(torch.hub.get_dir()) / "checkpoints"
        cached = (cache / Path(url.path).name).is_file()
        with _getting_weights(f"torchvision:{network}", str(url.hostname), cached, str(cache)):
            state = weights.get_state_dict(check_hash=True, weights_only=True)  # nothing is unpickled but tensors
        _fill(built, state, f"torchvision:{network}")
    return built


def _fill(network: nn.Module, state: dict[str, torch.Tensor], name: str) -> None:
    """Puts weights into a network, but for those of its classifier where that has other classes."""
    own = network.state_dict()
    other = [key for key in own if key in state and own[key].shape != state[key].shape]
    left_out, unknown = network.load_state_dict({k: v for k, v in state.items() if k not in other}, strict=False)
    # Old files do not count batches.
    missing = [key for key in left_out if key not in other and not key.endswith("num_batches_tracked")]
    if missing or unknown or any(own[key].shape[1:] != state[key].shape[1:] for key in other):
        raise ArrnError(f"the pretrained weights of {name} do not fit this version of the library")


@contextmanager
def _getting_weights(name: str, host: str, cached: bool, cache: str) -> Iterator[None]:
    """Around a download: what goes wrong is one `ArrnError`, and what cannot succeed is not tried.

    Args:
        name: the network, for errors.
        host: where its weights come from.
        cached: whether they are known to be here.
        cache: the folder in which they would be, for errors.
    """
    where = f"the pretrained weights of {name} are not in {cache}"
    remedy = "connect to the network once, copy the file there from a computer that has it, or leave out pretrained"
    if not cached and not _is_reachable(host):
        raise ArrnError(f"{where}, and {host} cannot be reached: {remedy}")
    try:
        yield
    except ArrnError:
        raise
    except FileNotFoundError as error:  # the hub's word for what is not in its cache
        raise ArrnError(f"{where}, and {host} cannot be reached: {remedy}") from error
    except Exception as error:  # whatever a download, or a damaged file in the cache, brings
        raise ArrnError(f"the pretrained weights of {name} could not be read: {first_line(error):.200}") from error


def _is_reachable(host: str) -> bool:
    """Whether the host's name is known here, or a proxy is asked; if not, every attempt would be in vain, and slow."""
    if getproxies():
        return True
    try:
        socket.getaddrinfo(host, 443)
    except OSError:
        return False
    return True


@contextmanager
def _from_the_cache() -> Iterator[None]:
    """Within it, the hub is not asked, which without a network would be tried for most of a minute."""
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def _normalisation_of(library: str, network: str, channels: int) -> Metadata:
    """How the library's weights want their inputs normalised; nothing where the channels are others."""
    if library == "timm":
        import timm

        told: Any = timm.get_pretrained_cfg(network)
    else:
        from torchvision.models import get_model_weights

        told = get_model_weights(network).DEFAULT.transforms()
    mean, std = (tuple(map(float, getattr(told, name, ()))) for name in ("mean", "std"))
    return Metadata(mean, std) if len(mean) == len(std) == channels else Metadata()
