"""Makes the sample that ships with the package out of the whole of CIFAR-10.

python tools/make_sample.py CIFAR10_ROOT [FOLDER]

CIFAR10_ROOT is anything that `open_dataset("cifar10", ROOT)` reads. The same root, Pillow and libwebp give
the same bytes.
"""

from __future__ import annotations

import io
import json
import math
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image

from arrn.data import Source, open_dataset
from arrn.data.published import SAMPLE_FOLDER

PER_CLASS = {"train": 500, "test": 100}
QUALITY = 92


def first_of_each_class(source: Source, count: int) -> list[int]:
    """The indices of the first `count` samples of each class, in the order of the source."""
    chosen = [torch.nonzero(source.labels == label)[:count, 0] for label in range(len(source.class_names))]
    return sorted(torch.cat(chosen).tolist())


def encode(image: torch.Tensor) -> tuple[bytes, float]:
    """The image (3, height, width) as WebP, and the mean squared error of what comes back, of 255 squared."""
    plain = image.permute(1, 2, 0).contiguous().numpy()
    file = io.BytesIO()
    Image.fromarray(plain).save(file, "WEBP", quality=QUALITY, method=6)  # 6: the slowest, the smallest
    back = torch.frombuffer(bytearray(Image.open(file).convert("RGB").tobytes()), dtype=torch.uint8)
    return file.getvalue(), (back.double() - torch.from_numpy(plain).flatten().double()).square().mean().item()


def write_split(source: Source, path: Path) -> None:
    """Writes one split in the Hugging Face convention and says how large and how faithful it is."""
    indices = first_of_each_class(source, PER_CLASS[source.split])
    encoded = [encode(source.read(index)) for index in indices]
    features = {"img": {"_type": "Image"}, "label": {"names": list(source.class_names), "_type": "ClassLabel"}}
    metadata = {b"huggingface": json.dumps({"info": {"features": features}}).encode()}
    image_type = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    images = pa.array([{"bytes": data, "path": None} for data, _ in encoded], type=image_type)
    schema = pa.schema([("img", image_type), ("label", pa.int64())], metadata=metadata)
    table = pa.table([images, pa.array(source.labels[indices].tolist())], schema=schema)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Compression and dictionaries gain nothing on WebP; without them the rows are read straight from the file.
    pq.write_table(table, path, compression="none", use_dictionary=["label"], write_statistics=False)
    error = sum(error for _, error in encoded) / len(encoded)
    decibels = 10 * math.log10(255**2 / error)
    print(f"{path}: {len(encoded)} images, {path.stat().st_size:,} bytes, PSNR {decibels:.2f} dB")


def main() -> None:
    """Writes both splits."""
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    folder = Path(sys.argv[2]) if len(sys.argv) == 3 else SAMPLE_FOLDER
    dataset = open_dataset("cifar10", sys.argv[1])
    for source in (dataset.train, dataset.test):
        assert source is not None
        write_split(source, folder / f"{source.split}-00000-of-00001.parquet")


if __name__ == "__main__":
    main()
