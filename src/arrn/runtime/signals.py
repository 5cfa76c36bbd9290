"""Inputs of every kind to signals: a path, the bytes of a file, a Pillow image, an array or a tensor."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from .aspect import Aspect
from .files import Array, BadSample, Encoded, check_pixels
from .levels import Grid
from .pictures import picture_to_array, read_picture
from .volumes import decode_volume
from .wav import MOST_CHANNELS, Window, decode_wav

SUFFIXES = {
    1: (".wav", ".wave"),
    2: (
        *(".bmp", ".gif", ".jfif", ".jpe", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".pnm", ".ppm"),
        *(".tif", ".tiff", ".webp"),
    ),
    3: (".npy",),
}
"""How the names of files of signals of so many axes end, in lower case."""

WORDS = {1: "sound", 2: "image", 3: "volume"}
"""What a signal of so many axes of space is."""

_FULL_SCALE = {"uint8": 255.0, "int16": 32768.0}
_FINER = 8  # times the resolution that a network sees; what averaging leaves out of larger images is far beyond it
_LUMA = np.array([19595, 38470, 7471], np.int64)  # of red, green and blue, in 65536ths: as Pillow weighs them
_BEYOND = 0.25  # of full scale: a resampled signal may overshoot a little, a normalised one goes much further


@dataclass(frozen=True)
class Signal:
    """An input as a network takes it, before its normalisation.

    Attributes:
        samples: shape (channels, *space); uint8 in 0 to 255, int16 in -32768 to 32767, or float32 with 1 for full
            scale.
        size: the input's own grid, padded or cropped where the network wants inputs so. Of very large images fewer
            samples are read.
        given: the input's own grid as it was; `size` where that is None.
    """

    samples: Array
    size: Grid
    given: Grid | None = None

    def __len__(self) -> int:
        return len(self.samples)


def to_unit_scale(samples: Array) -> Array:
    """Samples as float32 with 1 for full scale, which is what normalisation is of.

    >>> to_unit_scale(np.array([0, 51, 255], np.uint8))
    array([0. , 0.2, 1. ], dtype=float32)
    """
    return samples.astype(np.float32) / np.float32(_FULL_SCALE.get(samples.dtype.name, 1.0))


@dataclass(frozen=True)
class Reader:
    """What makes signals for one network.

    Attributes:
        ndim: axes of space: 1 (sound), 2 (images) or 3 (volumes).
        channels: that the network takes. Colour becomes grey for one channel, and grey becomes colour for three;
            the channels of sound are mixed down to one.
        top: the network's largest grid, if it has one. Files of images of more than 16 million pixels are averaged
            down as they are read, to 8 times its resolution or more, which takes a small part of the memory.
        seconds: the window of sound files: longer ones are cropped to their middle, shorter ones padded with silence.
            Each keeps its own rate.
        max_pixels: of an image, or voxels of a volume; more are refused. None is 64 million.
        aspect: how to fit images and volumes of other proportions than the network's grids: "stretch", "pad" or
            "crop". A network without grids takes images and volumes of all proportions.
    """

    ndim: int
    channels: int
    top: Grid | None = None
    seconds: float = 1.0
    max_pixels: int | None = None
    aspect: str = "stretch"

    @property
    def framing(self) -> Aspect | None:
        """What gives samples the proportions of the network's grids; None where nothing does."""
        return None if self.top is None or self.ndim == 1 else Aspect(self.aspect, self.top)

    def read(self, given: object, where: str | None = None) -> Signal:
        """Reads one input.

        Args:
            given: a path or the bytes of a file (an image, a wav file, an npy file of a volume); an image of Pillow;
                an array of numpy, with channels last, first or left out; or a tensor of torch, with channels first.
                Arrays hold uint8, int16 for sound, or floats with 1 for full scale.
            where: the name of the input in errors; by default the path, or the kind of the input.

        Raises:
            BadSample: for an input that cannot be read, is too large, or has other channels than the network takes.
        """
        if isinstance(given, Signal):
            return given
        if isinstance(given, str | os.PathLike):
            return self._from_file(given, where or str(given))
        if isinstance(given, bytes | bytearray | memoryview):
            content = bytes(given)
            return self._from_file(content, where or f"a file of {len(content):,} bytes")
        if _is_picture(given):
            return self._from_picture(given, where or "an image of Pillow")
        if is_array(given):
            tensor = hasattr(given, "detach")
            where = where or ("a tensor" if tensor else "an array")
            return self._from_array(_as_array(given, where), where, channels_first=tensor)
        raise BadSample(
            where or f"an input of type {type(given).__name__}",
            "it should be a path, the bytes of a file, an image of Pillow, an array or a tensor",
        )

    def _from_file(self, encoded: Encoded, where: str) -> Signal:
        size: Grid | None = None
        if self.ndim == 1:
            samples, _ = decode_wav(encoded, where, Window(self.seconds))
        elif self.ndim == 2:
            least = None if self.top is None else tuple(_FINER * side for side in self.top)
            samples, size = read_picture(encoded, where, self.channels == 1, least=least, max_pixels=self.max_pixels)
        else:
            samples = decode_volume(encoded, where, self.max_pixels)
        return self._checked(samples, size, where)

    def _from_picture(self, image: Any, where: str) -> Signal:
        if self.ndim != 2:
            raise BadSample(where, f"it is an image, and the network takes {WORDS[self.ndim]}s")
        return self._checked(
            picture_to_array(image, where, self.channels == 1, max_pixels=self.max_pixels), None, where
        )

    def _from_array(self, array: Array, where: str, channels_first: bool) -> Signal:
        allowed = ("uint8", "int16", "float32") if self.ndim == 1 else ("uint8", "float32")
        if array.dtype.name not in allowed:
            raise BadSample(where, f"it should be of {' or '.join(allowed)}, got {array.dtype} of shape {array.shape}")
        array = self._channels_to_front(array, where, channels_first)
        if min(array.shape) < 1:
            raise BadSample(where, f"it is empty: its shape is {array.shape}")
        wrong = check_pixels(array.shape[1:], self.max_pixels) if self.ndim > 1 else None
        if wrong is not None:
            raise BadSample(where, wrong)
        if array.dtype == np.float32:
            low, high = float(array.min()), float(array.max())
            least = -1.0 if self.ndim == 1 else 0.0
            if not (least - _BEYOND <= low and high <= 1 + _BEYOND):  # also where they are no numbers
                raise BadSample(
                    where,
                    f"its numbers go from {low:g} to {high:g}: floats should go from {least:g} to 1, before any "
                    "normalisation",
                )
        return self._checked(self._as_many_channels(array), None, where)

    def _channels_to_front(self, array: Array, where: str, channels_first: bool) -> Array:
        if array.ndim == self.ndim:
            return array[None]
        if array.ndim == self.ndim + 1:
            first, last = map(self._may_be_channels, (array.shape[0], array.shape[-1]))
            if self.ndim == 1 and not channels_first:  # a clip has more samples than channels
                last = last and array.shape[1] < array.shape[0]
            if last and not channels_first:
                return np.moveaxis(array, -1, 0)
            if first:
                return array
        space = {1: "length", 2: "height, width", 3: "depth, height, width"}[self.ndim]
        shapes = [f"(channels, {space})", f"({space})" if self.ndim > 1 else "(length,)"]
        if not channels_first:
            shapes.insert(0, f"({space}, channels)")
        raise BadSample(
            where,
            f"its shape is {array.shape}: it should be {' or '.join(shapes)}, and the network takes "
            f"{self.channels} channel{'s'[: self.channels != 1]}",
        )

    def _may_be_channels(self, side: int) -> bool:
        return 1 <= side <= MOST_CHANNELS if self.ndim == 1 else side in (1, 3, self.channels)

    def _as_many_channels(self, array: Array) -> Array:
        """Colour to grey, grey to colour, and sound mixed down, as files are."""
        if len(array) == self.channels or self.ndim == 3:
            return array
        if self.ndim == 1 and self.channels == 1:
            mixed = array.mean(axis=0, keepdims=True, dtype=np.float64)
            rounded: Array = mixed if array.dtype == np.float32 else np.rint(mixed)
            return rounded.astype(array.dtype)
        if self.ndim == 2 and len(array) == 3 and self.channels == 1:
            if array.dtype == np.uint8:
                grey: Array = (np.tensordot(_LUMA, array.astype(np.int64), 1) + 2**15) >> 16
            else:
                grey = np.tensordot(_LUMA / 2**16, array.astype(np.float64), 1)
            return grey.astype(array.dtype)[None]
        if self.ndim == 2 and len(array) == 1 and self.channels == 3:
            return np.repeat(array, 3, axis=0)
        return array

    def _checked(self, samples: Array, size: Grid | None, where: str) -> Signal:
        if len(samples) != self.channels:
            raise BadSample(where, f"it has {len(samples)} channels, and the network takes {self.channels}")
        own = tuple(samples.shape[1:])
        if self.framing is not None:
            wrong = self.framing.refusal(own, self.max_pixels)
            if wrong is not None:
                raise BadSample(where, wrong)
            size = size or own
            return Signal(self.framing(samples), self.framing.frame(size), size)
        return Signal(samples, size or own)


def is_array(given: object) -> bool:
    """Whether this is an array of numpy or alike, such as a tensor of torch."""
    return hasattr(given, "__array__") and hasattr(given, "shape") and hasattr(given, "dtype")


def _is_picture(given: object) -> bool:
    pillow = sys.modules.get("PIL.Image")  # who has an image of Pillow has imported Pillow
    return pillow is not None and isinstance(given, pillow.Image)


def _as_array(given: Any, where: str) -> Array:
    """An array; floats of any precision as float32."""
    try:
        if hasattr(given, "detach"):  # a tensor of torch, which this module does without
            given = given.detach().cpu()
            given = (given.float() if given.is_floating_point() else given).numpy()
        array = np.asarray(given)
    except Exception as error:  # other libraries' arrays may raise anything
        raise BadSample(where, f"no array can be made of it: {error}") from None
    return array.astype(np.float32) if array.dtype.kind == "f" else array
