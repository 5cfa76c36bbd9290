"""Pictures that a site offers to its visitors: one of each class of the shipped sample, or those of a folder."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from arrn.data import open_dataset
from arrn.errors import ArrnError, needs
from arrn.runtime.files import Array
from arrn.runtime.pictures import decode_picture
from arrn.writing import write_atomically

_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff")
_MOST = 24
_LONGEST = 512  # pixels of a side; larger pictures are made smaller
_EXACT = 64  # pixels up to which a picture is kept as it is; larger ones are compressed


@dataclass(frozen=True)
class Sample:
    """A picture with its name: uint8 of shape (height, width, 3)."""

    name: str
    pixels: Array

    def write(self, site: Path, number: int) -> dict[str, Any]:
        """Writes it into a site, and tells the page where it is."""
        with needs("pillow", "writing pictures"):
            from PIL import Image
        image = Image.fromarray(self.pixels)
        image.thumbnail((_LONGEST, _LONGEST))
        small = max(image.size) <= _EXACT
        file = io.BytesIO()
        image.save(file, "PNG" if small else "JPEG", **({} if small else {"quality": 88}))
        place = f"samples/{number:02}.{'png' if small else 'jpg'}"
        (site / "samples").mkdir(exist_ok=True)
        write_atomically(site / place, file.getvalue())
        return {"file": place, "name": self.name}


def shipped_samples() -> list[Sample]:
    """The first test image of each class of the CIFAR-10 sample that comes with the library.

    >>> [(sample.name, sample.pixels.shape) for sample in shipped_samples()][:2]
    [('airplane', (32, 32, 3)), ('automobile', (32, 32, 3))]
    """
    test = open_dataset("sample").test
    assert test is not None
    found = []
    for label, name in enumerate(test.class_names):
        (first,) = (test.labels == label).nonzero()[0].tolist()
        found.append(Sample(name, np.ascontiguousarray(test.read(first).permute(1, 2, 0).numpy())))
    return found


def read_samples(folder: Path) -> list[Sample]:
    """The pictures of a folder, by their names; those in its folders are left alone.

    Raises:
        ArrnError: for no such folder, one without pictures or with too many, and for a picture that cannot be read.
    """
    if not folder.is_dir():
        raise ArrnError(f"--samples {folder} is not a folder: give one with pictures, such as {_SUFFIXES[0]} files")
    found = sorted(path for path in folder.iterdir() if path.suffix.lower() in _SUFFIXES)
    if not 1 <= len(found) <= _MOST:
        raise ArrnError(f"--samples takes a folder with 1 to {_MOST} pictures, and {folder} holds {len(found)}")
    least = (_LONGEST, _LONGEST)
    return [Sample(path.stem, _upright(decode_picture(path, str(path), least=least))) for path in found]


def _upright(planes: Array) -> Array:
    return np.ascontiguousarray(planes.transpose(1, 2, 0))
