"""Images and volumes as arrays of numpy: where their channels are, and single volumes in npy files."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch

from arrn.data.source import BadSample
from arrn.signal.grid import Grid

__all__ = ["Array", "array_layout", "channels_first", "decode_npy"]

Array: TypeAlias = np.ndarray[Any, Any]


def array_layout(shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[Grid, int, bool] | None:
    """The grid of one image or volume, the number of its channels, and whether they are the last axis.

    None for what is neither: not uint8, or of other axes.

    >>> array_layout((28, 28, 3), np.dtype("uint8"))
    ((28, 28), 3, True)
    >>> array_layout((28, 28, 28), np.dtype("uint8"))
    ((28, 28, 28), 1, False)
    """
    coloured = len(shape) >= 3 and shape[-1] in (1, 3) and min(shape[:-1]) > 3
    grid = shape[:-1] if coloured else shape
    if dtype != np.uint8 or len(grid) not in (2, 3) or min(grid) < 1:
        return None
    return grid, shape[-1] if coloured else 1, coloured


def channels_first(sample: Array, channels_last: bool) -> torch.Tensor:
    """A copy of one image or volume, (channels, *grid)."""
    return torch.from_numpy((np.moveaxis(sample, -1, 0) if channels_last else sample[None]).copy())


def decode_npy(path: Path) -> torch.Tensor:
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
    return channels_first(volume, channels_last=layout[2])
