"""Whether a network and a data set go together: as many axes, as many channels."""

from __future__ import annotations

from torch import nn

from arrn.data import Form, word_for
from arrn.errors import ArrnError
from arrn.models.entry import signal_axes

__all__ = ["check_fit"]

_SUITED = {1: "arrn_audio_small", 2: "arrn_small", 3: "arrn_volume_small"}


def check_fit(model: nn.Module, name: str, form: Form, dataset: str) -> None:
    """Refuses a volume where an image is expected, and the like.

    Args:
        model: the network.
        name: what errors call it.
        form: what the samples of the data set are.
        dataset: what errors call that.

    Raises:
        ArrnError: for other axes or channels than the network's.
    """
    axes = signal_axes(model)
    if axes is not None and axes != form.ndim:
        raise ArrnError(
            f"{name!r} takes {_kind(axes)}, but {dataset!r} holds {_kind(form.ndim)}: for those there is "
            f"{_SUITED[form.ndim]!r}, or 'arrn' with a ladder of your own"
        )
    channels = getattr(model, "in_channels", form.channels)
    if channels != form.channels:
        raise ArrnError(
            f"{name!r} takes {channels} channel{'s' * (channels != 1)}, but the {form.words} of {dataset!r} have "
            f"{form.channels}"
        )


def _kind(axes: int) -> str:
    return f"{word_for(axes)}s of {axes} ax{'is' if axes == 1 else 'es'}"
