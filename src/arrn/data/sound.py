"""Sound as a signal on a fixed domain: a window of some seconds, as many samples as its rate gives it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch

from arrn.data.codec import Codec
from arrn.data.decoding import Encoded
from arrn.data.form import SOUND
from arrn.data.placement import Placement
from arrn.data.source import BadSample
from arrn.data.wav import decode_wav, wav_header
from arrn.errors import ArrnError
from arrn.signal.grid import Grid
from arrn.signal.kernels import kernel

__all__ = ["SoundCodec", "Window", "fit_window"]


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
