"""One file, as a trained network is to see it."""

from __future__ import annotations

from pathlib import Path

import torch

from arrn.data.decoding import decode
from arrn.data.npy import decode_npy
from arrn.data.sound import Window, fit_window
from arrn.data.source import BadSample
from arrn.data.wav import decode_wav

__all__ = ["read_input"]


def read_input(path: Path, ndim: int, channels: int, seconds: float = 1.0) -> torch.Tensor:
    """A file for a network whose signals have `ndim` axes: wav for one, an image for two, npy for three.

    Colour images become grey for a network of one channel. Sound is a window at the file's own rate: a network that
    adapts takes any, it only changes how many samples the window has.

    Raises:
        BadSample: for a file that cannot be read, or has other channels.
    """
    if ndim == 1:
        sound, header = decode_wav(path, str(path))
        signal = fit_window(sound, Window(seconds).samples(header.rate))
    elif ndim == 2:
        signal = decode(path, str(path), grey=channels == 1)
    else:
        signal = decode_npy(path)
    if len(signal) != channels:
        raise BadSample(str(path), f"it has {len(signal)} channels, and the network takes {channels}")
    return signal
