"""One file for a trained network: an image, a sound or a volume."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from arrn.data.decoding import decode
from arrn.data.npz import array_layout, channels_to_front
from arrn.data.sound import Window, decode_wav, fit_window
from arrn.data.source import BadSample


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
        signal = _decode_npy(path)
    if len(signal) != channels:
        raise BadSample(str(path), f"it has {len(signal)} channels, and the network takes {channels}")
    return signal


def _decode_npy(path: Path) -> torch.Tensor:
    """The volume in an npy file, uint8, (channels, depth, height, width); there, channels are last or left out.

    Raises:
        BadSample: for a file that cannot be read, or holds something else. Nothing is unpickled.
    """
    try:
        with path.open("rb") as stream:
            volume = np.lib.format.read_array(stream, allow_pickle=False)
    except OSError as error:
        raise BadSample(str(path), f"cannot be read: {error.strerror or error}") from None
    except (ValueError, EOFError) as error:
        raise BadSample(str(path), f"not an npy file, or a truncated one: {str(error).splitlines()[0]}") from None
    layout = array_layout(volume.shape, volume.dtype)
    if layout is None or len(layout[0]) != 3:
        wanted = "uint8 of shape (depth, height, width), or with 3 channels last"
        raise BadSample(str(path), f"it should hold {wanted}; got {volume.dtype} of shape {volume.shape}")
    return channels_to_front(volume, channels_last=layout[2])
