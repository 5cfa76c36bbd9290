"""Wav files of every kind, written by hand, and those that are none."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from arrn.data import BadSample, WavHeader, decode_wav, wav_header
from sounds import float_wav, tone, wav_bytes

CLIP = tone(500, 40, 0.3)


@pytest.mark.parametrize(("bits", "tolerance"), [(8, 2**-6), (16, 2**-14), (24, 2**-14), (32, 2**-14)])
def test_every_width_comes_out_as_16_bits(bits: int, tolerance: float) -> None:
    sound, header = decode_wav(wav_bytes(CLIP, 500, bits), "x")
    assert (header, sound.dtype, sound.shape) == (WavHeader(500, 1, 150), torch.int16, (1, 150))
    np.testing.assert_allclose(sound[0].numpy() / 32768, CLIP, atol=tolerance)


def test_16_bits_are_kept_to_the_last(tmp_path: Path) -> None:
    exact = np.array([0, 1, -1, 32767, -32768, 12345], np.int64)
    path = tmp_path / "a.wav"
    path.write_bytes(wav_bytes(exact / 32767, 100))
    sound, _ = decode_wav(path, "x")
    assert sound[0].tolist() == [0, 1, -1, 32767, -32768, 12345]
    assert wav_header(path, "x") == WavHeader(100, 1, 6)


def test_stereo_is_mixed_down_to_the_mean() -> None:
    both = np.stack([np.full(10, 0.5), np.linspace(-0.5, 0.25, 10)], axis=1)
    sound, header = decode_wav(wav_bytes(both, 100), "x")
    assert (header.channels, header.length) == (2, 10)
    np.testing.assert_allclose(sound[0].numpy() / 32767, both.mean(axis=1), atol=1e-4)


def test_floating_point_files_need_scipy(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("scipy.io.wavfile")
    data = float_wav(CLIP, 500)
    sound, header = decode_wav(data, "x")
    assert header == wav_header(data, "x") == WavHeader(500, 1, 150)
    np.testing.assert_allclose(sound[0].numpy() / 32767, CLIP, atol=1e-4)
    assert decode_wav(float_wav(np.array([3.0, -3.0]), 500), "x")[0].tolist() == [[32767, -32768]]  # clipped
    with pytest.raises(BadSample, match="some of its samples are no numbers"):
        decode_wav(float_wav(np.array([0.0, np.nan]), 500), "x")
    for name in [name for name in sys.modules if name.startswith("scipy.io")]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(BadSample, match=r"x: not plain PCM: .* needs scipy"):
        decode_wav(data, "x")


WHOLE = wav_bytes(CLIP, 500)


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "empty, or cut short"),
        (b"RIFF", "empty, or cut short|not a wav file"),
        (b"no sound at all, but text", "not a wav file"),
        (WHOLE[:30], "cannot be read|empty, or cut short|not plain|not a wav"),
        (wav_bytes(CLIP[:0], 500), "it has no samples: a clip of no length"),
    ],
)
def test_what_is_no_sound_is_named(data: bytes, complaint: str) -> None:
    for read in (decode_wav, wav_header):
        with pytest.raises(BadSample, match=rf"clip 7: .*({complaint})"):
            read(data, "clip 7")


def test_a_file_that_is_cut_short_is_named() -> None:
    with pytest.raises(BadSample, match="x: it is cut short: 130 samples of the 150"):
        decode_wav(WHOLE[:-40], "x")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadSample, match="x: no such file"):
        decode_wav(tmp_path / "none.wav", "x")


@given(st.integers(0, len(WHOLE) - 1), st.integers(0, 255), st.integers(0, len(WHOLE)))
def test_damaged_files_are_read_or_named(place: int, value: int, kept: int) -> None:
    damaged = bytearray(WHOLE)
    damaged[place % 60] = value  # where the headers are
    damaged[place] = value
    try:
        sound, header = decode_wav(bytes(damaged[:kept]), "x")
    except BadSample:
        return
    assert sound.shape == (1, header.length)
