"""Sound: sets of wav files, and wav files of every kind, written by hand, and those that are none."""

import io
import os
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from arrn.data import (
    SOUND,
    BadSample,
    SoundCodec,
    WavHeader,
    Window,
    decode_wav,
    examine,
    open_dataset,
    wav_header,
)
from arrn.errors import ArrnError
from arrn.runtime import Reader
from arrn.runtime.wav import fit_window
from arrn.signal import resample
from sounds import float_wav, tone, wav_bytes, write_audio_parquet, write_tones, write_wav

LOW, HIGH = tone(64, 2), tone(64, 6)


def test_class_folders_of_wav_files_are_a_set(tmp_path: Path) -> None:
    dataset = open_dataset(str(write_tones(tmp_path / "tones", per_class=3)))
    assert dataset.test is not None
    assert (dataset.name, dataset.class_names, dataset.train.form) == ("tones", ("high", "low"), SOUND)
    assert (len(dataset.train), len(dataset.test)) == (6, 6)
    found = examine(dataset.train, decode=True)
    assert (set(found.sizes), found.remarks) == ({(64,)}, [])
    copy = pickle.loads(pickle.dumps(dataset.train))
    assert torch.equal(copy.read(4), dataset.train.read(4))
    assert dataset.train.read(0).dtype == torch.int16


@pytest.mark.parametrize(("seconds", "samples"), [(1.0, 64), (0.5, 32), (2.0, 128)])
def test_clips_are_cropped_to_their_middle_or_padded_with_silence(tmp_path: Path, seconds: float, samples: int) -> None:
    write_wav(tmp_path / "a" / "0.wav", LOW, 64)
    write_wav(tmp_path / "b" / "0.wav", HIGH, 64)
    heard = open_dataset("mine", tmp_path, Window(seconds)).train.read(0)[0]
    whole = decode_wav(tmp_path / "a" / "0.wav", "x")[0][0]
    assert heard.shape == (samples,)
    middle = (samples - 64) // 2
    if samples <= 64:
        assert torch.equal(heard, whole[-middle : 64 + middle])
    else:
        assert torch.equal(heard[middle : middle + 64], whole)
        assert int(heard[:middle].abs().sum() + heard[middle + 64 :].abs().sum()) == 0


def test_another_rate_is_resampled_and_said(tmp_path: Path) -> None:
    write_wav(tmp_path / "a" / "0.wav", LOW, 64)
    write_wav(tmp_path / "a" / "1.wav", tone(160, 5), 160)
    write_wav(tmp_path / "b" / "0.wav", HIGH, 64)
    dataset = open_dataset("mine", tmp_path)
    found = examine(dataset.train)
    assert found.sizes == ((64,),) * 3
    assert found.remarks == ["1 of 3 clips are resampled from 160 to 64 Hz"]
    own = decode_wav(tmp_path / "a" / "1.wav", "x")[0]
    expected = resample(own[None].double(), 64)[0]
    assert float((dataset.train.read(1) - expected).abs().max()) <= 0.51
    asked = open_dataset("mine", tmp_path, Window(1.0, 32))
    assert asked.train.read(0).shape == (1, 32)
    assert examine(asked.train).remarks == [
        "2 of 3 clips are resampled from 64 to 32 Hz",
        "1 of 3 clips are resampled from 160 to 32 Hz",
    ]


def test_stereo_is_mixed_down_and_said(tmp_path: Path) -> None:
    write_wav(tmp_path / "a" / "0.wav", np.stack([LOW, HIGH], axis=1), 64)
    write_wav(tmp_path / "b" / "0.wav", HIGH, 64)
    found = examine(open_dataset("mine", tmp_path).train)
    assert found.remarks == ["1 of 2 clips are mixed down from 2 channels to one"]


def test_a_clip_of_no_length_is_an_error_or_skipped(tmp_path: Path) -> None:
    write_wav(tmp_path / "a" / "0.wav", LOW[:0], 64)  # the first: it has a rate all the same
    write_wav(tmp_path / "a" / "1.wav", LOW, 64)
    write_wav(tmp_path / "b" / "2.wav", LOW, 64)
    source = open_dataset("mine", tmp_path).train
    with pytest.raises(BadSample, match=r"0\.wav: it has no samples"):
        examine(source)
    found = examine(source, skip_bad=True)
    assert (len(found.bad), len(found.sizes)) == (1, 2)


@pytest.mark.parametrize("rate", [None, 64])
@pytest.mark.parametrize("column", ["audio", "speech"])
def test_parquet_files_hold_sound(tmp_path: Path, rate: int | None, column: str) -> None:
    clips = [wav_bytes(LOW, 64), wav_bytes(HIGH, 64), wav_bytes(tone(128, 2), 128)]
    for split in ("train", "test"):
        write_audio_parquet(tmp_path / f"{split}.parquet", clips, [0, 1, 0], rate, column)
    dataset = open_dataset("mine", tmp_path)
    assert dataset.test is not None
    assert dataset.class_names == (("0", "1") if rate is None else ("low", "high"))
    assert dataset.train.form == dataset.test.form == SOUND
    for source in (dataset.train, dataset.test):
        found = examine(source, decode=True)
        assert (set(found.sizes), found.remarks) == ({(64,)}, ["1 of 3 clips are resampled from 128 to 64 Hz"])
    assert torch.equal(dataset.train.read(1), decode_wav(clips[1], "x")[0])


def test_the_first_good_clip_gives_the_rate(tmp_path: Path) -> None:
    clips, labels = [wav_bytes(LOW, 64), b"", *[wav_bytes(LOW, 32)] * 2], [-1, 0, 0, 1]
    source = open_dataset("mine", write_audio_parquet(tmp_path / "train.parquet", clips, labels).parent).train
    assert source.read(2).shape == (1, 32)
    with pytest.raises(BadSample, match="row 0: has no label"):
        examine(source)
    assert len(examine(source, skip_bad=True).bad) == 2


def test_the_test_split_is_heard_at_the_rate_of_the_training_split(tmp_path: Path) -> None:
    write_audio_parquet(tmp_path / "train.parquet", [wav_bytes(LOW, 64), wav_bytes(HIGH, 64)], [0, 1])
    write_audio_parquet(tmp_path / "test.parquet", [wav_bytes(tone(128, 2), 128)], [0])
    test = open_dataset("mine", tmp_path).test
    assert test is not None
    assert test.read(0).shape == (1, 64)


@pytest.mark.parametrize(("seconds", "rate"), [(0.0, None), (float("nan"), None), (-1.0, None), (1.0, 0)])
def test_windows_that_mean_nothing_are_refused(seconds: float, rate: int | None) -> None:
    with pytest.raises(ArrnError, match=r"must be .*, got (0|nan|-1)"):
        Window(seconds, rate)


def test_a_window_of_less_than_a_sample_has_one() -> None:
    assert SoundCodec(Window(1e-9, 8000)).decode(wav_bytes(LOW, 64), "x").shape == (1, 1)


def test_a_single_clip_keeps_its_rate(tmp_path: Path) -> None:
    for rate in (64, 100):
        assert Reader(1, 1, seconds=0.5).read(write_wav(tmp_path / "a.wav", tone(rate, 3), rate)).samples.shape == (
            1,
            rate / 2,
        )
    with pytest.raises(BadSample, match=r"a\.wav: not an npy file"):
        Reader(3, 1).read(tmp_path / "a.wav")


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


def test_floating_point_files_are_read() -> None:
    data = float_wav(CLIP, 500)
    sound, header = decode_wav(data, "x")
    assert header == wav_header(data, "x") == WavHeader(500, 1, 150)
    np.testing.assert_allclose(sound[0].numpy() / 32767, CLIP, atol=1e-4)
    assert decode_wav(float_wav(np.array([3.0, -3.0]), 500), "x")[0].tolist() == [[32767, -32768]]  # clipped
    with pytest.raises(BadSample, match="some of its samples are NaN"):
        decode_wav(float_wav(np.array([0.0, np.nan]), 500), "x")


@pytest.mark.filterwarnings("ignore:Chunk")
@pytest.mark.parametrize("dtype", ["u1", "<i2", "<i4", "<f4", "<f8"])
@pytest.mark.parametrize("channels", [1, 2])
def test_scipy_writes_what_is_read(dtype: str, channels: int) -> None:
    wavfile = pytest.importorskip("scipy.io.wavfile")
    frames = np.stack([CLIP, -CLIP / 3], axis=1)[:, :channels]
    kind = np.dtype(dtype)
    if kind.kind == "f":
        stored = frames.astype(kind)
    else:
        levels = np.rint(frames * (2 ** (8 * kind.itemsize - 1) - 1)) + (128 if kind.kind == "u" else 0)
        stored = levels.astype(kind)
    file = io.BytesIO()
    wavfile.write(file, 500, stored)
    sound, header = decode_wav(file.getvalue(), "x")
    assert header == WavHeader(500, channels, 150)
    np.testing.assert_allclose(sound[0].numpy() / 32768, frames.mean(axis=1), atol=2**-6 if dtype == "u1" else 1e-4)


def extensible(samples: np.ndarray, rate: int) -> bytes:
    """The same file with the header that Windows writes for more than two channels, and a chunk of text."""
    whole = wav_bytes(samples, rate)
    tag = struct.pack("<HHI", 22, 16, 4) + struct.pack("<H", 1) + bytes.fromhex("000000001000800000aa00389b71")
    chunks = (
        b"fmt " + struct.pack("<I", 40) + b"\xfe\xff" + whole[22:36] + tag + b"LIST" + struct.pack("<I", 3) + b"abc\0"
    )
    return whole[:12] + chunks + whole[36:]


def test_the_extensible_header_is_read_past_other_chunks() -> None:
    sound, header = decode_wav(extensible(CLIP, 500), "x")
    assert header == WavHeader(500, 1, 150)
    assert torch.equal(sound, decode_wav(WHOLE, "x")[0])


@given(st.integers(1, 400), st.floats(0.1, 3), st.integers(1, 2))
def test_of_a_window_no_more_is_read_than_is_heard(length: int, seconds: float, channels: int) -> None:
    data = wav_bytes(np.stack([tone(length, 3), tone(length, 5)], axis=1)[:, :channels], 100)
    whole, header = decode_wav(data, "x")
    window = Window(seconds)
    heard, same = decode_wav(data, "x", window)
    assert same == header
    assert torch.equal(heard, torch.from_numpy(fit_window(whole.numpy(), window.samples(100))))


WHOLE = wav_bytes(CLIP, 500)


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "it is empty"),
        (b"RIFF", "it is cut short"),
        (b"no sound at all, but text", "not a wav file"),
        (WHOLE[:30], "it is cut short"),
        (WHOLE[:12] + WHOLE[36:], "does not say how its samples are stored"),
        (WHOLE[:12] + bytes(8 * 2000) + WHOLE[12:], "no samples in its first 1000 chunks"),
        (wav_bytes(CLIP[:0], 500), "it has no samples"),
    ],
)
def test_what_is_no_sound_is_named(data: bytes, complaint: str) -> None:
    for read in (decode_wav, wav_header):
        with pytest.raises(BadSample, match=rf"clip 7: .*({complaint})"):
            read(data, "clip 7")


@pytest.mark.parametrize(("data", "width"), [(WHOLE, 2), (float_wav(CLIP, 500), 4), (extensible(CLIP, 500), 2)])
def test_a_file_that_is_cut_short_is_named(data: bytes, width: int) -> None:
    for read in (decode_wav, wav_header):
        with pytest.raises(BadSample, match="x: it is cut short: 130 samples of the 150 that it announces"):
            read(data[: -20 * width], "x")
        with pytest.raises(BadSample, match="x: it is cut short: 75 samples of the 150 that it announces"):
            read(data[: -75 * width], "x")


@pytest.mark.parametrize(
    ("place", "value", "complaint"),
    [
        (24, 2**31 - 1, r"it claims a sample rate of 2,147,483,647: 1 to 1,000,000 are read"),
        (24, 0, "it claims a sample rate of 0"),
        (22, 0x2_FFFF, "it claims 65535 channels"),
        (22, 0, "it claims 0 channels"),
        (32, 0x10_FFFF, "1 channels of 16 bits take 2 bytes, but the header says 65535"),
        (32, 0xFFFF_0002, "its samples have 65535 bits: 8, 16, 24, 32 are read"),
        (32, 0x0000_0002, "its samples have 0 bits"),
        (20, 0x1_0055, r"its samples are compressed \(format 85\)"),
        (40, 2**32 - 1, "it is cut short: 150 samples of the 2147483647 that it announces"),
        (16, 2**32 - 1, "it is cut short: there are no samples"),
    ],
)
def test_numbers_that_a_header_claims_are_bounded(place: int, value: int, complaint: str, tmp_path: Path) -> None:
    claimed = WHOLE[:place] + struct.pack("<I", value) + WHOLE[place + 4 :]
    (tmp_path / "a.wav").write_bytes(claimed)
    for read in (decode_wav, wav_header):
        for source in (claimed, tmp_path / "a.wav"):
            with pytest.raises(BadSample, match=rf"x: {complaint}"):
                read(source, "x")


def test_a_window_of_too_many_samples_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArrnError, match=r"from 1 to 1,000,000, got 1000001"):
        Window(1.0, 1_000_001)
    with pytest.raises(BadSample, match=r"a\.wav: 1000000000.0 seconds at 64 a second .* more than the 33,554,432"):
        Reader(1, 1, seconds=1e9).read(write_wav(tmp_path / "a.wav", LOW, 64))


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.wav")
    for read in (decode_wav, wav_header):
        with pytest.raises(BadSample, match="x: cannot be read: it is a FIFO"):
            read(tmp_path / "a.wav", "x")


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
