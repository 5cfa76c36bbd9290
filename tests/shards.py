"""Sets in shards, parquet or tar, whose images tell which sample they are."""

import io
import json
import tarfile
from collections.abc import Sequence
from pathlib import Path

import torch

from pictures import encoded, picture, write_parquet

CLASSES = ("cat", "dog")


def numbered(number: int, size: tuple[int, int] = (4, 4)) -> bytes:
    """An image whose first pixel tells its number; the others are noise."""
    pixels = picture(*size, seed=number)
    pixels[0, 0] = number // 256, number % 256, 7
    return encoded(pixels)


def number_of(image: torch.Tensor) -> int:
    """The number of such an image, of shape (3, height, width)."""
    return int(image[0, 0, 0]) * 256 + int(image[1, 0, 0])


def write_tar(path: Path, files: Sequence[tuple[str, bytes]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for name, content in files:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def tar_files(images: Sequence[bytes], first: int = 0) -> list[tuple[str, bytes]]:
    """The members of a tar in the WebDataset convention; every third label is in a JSON file."""
    files = []
    for number, image in enumerate(images, first):
        label = (
            ("json", json.dumps({"label": number % 2}).encode()) if number % 3 == 0 else ("cls", b"%d" % (number % 2))
        )
        files += [(f"{number:06d}.png", image), (f"{number:06d}.{label[0]}", label[1])]
    return files


def write_shards(
    root: Path,
    kind: str,
    counts: Sequence[int],
    sizes: Sequence[tuple[int, int]] = ((4, 4),),
    row_group_size: int = 3,
    split: str = "train",
) -> Path:
    """Shards of so many samples each, numbered throughout, of two classes; images go through the sizes in turn."""
    first = 0
    for number, count in enumerate(counts):
        images = [numbered(n, sizes[n % len(sizes)]) for n in range(first, first + count)]
        if kind == "tar":
            write_tar(root / f"{split}-{number:04d}.tar", tar_files(images, first))
        else:
            path = root / f"{split}-{number:05d}-of-{len(counts):05d}.parquet"
            write_parquet(
                path, images, [n % 2 for n in range(first, first + count)], CLASSES, row_group_size=row_group_size
            )
        first += count
    return root
