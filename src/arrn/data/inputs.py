"""One file for a trained network: an image, a sound or a volume."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from arrn.data.bounds import check_pixels
from arrn.data.decoding import decode, open_encoded
from arrn.data.npz import Array, array_layout, channels_to_front, read_npy_header
from arrn.data.sound import Window, decode_wav
from arrn.data.source import BadSample
from arrn.errors import first_line
from arrn.signal.grid import Grid

_FINER = 8  # times the resolution that a network sees; what averaging leaves out of larger images is far beyond it


def read_input(
    path: Path,
    ndim: int,
    channels: int,
    seconds: float = 1.0,
    *,
    top: Grid | None = None,
    max_pixels: int | None = None,
) -> torch.Tensor:
    """A file for a network whose signals have `ndim` axes: wav for one, an image for two, npy for three.

    Colour images become grey for a network of one channel. Sound is a window at the file's own rate: a network that
    adapts takes any, it only changes how many samples the window has.

    Args:
        path: the file.
        ndim, channels: what the network takes.
        seconds: the window of sound.
        top: the network's largest grid. Images of more than 16 million pixels are then averaged down as they are
            read, to 8 times its resolution or more, which takes a small part of the memory.
        max_pixels: of an image, or voxels of a volume; more are refused. None is `MOST_PIXELS`.

    Raises:
        BadSample: for a file that cannot be read, is too large, or has other channels.
    """
    if ndim == 1:
        signal, _ = decode_wav(path, str(path), Window(seconds))
    elif ndim == 2:
        least = None if top is None else tuple(_FINER * side for side in top)
        signal = decode(path, str(path), grey=channels == 1, least=least, max_pixels=max_pixels)
    else:
        signal = _decode_npy(path, max_pixels)
    if len(signal) != channels:
        raise BadSample(str(path), f"it has {len(signal)} channels, and the network takes {channels}")
    return signal


def _decode_npy(path: Path, max_pixels: int | None) -> torch.Tensor:
    """The volume in an npy file, uint8, (channels, depth, height, width); there, channels are last or left out.

    Raises:
        BadSample: for a file that cannot be read, or holds something else. Nothing is unpickled.
    """
    where = str(path)
    with open_encoded(path, where) as stream:
        try:
            header = read_npy_header(stream)
            layout = array_layout(header.shape, header.dtype)
            if layout is None or len(layout[0]) != 3:
                wanted = "uint8 of shape (depth, height, width), or with 3 channels last"
                raise BadSample(where, f"it should hold {wanted}; got {header.dtype} of shape {header.shape}")
            wrong = check_pixels(layout[0], max_pixels)
            if wrong is not None:
                raise BadSample(where, wrong)
            data = stream.read(header.size + 1)
            if len(data) != header.size:
                found = "more" if len(data) > header.size else f"{len(data):,}"
                raise ValueError(f"{header.size:,} bytes are announced, and {found} are there")
            volume: Array = np.frombuffer(data, np.uint8)
            volume = volume.reshape(header.shape, order="F" if header.fortran else "C")
        except BadSample:
            raise
        except Exception as error:  # numpy reads headers as literals of Python, which may bring anything
            raise BadSample(where, f"not an npy file, or a truncated one: {first_line(error)}") from None
    return channels_to_front(volume, channels_last=layout[2])
