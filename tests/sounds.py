"""Small sets of sound and of volumes written for a test."""

import io
import json
import struct
import wave
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pictures import IMAGE_TYPE

Levels = np.ndarray[Any, Any]


def tone(rate: int, cycles: float, seconds: float = 1.0, seed: int = 0) -> Levels:
    """A tone of `cycles` a second with a little noise, in [-1, 1]."""
    rng = np.random.default_rng(seed)
    time = (np.arange(round(rate * seconds)) + 0.5) / rate
    wave_form = 0.6 * np.sin(2 * np.pi * cycles * time + rng.uniform(0, 6)) + 0.02 * rng.normal(size=time.shape)
    return np.asarray(wave_form)


def wav_bytes(samples: Levels, rate: int, bits: int = 16) -> bytes:
    """A PCM file of samples in [-1, 1], shape (length,) or (length, channels)."""
    frames = samples[:, None] if samples.ndim == 1 else samples
    if bits == 8:
        data = np.rint(frames * 127 + 128).astype(np.uint8).tobytes()
    else:
        whole = np.rint(frames * (2 ** (bits - 1) - 1)).astype("<i4")
        data = whole.reshape(-1, 1).view(np.uint8)[:, : bits // 8].tobytes()
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(frames.shape[1])
        writer.setsampwidth(bits // 8)
        writer.setframerate(rate)
        writer.writeframes(data)
    return file.getvalue()


def float_wav(samples: Levels, rate: int) -> bytes:
    """A file of 32-bit floating-point numbers, mono, which `wave` does not write."""
    data = samples.astype("<f4").tobytes()
    format_chunk = struct.pack("<4sIHHIIHH", b"fmt ", 16, 3, 1, rate, 4 * rate, 4, 32)
    content = b"WAVE" + format_chunk + b"data" + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", len(content)) + content


def write_wav(path: Path, samples: Levels, rate: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(wav_bytes(samples, rate))
    return path


def write_audio_parquet(
    path: Path, clips: Sequence[bytes], labels: Sequence[int], rate: int | None = None, column: str = "audio"
) -> Path:
    """A file in the Hugging Face convention; no `rate`, no metadata."""
    schema = pa.schema([(column, IMAGE_TYPE), ("label", pa.int64())])
    if rate is not None:
        names = {"_type": "ClassLabel", "names": ["low", "high"]}
        features = {column: {"_type": "Audio", "sampling_rate": rate}, "label": names}
        schema = schema.with_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    rows = [{"bytes": clip, "path": f"{n}.wav"} for n, clip in enumerate(clips)]
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table([pa.array(rows, IMAGE_TYPE), pa.array(labels, pa.int64())], schema=schema), path)
    return path


def write_tones(root: Path, per_class: int = 8, rate: int = 64) -> Path:
    """Wav files in class folders: low and high tones, of differing lengths."""
    for split, seed in (("train", 0), ("test", 100)):
        for name, cycles in (("low", 2.0), ("high", 6.0)):
            for n in range(per_class):
                write_wav(root / split / name / f"{n}.wav", tone(rate, cycles, 0.8 + 0.1 * (n % 5), seed + n), rate)
    return root


def write_npz(path: Path, count: int = 12, size: Sequence[int] = (8, 8, 8), channels: int = 0, **other: Levels) -> Path:
    """A file of MedMNIST's layout; the second class has a bright middle. `other` replaces arrays, None removes one."""
    rng = np.random.default_rng(0)
    arrays: dict[str, Any] = {}
    for split in ("train", "val", "test"):
        labels = (np.arange(count) % 3 == 0).astype(np.uint8)
        images = rng.integers(0, 60, (count, *size, *([channels] if channels else [])), np.uint8)
        middle = tuple(slice(n // 4, n - n // 4) for n in size)
        for image, label in zip(images, labels, strict=True):
            image[middle] += 150 * label
        arrays |= {f"{split}_images": images, f"{split}_labels": labels[:, None]}
    arrays |= other
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, **{key: array for key, array in arrays.items() if array is not None})
    return path
