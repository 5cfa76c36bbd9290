"""Data sets by name or by folder."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from arrn.data.layouts import LAYOUTS, LOOKED_FOR, SHARDS_LOOKED_FOR, Reading, Splits, download, open_shards
from arrn.data.published import SAMPLE_FOLDER, default_root
from arrn.data.shards import ShardFolder, is_pattern
from arrn.data.source import Source
from arrn.data.storage import is_remote
from arrn.datasets import DATASETS, facts_of
from arrn.errors import ArrnError, unknown_name
from arrn.runtime.wav import Window

_FEWEST_CLASSES = 2


@dataclass(frozen=True)
class Dataset:
    """A labelled set of images, volumes or sound.

    Attributes:
        name: "cifar10", or the name of the folder or file.
        train, test: its splits. `test` is None where there is no test split.
        mean, std: the published mean and standard deviation, one number per channel of images in [0, 1]; None where
            none are published, and a run measures them on `train`.
        remark: a note for the user on which files were read; None where there is nothing to note.
        validation: a published validation split beside the test split, if there is one.
    """

    name: str
    train: Source
    test: Source | None
    mean: tuple[float, ...] | None
    std: tuple[float, ...] | None
    remark: str | None = None
    validation: Source | None = None

    @property
    def class_names(self) -> tuple[str, ...]:
        """A name for each class."""
        return self.train.class_names


def list_datasets() -> list[str]:
    """The names that `open_dataset` knows.

    >>> list_datasets()
    ['cifar10', 'cifar100', 'imagenette', 'sample', 'stl10', 'tinyimagenet']
    """
    return sorted(name for name, facts in DATASETS.items() if facts.access != "root")


def open_dataset(
    name: str,
    root: str | os.PathLike[str] | None = None,
    window: Window | None = None,
    max_pixels: int | None = None,
) -> Dataset:
    """Opens a set by name, or the one that lies in a folder.

    Args:
        name: one of `list_datasets`; or the path of a folder or of an npz file; or an address of fsspec, such as
            s3://bucket/folder. Braces name several shards: https://host/train-{000..127}.tar. With `root`, any name
            for the set that lies there. A known name brings the set's published mean and standard deviation, and its
            download; a path that ends in such a name does not.
        root: a folder with parquet files, with images or wav files in class folders, with MedMNIST's npz files, or
            with the published files of a known set; or an address, as for `name`. A set that can be downloaded, and
            is not there, is downloaded to this folder, by default to ``~/.cache/arrn``.
        window: the length and the sampling rate of the sound that is read from each clip; by default one second, at
            the set's own rate.
        max_pixels: the most pixels of an image, or voxels of a volume; larger ones are refused. None is 64 million.

    >>> dataset = open_dataset("sample")
    >>> len(dataset.train), len(dataset.test), dataset.train.read(0).shape
    (5000, 1000, torch.Size([3, 32, 32]))
    """
    by_name = True  # a path of the user's own may be called cifar10 too
    access = facts_of(name).access
    if root is None and access == "shipped":
        root = SAMPLE_FOLDER
    if root is None and access == "download":
        root = default_root()
    if root is None and access == "unpack" and not Path(name).is_dir():
        raise ArrnError(f"{name} is not downloaded: unpack its archive and give the folder with --data ROOT")
    if root is None and _names_shards(name):
        root, by_name = name, False
        name = _stem(name)
    if root is None:
        if not (os.sep in name or name.startswith("~") or Path(name).exists()):
            unknown = unknown_name("data set", name, list_datasets())
            own = _meant(Path(name)) or "for your own, give the path of its folder, or --data ROOT"
            raise ArrnError(f"{unknown}; {own}")
        root, by_name = Path(name).expanduser(), False
        name = root.resolve().name if root.is_dir() else root.stem
    how = Reading(window or Window(), max_pixels)
    if _names_shards(str(root)):
        folder = ShardFolder(str(root) if is_remote(str(root)) else str(Path(root).expanduser()))
        found = open_shards(name, folder, how)
        if found is None:
            raise ArrnError(f"{root} holds no training shards. Looked for {SHARDS_LOOKED_FOR}")
        splits = found
    else:
        splits = _open_splits(name, Path(root).expanduser(), how, by_name)
    classes = splits.train.class_names
    if len(classes) < _FEWEST_CLASSES:
        raise ArrnError(
            f"{root} has only the class {classes[0]!r}{_without_class(splits.train)}: a network needs at least 2"
        )
    for other in (splits.test, splits.validation):
        if other is not None and other.form != splits.train.form:
            raise ArrnError(
                f"the training split of {root} holds {splits.train.form.in_words}, but its {other.split} split holds "
                f"{other.form.in_words}: the splits of a set must be alike"
            )
    statistics = facts_of(name).statistics if by_name else None
    if statistics is None or len(statistics[0]) != splits.train.form.channels:  # it may only bear the name
        mean = std = None
    else:
        mean, std = statistics
    return Dataset(splits.train.name, splits.train, splits.test, mean, std, splits.remark, splits.validation)


def _names_shards(address: str) -> bool:
    """Whether an address is that of a store, or names shards by braces or as one of them."""
    return is_remote(address) or (is_pattern(address) and not Path(address).expanduser().is_dir())


def _stem(address: str) -> str:
    """What a set is called that an address names: its last part, up to what numbers its shards.

    >>> _stem("s3://bucket/imagenet/"), _stem("https://host/train-{000..127}.tar")
    ('imagenet', 'train')
    """
    last = address.rstrip("/").rpartition("/")[2]
    return re.split(r"[-_.]?[{*.]", last)[0] or "shards"


def _without_class(source: Source) -> str:
    """That some samples have a negative label, which is no class, in words; nothing where none has."""
    negative = source.labels[source.labels < 0]
    if not len(negative):
        return ""
    first = int(negative[0])
    return (
        f", and {len(negative)} of its {len(source)} samples have a negative label such as {first}, which is no class"
    )


def _open_splits(name: str, root: Path, how: Reading, by_name: bool) -> Splits:
    may_download = by_name and facts_of(name).access == "download"
    if root.is_dir() or (root.is_file() and root.suffix in (".npz", ".zip")):
        for layout in LAYOUTS:
            splits = layout(name, root, how, by_name)
            if splits is not None:
                return splits
    elif root.exists() or not may_download:
        wrong = f"{root} is {'not a folder' if root.exists() else 'missing'}: give the folder of the data set"
        near = None if root.exists() else _meant(root)
        raise ArrnError(wrong if near is None else f"{wrong}; {near}")
    if may_download:
        return download(name, root)
    raise ArrnError(f"{root} holds no data set of a known layout. Looked for {LOOKED_FOR}")


def _meant(missing: Path) -> str | None:
    """A question that names a folder or npz file with nearly the same name beside the missing one."""
    try:
        there = [path.name for path in missing.parent.iterdir() if path.is_dir() or path.suffix == ".npz"]
    except OSError:
        return None
    near = get_close_matches(missing.name, there, n=1)
    return f"did you mean {str(missing.parent / near[0])!r}?" if near else None


def data_root(data: str | None) -> str | None:
    """The absolute path of a data set's root. The address of a store stays as it is."""
    return data if data is None or "://" in data else str(Path(data).expanduser().resolve())


def set_or_path(dataset: str, data: str | None) -> str:
    """The absolute path of a data set that is given as a path. A name or an address stays as it is."""
    path = Path(dataset).expanduser()
    if data is not None or is_remote(dataset) or dataset in list_datasets():
        return dataset
    return str(path.resolve()) if path.exists() or is_pattern(dataset) else dataset
