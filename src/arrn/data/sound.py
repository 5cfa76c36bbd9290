"""Sound as samples of a set: clips cut or padded to a window, and resampled to its rate."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from arrn.data.decoding import Codec
from arrn.data.placement import Placement
from arrn.data.source import SOUND, Source
from arrn.errors import ArrnError
from arrn.runtime.files import Encoded
from arrn.runtime.signals import SUFFIXES
from arrn.runtime.wav import WavHeader, Window, wav_header
from arrn.runtime.wav import decode_wav as decode_samples
from arrn.signal.grid import Grid
from arrn.signal.kernels import kernel


def decode_wav(encoded: Encoded, where: str, window: Window | None = None) -> tuple[torch.Tensor, WavHeader]:
    """`arrn.runtime.wav.decode_wav`, as a tensor: int16 of shape (1, length), and the header."""
    sound, header = decode_samples(encoded, where, window)
    return torch.from_numpy(sound), header


@dataclass(frozen=True)
class SoundCodec(Codec):
    """Reads wav files: mixed down to one channel, cropped or padded to the window, and resampled to its rate.

    The perfect kernel resamples the window, with mirrored borders.

    Attributes:
        window: the length and the rate of the sound that is read; the rate must be given.
    """

    form = SOUND
    suffixes = SUFFIXES[1]
    window: Window

    @property
    def _rate(self) -> int:
        assert self.window.rate is not None, "the window of a codec has a rate"
        return self.window.rate

    def size(self, encoded: Encoded, where: str) -> Grid:
        wav_header(encoded, where)
        return (self.window.samples(self._rate),)

    def decode(self, encoded: Encoded, where: str, out: torch.Tensor | None = None) -> torch.Tensor:
        heard, _ = decode_wav(encoded, where, self.window)
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


def clip_seconds(source: Source, most: int = 400) -> list[float]:
    """The lengths in seconds of at most `most` clips, taken evenly over a source whose clips are files.

    Clips that cannot be read are left out. A source whose clips are not files gives an empty list.
    """
    found = []
    for index in range(0, len(source), max(1, len(source) // most)):
        path = source.where(index)
        try:
            header = wav_header(path, path)
        except ArrnError:
            continue
        found.append(header.length / header.rate)
    return found
