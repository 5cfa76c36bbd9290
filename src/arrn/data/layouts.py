"""What may lie under a root: one function for each layout, which opens it or says that it is not there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from arrn.data.decoding import PICTURES, Codec, PictureCodec
from arrn.data.folder import ClassFolders, files_in, find_class_folder
from arrn.data.npz import find_npz, open_npz
from arrn.data.parquet import ParquetFiles
from arrn.data.published import (
    CIFAR_FOLDERS,
    IMAGENETTE_FOLDERS,
    CifarBatches,
    Stl10Binary,
    download_stl10,
    find_stl10,
    imagenette_words,
)
from arrn.data.shards import PARQUET, TAR, ShardFolder
from arrn.data.sound import SoundCodec
from arrn.data.source import SPLIT_NAMES, Source
from arrn.data.storage import StoredFile
from arrn.data.tars import TarFiles
from arrn.data.tinyimagenet import TinyImageNet, download_tinyimagenet, find_tinyimagenet
from arrn.errors import ArrnError
from arrn.runtime.wav import Window


@dataclass(frozen=True)
class Reading:
    """How files are read.

    Attributes:
        window: the length and the sampling rate of the sound that is read from each clip.
        max_pixels: the most pixels of an image, or voxels of a volume; larger ones are refused. None is 64 million.
    """

    window: Window = field(default_factory=Window)
    max_pixels: int | None = None


@dataclass(frozen=True)
class Splits:
    """What lies under a root; a split that is not there is None.

    Attributes:
        train, test: the splits.
        validation: a third one, where there is one beside a test split.
        remark: a note for the user on which files were read, if there is anything to note.
    """

    train: Source
    test: Source | None
    validation: Source | None = None
    remark: str | None = None


def _shards(name: str, root: Path, how: Reading, by_name: bool) -> Splits | None:
    return open_shards(name, ShardFolder(str(root)), how)


def open_shards(name: str, folder: ShardFolder, how: Reading) -> Splits | None:
    """Opens the parquet or tar files of a folder on disk or in a store; None where there are none for training."""
    kind = next((kind for kind in (PARQUET, TAR) if folder.find("train", kind)), None)
    if kind is None:
        return None
    window = how.window
    names: Sequence[str] | None = folder.class_names() if kind == TAR else None

    def open_split(files: list[StoredFile], split: str) -> ParquetFiles | TarFiles:
        opener: type[ParquetFiles | TarFiles] = ParquetFiles if kind == PARQUET else TarFiles
        return opener(files, split, name, names, window, how.max_pixels)

    train = open_split(folder.find("train", kind)[0], "train")
    names = train.class_names
    if isinstance(train.codec, SoundCodec):
        window = train.codec.window  # the test split is heard at the rate of the training split
    tests, validations = (
        [open_split(files, split) for files in folder.find(split, kind)] for split in ("test", "validation")
    )
    remarks = (_left_out_in_words(folder, kind), _empty_in_words([train, *tests, *validations]))
    remark = "; ".join(filter(None, remarks)) or None
    # Hugging Face gives the test split of a competition with no labels, -1; the validation split stands in.
    test, validation = next(filter(_is_labelled, tests), None), next(filter(_is_labelled, validations), None)
    if test is not None:
        return Splits(train, test, validation, remark)
    if validation is not None:
        validation.split = "test"
        return Splits(train, validation, None, remark)
    return Splits(train, next(iter(tests + validations), None), None, remark)


def _left_out_in_words(folder: ShardFolder, kind: str) -> str | None:
    """That there are tar files for training beside the parquet files; None where there are not."""
    others = folder.find("train", TAR) if kind == PARQUET else []
    if not others:
        return None
    return (
        f"the parquet files are read; tar files such as {others[0][0].address} are left out: to read the tar files, "
        "name them with braces, train-{0..9}.tar"
    )


def _empty_in_words(sources: list[ParquetFiles | TarFiles]) -> str | None:
    """Which shards hold no sample, in a line; None where all of them do."""
    empty = [address for source in sources for address in source.empty]
    if not empty:
        return None
    total = sum(len(source.files) for source in sources)
    return f"{len(empty):,} of {total:,} files hold no sample, such as {empty[0]}: is their content lost?"


def _is_labelled(source: Source) -> bool:
    return bool((source.labels != -1).any())


def _cifar(name: str, root: Path, how: Reading, by_name: bool) -> Splits | None:
    there = [kind for kind, folder in CIFAR_FOLDERS.items() if (root / folder).is_dir()]
    if (itself := root.resolve()).name in CIFAR_FOLDERS.values():
        there = [kind for kind, folder in CIFAR_FOLDERS.items() if itself.name == folder]
        root = itself.parent
    by_name = by_name and name in CIFAR_FOLDERS
    if by_name:
        there = [kind for kind in there if kind == name]
    if len(there) > 1:
        raise ArrnError(f"{root} holds both cifar10 and cifar100: choose one of them by its name")
    if not there:
        return None
    # Of a known name, a broken copy is repaired by downloading it again.
    kind = there[0]
    return Splits(CifarBatches(kind, root, "train", name, by_name), CifarBatches(kind, root, "test", name, by_name))


def _stl10(name: str, root: Path, how: Reading, by_name: bool) -> Splits | None:
    folder = find_stl10(root)
    return None if folder is None else _open_stl10(name, folder)


def _open_stl10(name: str, folder: Path) -> Splits:
    return Splits(Stl10Binary(folder, "train", name), Stl10Binary(folder, "test", name))


def _tinyimagenet(name: str, root: Path, how: Reading, by_name: bool) -> Splits | None:
    files = find_tinyimagenet(root)
    return None if files is None else Splits(TinyImageNet(files, "train", name), TinyImageNet(files, "test", name))


def _npz(name: str, root: Path, how: Reading, by_name: bool) -> Splits | None:
    found = find_npz(root, name)
    if found is None:
        return None
    file, remark = found
    train, test, validation = open_npz(file, max_pixels=how.max_pixels)
    return Splits(train, test, validation, remark)


def _class_folders(name: str, root: Path, how: Reading, by_name: bool) -> Splits | None:
    if name == "imagenette":
        root = next((root / folder for folder in IMAGENETTE_FOLDERS if (root / folder).is_dir()), root)
    train = find_class_folder(root, "train")
    if train is None:
        return None
    codec: Codec = PictureCodec(how.max_pixels)
    picture, clip = next(files_in(train, PICTURES), None), next(files_in(train, SoundCodec), None)
    if picture is not None and clip is not None:
        raise ArrnError(f"{root} holds images and sound, such as {picture} and {clip}: a set holds one kind only")
    if picture is None:
        if clip is None:
            return None
        codec = SoundCodec(how.window.at_rate_of((path, path) for path in files_in(train, SoundCodec)))
    sources = {
        split: ClassFolders(root, split, codec, name)
        for split in SPLIT_NAMES
        if find_class_folder(root, split) is not None
    }
    for source in sources.values():
        source.class_names = imagenette_words(source.class_names)
    return Splits(sources["train"], sources.get("test"), sources.get("validation"))


Layout = Callable[[str, Path, Reading, bool], Splits | None]
"""Opens what it finds of a name, under a root.

The last argument is whether the user gave the name, which may mean a known set, or a path that is called so.
"""

# Those with files of fixed names first: class folders may be called anything.
LAYOUTS: tuple[Layout, ...] = (_shards, _cifar, _stl10, _tinyimagenet, _npz, _class_folders)

SHARDS_LOOKED_FOR = (
    "train-*.parquet, data/train-*.parquet and train/*.parquet, or the same with .tar; where a store does not list its "
    "files, braces name them: https://host/train-{000..127}.tar"
)

LOOKED_FOR = (
    "parquet or tar files (train-*.parquet, data/train-*.parquet, train/*.parquet), npz files of MedMNIST's layout, "
    "images or wav files in class folders (train/CLASS/, or CLASS/), CIFAR's files "
    f"({', '.join(CIFAR_FOLDERS.values())}), STL10's (stl10_binary) and TinyImageNet's (tiny-imagenet-200, or its zip)"
)


def download(name: str, root: Path) -> Splits:
    """Fetches a set that can be downloaded (`arrn.datasets`) into a root where it is not, and opens it."""
    if name == "stl10":
        return _open_stl10(name, download_stl10(root))
    if name == "tinyimagenet":
        files = download_tinyimagenet(root)
        return Splits(TinyImageNet(files, "train", name), TinyImageNet(files, "test", name))
    return Splits(CifarBatches(name, root, "train", download=True), CifarBatches(name, root, "test", download=True))
