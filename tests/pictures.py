"""Small data sets written for a test: pictures of any size, encoded any way, as folders or parquet files."""

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image

from arrn.data import Source

SHARED = Path(__file__).parents[2] / "shared" / "data"
IMAGE_TYPE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def picture(height: int, width: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """Smooth colours and a little noise, uint8 of shape (height, width, 3), so that lossy formats come close."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[0:height, 0:width] / max(height, width)
    phases = rng.uniform(0, 3, size=3)
    waves = [128 + 90 * np.sin(3 * (rows + k * columns) + phase) for k, phase in enumerate(phases)]
    return np.clip(np.stack(waves, -1) + rng.normal(size=(height, width, 3)), 0, 255).astype(np.uint8)


def encoded(pixels: np.ndarray[Any, Any], kind: str = "PNG", mode: str = "RGB", **options: Any) -> bytes:
    """The bytes of an image file."""
    file = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(file, kind, **options)
    return file.getvalue()


def to_tensor(image: Image.Image) -> torch.Tensor:
    """A Pillow image of mode RGB as (3, height, width)."""
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def write_folder(root: Path, sizes: dict[str, Sequence[tuple[int, int]]], suffix: str = "png") -> None:
    """Writes ROOT/CLASS/0.png and so on, of the given (height, width)."""
    for class_name, pictures in sizes.items():
        folder = root / class_name
        folder.mkdir(parents=True, exist_ok=True)
        for number, (height, width) in enumerate(pictures):
            Image.fromarray(picture(height, width, number)).save(folder / f"{number}.{suffix}")


def write_parquet(
    path: Path,
    images: Sequence[bytes | None],
    labels: Sequence[int | None],
    names: Sequence[str] | None = ("cat", "dog"),
    image_column: str = "img",
    label_column: str = "label",
    row_group_size: int = 3,
) -> Path:
    """Writes a file in the Hugging Face convention; no `names`, no metadata."""
    features: dict[str, Any] = {image_column: {"_type": "Image"}}
    features[label_column] = {"_type": "ClassLabel", "names": list(names or ())}
    metadata = None if names is None else {"huggingface": json.dumps({"info": {"features": features}})}
    schema = pa.schema([(image_column, IMAGE_TYPE), (label_column, pa.int64())], metadata=metadata)
    rows = [{"bytes": data, "path": None} for data in images]
    table = pa.table([pa.array(rows, IMAGE_TYPE), pa.array(labels, pa.int64())], schema=schema)
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, row_group_size=row_group_size)
    return path


class Samples(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
    """A source for a DataLoader, in a module that worker processes can import."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.source.read(index), int(self.source.labels[index])
