"""Wav files: decoded to 16 bits, mixed down to one channel, cut or padded to a window."""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import BinaryIO

import numpy as np

from ..errors import ArrnError, first_line
from .files import Array, BadSample, Encoded, open_encoded

HIGHEST_RATE = 1_000_000
"""Samples a second of sound; the fastest sound cards take 768,000."""

MOST_CHANNELS = 256
"""Channels of a wav file."""

MOST_SOUND = 2**25
"""Numbers, samples times channels, that are read of one clip: six minutes of stereo at 44,100 a second."""

# What `wFormatTag` calls numbers, and the header that has the tag further on.
_WHOLE, _FLOATING, _EXTENSIBLE = 1, 3, 0xFFFE
_WIDTHS = {_WHOLE: (8, 16, 24, 32), _FLOATING: (32, 64)}
_MOST_CHUNKS = 1000  # before the samples
_AT_ONCE = 2**20  # frames that are converted together: what lies between takes eight times the room of the file's
_FORMAT = struct.Struct("<HHIIHH")  # tag, channels, rate, bytes a second, bytes a frame, bits a sample


@dataclass(frozen=True)
class Window:
    """What part of a clip a network sees, and at which rate.

    Attributes:
        seconds: how long it is. Longer clips are cropped to their middle, shorter ones padded with silence.
        rate: samples a second; None is the set's own. Clips of another rate are resampled.

    >>> Window(0.5).samples(8000)
    4000
    """

    seconds: float = 1.0
    rate: int | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.seconds) and self.seconds > 0):
            raise ArrnError(f"the window must be a number of seconds above 0, got {self.seconds}")
        if self.rate is not None and not 1 <= self.rate <= HIGHEST_RATE:
            raise ArrnError(f"the sample rate must be a whole number from 1 to {HIGHEST_RATE:,}, got {self.rate}")

    def samples(self, rate: int) -> int:
        """The samples of a window at `rate`.

        Raises:
            ArrnError: for more than are read of a clip.
        """
        count = max(1, round(self.seconds * rate))
        if count > MOST_SOUND:
            raise ArrnError(
                f"{self.seconds} seconds at {rate} a second are {count:,} samples, more than the {MOST_SOUND:,} that "
                "are read: the window must be shorter"
            )
        return count

    def at_rate_of(self, clips: Iterable[tuple[Encoded, str]], declared: int | None = None) -> Window:
        """The window at the set's own rate, unless it has one: the declared rate, or that of the first good clip."""
        if self.rate is not None:
            return self
        if declared is not None:
            return replace(self, rate=declared)
        first_error: BadSample | None = None
        for encoded, where in clips:
            try:
                return replace(self, rate=wav_header(encoded, where).rate)
            except BadSample as error:
                first_error = first_error or error
        raise first_error or ArrnError(
            "a set without good clips has no sample rate of its own: give one by --sample-rate"
        )


def fit_window(sound: Array, samples: int) -> Array:
    """The middle of a clip of shape (1, length), or the clip between equal silences: shape (1, samples).

    >>> fit_window(np.array([[1, 2, 3]]), 6)
    array([[0, 1, 2, 3, 0, 0]])
    >>> fit_window(np.array([[1, 2, 3]]), 1)
    array([[2]])
    """
    missing = samples - sound.shape[1]
    if missing <= 0:
        return sound[:, -missing // 2 :][:, :samples]
    return np.pad(sound, ((0, 0), (missing // 2, missing - missing // 2)))


@dataclass(frozen=True)
class WavHeader:
    """What a wav file says of itself.

    Attributes:
        rate: samples a second.
        channels: 1 for mono, 2 for stereo.
        length: samples of each channel.
    """

    rate: int
    channels: int
    length: int


@dataclass(frozen=True)
class _Layout:
    """Where the samples lie in a wav file, and how they are stored; every number is within bounds.

    Attributes:
        header: what it says of itself.
        floating: whether they are floating-point numbers.
        width: bytes of a sample of one channel.
        start: the byte where they begin.
    """

    header: WavHeader
    floating: bool
    width: int
    start: int

    @property
    def frame(self) -> int:
        """Bytes of the samples of all channels at one time."""
        return self.width * self.header.channels


def wav_header(encoded: Encoded, where: str) -> WavHeader:
    """The header of a wav file, which must hold the sound that it announces.

    Args:
        encoded: the bytes of the file, or its path.
        where: what the error names.

    Raises:
        BadSample: for what is missing, no wav file, cut short, of no length, or of a rate that cannot be meant.
    """
    with _refusing(where), open_encoded(encoded, where) as file:
        return _find_samples(file, where).header


def decode_wav(encoded: Encoded, where: str, window: Window | None = None) -> tuple[Array, WavHeader]:
    """The sound as int16 of shape (1, length), its channels mixed down to their mean, and the header.

    8, 16, 24 and 32 bits are scaled to 16, floating-point numbers from [-1, 1].

    Args:
        encoded: the bytes of the file, or its path.
        where: what the error names.
        window: what is read of it, at its own rate, by `fit_window`; None is all of it.

    Raises:
        BadSample: for what is missing, no wav file, cut short, of no length, or of a rate that cannot be meant.
    """
    with _refusing(where), open_encoded(encoded, where) as file:
        layout = _find_samples(file, where)
        header = layout.header
        wanted = header.length if window is None else window.samples(header.rate)
        # Of a long clip only the middle is read: where `fit_window` would cut it.
        first = max(0, (header.length - wanted) // 2)
        count = min(wanted, header.length)
        if count * header.channels > MOST_SOUND:
            held = f"{count:,} samples of {header.channels} channels"
            raise BadSample(where, f"it has {held}: {MOST_SOUND:,} numbers are read at most")
        file.seek(layout.start + first * layout.frame)
        sound = np.empty((1, count), np.int16)
        for begin in range(0, count, _AT_ONCE):
            part = sound[0, begin : begin + _AT_ONCE]
            levels = _levels(file.read(len(part) * layout.frame), layout)
            if not np.isfinite(levels).all():
                raise BadSample(where, "some of its samples are NaN")
            mono = levels.reshape(len(part), header.channels).mean(axis=1)
            part[:] = np.clip(np.rint(mono), -32768, 32767)
        return sound if window is None else fit_window(sound, wanted), header


def _find_samples(file: BinaryIO, where: str) -> _Layout:
    """Goes through the chunks of a file up to its samples, and checks every number that it claims."""
    length = file.seek(0, os.SEEK_END)
    file.seek(0)
    start = file.read(12)
    if not start:
        raise BadSample(where, "it is empty")
    if start[:4] != b"RIFF"[: len(start)] or start[8:] != b"WAVE"[: max(0, len(start) - 8)]:
        raise BadSample(where, "not a wav file")
    format_chunk: bytes | None = None
    for _ in range(_MOST_CHUNKS):
        name, place = file.read(8), file.tell()
        if len(name) < 8:
            raise BadSample(where, "it is cut short: there are no samples")
        size = int.from_bytes(name[4:], "little")
        if name[:4] == b"fmt ":
            format_chunk = file.read(min(size, 40))
        elif name[:4] == b"data":
            break
        file.seek(place + size + size % 2)  # chunks begin at even bytes
    else:
        raise BadSample(where, f"there are no samples in its first {_MOST_CHUNKS} chunks")
    if format_chunk is None:
        raise BadSample(where, "it does not say how its samples are stored")
    floating, width, channels, rate = _read_format(format_chunk, where)
    announced, there = size // (width * channels), max(0, length - place) // (width * channels)
    if announced < 1:
        raise BadSample(where, "it has no samples")
    if there < announced:
        raise BadSample(where, f"it is cut short: {there} samples of the {announced} that it announces")
    return _Layout(WavHeader(rate, channels, announced), floating, width, place)


def _read_format(chunk: bytes, where: str) -> tuple[bool, int, int, int]:
    """Whether samples are floating-point numbers, the bytes of one, how many channels, and the rate."""
    if len(chunk) < _FORMAT.size:
        raise BadSample(where, "it is cut short within its header")
    tag, channels, rate, _, frame, bits = _FORMAT.unpack(chunk[: _FORMAT.size])
    if tag == _EXTENSIBLE and len(chunk) >= 26:
        tag = int.from_bytes(chunk[24:26], "little")
    if tag not in _WIDTHS:
        raise BadSample(where, f"its samples are compressed (format {tag}): PCM and floating-point numbers are read")
    width = (bits + 7) // 8
    if 8 * width not in _WIDTHS[tag]:
        choices = ", ".join(map(str, _WIDTHS[tag]))
        raise BadSample(where, f"its samples have {bits} bits: {choices} are read")
    if not 1 <= channels <= MOST_CHANNELS:
        raise BadSample(where, f"it claims {channels} channels: 1 to {MOST_CHANNELS} are read")
    if not 1 <= rate <= HIGHEST_RATE:
        raise BadSample(where, f"it claims a sample rate of {rate:,}: 1 to {HIGHEST_RATE:,} are read")
    if frame != width * channels:
        raise BadSample(
            where, f"{channels} channels of {bits} bits take {width * channels} bytes, but the header says {frame}"
        )
    return tag == _FLOATING, width, channels, rate


def _levels(data: bytes, layout: _Layout) -> Array:
    """Little-endian samples on the scale of 16 bits; those of a frame lie side by side."""
    width = layout.width
    if layout.floating:
        return np.frombuffer(data, f"<f{width}").astype(np.float64) * 32767
    if width == 1:  # the only unsigned one
        return (np.frombuffer(data, np.uint8).astype(np.float64) - 128) * 256
    if width == 3:
        wide = np.zeros((len(data) // 3, 4), np.uint8)
        wide[:, 1:] = np.frombuffer(data, np.uint8).reshape(-1, 3)
        return wide.view("<i4")[:, 0] / 65536
    levels: Array = np.frombuffer(data, f"<i{width}") / (1 if width == 2 else 65536)
    return levels


@contextmanager
def _refusing(where: str) -> Iterator[None]:
    """Whatever goes wrong within is a `BadSample`."""
    try:
        yield
    except BadSample:
        raise
    except ArrnError as error:  # of the window, at the rate of this file
        raise BadSample(where, str(error)) from None
    except Exception as error:  # what else a damaged file may bring
        raise BadSample(where, f"cannot be read: {getattr(error, 'strerror', None) or first_line(error)}") from None
