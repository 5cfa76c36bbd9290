"""Sound: wav files decoded to 16 bits, cut or padded to a window, and resampled to its rate."""

from __future__ import annotations

import io
import math
import os
import warnings
import wave
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from arrn.data.decoding import Codec, Encoded
from arrn.data.placement import Placement
from arrn.data.source import SOUND, BadSample
from arrn.errors import ArrnError
from arrn.signal.grid import Grid
from arrn.signal.kernels import kernel

_Levels = np.ndarray[Any, Any]


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
        if self.rate is not None and self.rate < 1:
            raise ArrnError(f"the sample rate must be a whole number of at least 1, got {self.rate}")

    def samples(self, rate: int) -> int:
        """The samples of a window at `rate`."""
        return max(1, round(self.seconds * rate))

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


def fit_window(sound: torch.Tensor, samples: int) -> torch.Tensor:
    """The middle of a clip of shape (1, length), or the clip between equal silences: shape (1, samples).

    >>> fit_window(torch.tensor([[1, 2, 3]]), 6)
    tensor([[0, 1, 2, 3, 0, 0]])
    >>> fit_window(torch.tensor([[1, 2, 3]]), 1)
    tensor([[2]])
    """
    missing = samples - sound.shape[1]
    if missing <= 0:
        return sound[:, -missing // 2 :][:, :samples]
    return torch.nn.functional.pad(sound, (missing // 2, missing - missing // 2))


@dataclass(frozen=True)
class SoundCodec(Codec):
    """Wav files: mixed down to one channel, cropped or padded to the window, resampled to its rate.

    The whole window is resampled by the perfect kernel, its borders mirrored, as every other signal here is.

    Attributes:
        window: with its rate.
    """

    form = SOUND
    suffixes = (".wav", ".wave")
    window: Window

    @property
    def _rate(self) -> int:
        assert self.window.rate is not None, "the window of a codec has a rate"
        return self.window.rate

    def size(self, encoded: Encoded, where: str) -> Grid:
        wav_header(encoded, where)
        return (self.window.samples(self._rate),)

    def decode(self, encoded: Encoded, where: str) -> torch.Tensor:
        sound, header = decode_wav(encoded, where)
        heard = fit_window(sound, self.window.samples(header.rate))
        target = (self.window.samples(self._rate),)
        return Placement({tuple(heard.shape[1:]): target}, kernel("perfect"))(heard)

    def changes(self, encoded: Encoded, where: str) -> tuple[str, ...]:
        header = wav_header(encoded, where)
        found = []
        if header.rate != self._rate:
            found.append(f"resampled from {header.rate} to {self._rate} Hz")
        if header.channels > 1:
            found.append(f"mixed down from {header.channels} channels to one")
        return tuple(found)


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


def wav_header(encoded: Encoded, where: str) -> WavHeader:
    """The header of a wav file, which must hold sound.

    Args:
        encoded: the bytes of the file, or its path.
        where: what the error names.

    Raises:
        BadSample: for what is missing, no wav file, cut short, or of no length.
    """
    with _refusing(where):
        try:
            with _opened(encoded) as file:
                return _header(file, where)
        except wave.Error:
            return _read_by_scipy(encoded, where)[0]


def decode_wav(encoded: Encoded, where: str) -> tuple[torch.Tensor, WavHeader]:
    """The sound as int16 of shape (1, length), its channels mixed down to their mean, and the header.

    8, 16, 24 and 32 bits are scaled to 16, floating-point numbers from [-1, 1].

    Raises:
        BadSample: for what is missing, no wav file, cut short, or of no length.
    """
    with _refusing(where):
        try:
            with _opened(encoded) as file:
                header = _header(file, where)
                levels = _levels(file.readframes(header.length), file.getsampwidth())
        except wave.Error:
            header, levels = _read_by_scipy(encoded, where)
        if levels.size < header.length * header.channels:
            found = levels.size // header.channels
            raise BadSample(where, f"it is cut short: {found} samples of the {header.length} that it announces")
        mono = levels.reshape(header.length, header.channels).mean(axis=1)
        sound = np.clip(np.rint(mono), -32768, 32767).astype(np.int16)
        return torch.from_numpy(sound)[None], header


def _opened(encoded: Encoded) -> wave.Wave_read:
    return wave.open(io.BytesIO(encoded) if isinstance(encoded, bytes) else os.fspath(encoded), "rb")


def _header(file: wave.Wave_read, where: str) -> WavHeader:
    return _checked(WavHeader(file.getframerate(), file.getnchannels(), file.getnframes()), where)


def _checked(header: WavHeader, where: str) -> WavHeader:
    if header.length < 1:
        raise BadSample(where, "it has no samples: a clip of no length says nothing")
    if header.rate < 1:
        raise BadSample(where, f"its sample rate, {header.rate}, cannot be meant")
    return header


def _levels(data: bytes, width: int) -> _Levels:
    """Little-endian samples of `width` bytes, on the scale of 16 bits; those of a frame lie side by side."""
    data = data[: len(data) // width * width]
    if width == 1:  # the only unsigned one
        return (np.frombuffer(data, np.uint8).astype(np.float64) - 128) * 256
    if width == 3:
        wide = np.zeros((len(data) // 3, 4), np.uint8)
        wide[:, 1:] = np.frombuffer(data, np.uint8).reshape(-1, 3)
        return wide.view("<i4")[:, 0] / 65536
    if width not in (2, 4):
        raise ValueError(f"its samples have {8 * width} bits: 8, 16, 24 and 32 are read")
    levels: _Levels = np.frombuffer(data, f"<i{width}") / (1 if width == 2 else 65536)
    return levels


def _read_by_scipy(encoded: Encoded, where: str) -> tuple[WavHeader, _Levels]:
    """What `wave` does not know: floating-point numbers, and before Python 3.12 the extensible header."""
    if not _is_riff(encoded):
        raise BadSample(where, "not a wav file")
    try:
        from scipy.io import wavfile
    except ImportError:
        raise BadSample(where, "not plain PCM: reading other wav files needs scipy, pip install scipy") from None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # chunks of text that it does not know
        rate, samples = wavfile.read(io.BytesIO(encoded) if isinstance(encoded, bytes) else encoded)
    samples = samples[:, None] if samples.ndim == 1 else samples
    header = _checked(WavHeader(int(rate), samples.shape[1], len(samples)), where)
    if samples.dtype.kind == "f":
        if not np.isfinite(samples).all():
            raise BadSample(where, "some of its samples are no numbers")
        return header, samples.astype(np.float64) * 32767
    # Left-justified, whatever the bits: 8 are unsigned.
    raw = np.ascontiguousarray(samples.astype(samples.dtype.newbyteorder("<"))).tobytes()
    return header, _levels(raw, samples.dtype.itemsize)


def _is_riff(encoded: Encoded) -> bool:
    if isinstance(encoded, bytes):
        start = encoded[:12]
    else:
        with open(encoded, "rb") as file:
            start = file.read(12)
    return start[:4] == b"RIFF" and start[8:] == b"WAVE"


@contextmanager
def _refusing(where: str) -> Iterator[None]:
    """Whatever goes wrong within is a `BadSample`."""
    try:
        yield
    except ArrnError:
        raise
    except FileNotFoundError:
        raise BadSample(where, "no such file") from None
    except EOFError:
        raise BadSample(where, "it is empty, or cut short within its header") from None
    except Exception as error:  # decoders of corrupt bytes raise anything, struct.error included
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise BadSample(where, f"cannot be read: {reason.splitlines()[0]}") from None
