"""One file, as a trained network is to see it."""

from __future__ import annotations

from pathlib import Path

import torch

from arrn.data.decoding import decode
from arrn.data.form import word_for
from arrn.data.sound import Window, fit_window
from arrn.data.wav import decode_wav
from arrn.errors import ArrnError

__all__ = ["read_input"]


def read_input(path: Path, ndim: int, seconds: float = 1.0) -> torch.Tensor:
    """A file for a network whose signals have `ndim` axes: an image, or a window of sound at the file's own rate.

    A network that adapts takes any rate: it only changes how many samples the window has.

    Raises:
        BadSample: for a file that cannot be read.
        ArrnError: for volumes, which have no file format of their own here.
    """
    if ndim == 2:
        return decode(path, str(path))
    if ndim == 1:
        sound, header = decode_wav(path, str(path))
        return fit_window(sound, Window(seconds).samples(header.rate))
    raise ArrnError(
        f"arrn predict reads images and wav files, but this network takes {word_for(ndim)}s: "
        "arrn evaluate measures it on an npz file of them"
    )
