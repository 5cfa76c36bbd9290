"""Images and sound in parquet files, in the Hugging Face convention."""

from __future__ import annotations

import bisect
import json
import os
import re
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch

from arrn.data.bounds import check_samples, check_unpacked, numbered_classes
from arrn.data.decoding import Codec, PictureCodec
from arrn.data.sound import SoundCodec
from arrn.data.source import IMAGE, SPLIT_NAMES, BadSample, Source
from arrn.errors import ArrnError, first_line, needs
from arrn.reading import check_regular
from arrn.runtime.wav import HIGHEST_RATE, Window

# What Hugging Face's metadata call columns of files; where they say nothing, the name of the column tells.
_IMAGES, _SOUNDS = "Image", "Audio"
_NAMES = {_IMAGES: ("image", "img"), _SOUNDS: ("audio", "sound", "speech")}
_SHARD = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.parquet")
_CACHE_BYTES = 2**30
_ROWS_AT_ONCE, _BYTES_AT_ONCE = 1024, 2**30


def find_parquet(root: Path, split: str) -> list[list[Path]]:
    """The files of a split, for each of the names that it may go by (`SPLIT_NAMES`) and that is there.

    Looks for ROOT/train-*.parquet, ROOT/train.parquet, the same in ROOT/data, and ROOT/train/*.parquet.
    """
    found = []
    for name in SPLIT_NAMES[split]:
        for folder, pattern in ((root, f"{name}[-.]*"), (root / "data", f"{name}[-.]*"), (root / name, "*")):
            files = sorted(path for path in folder.glob(pattern) if path.suffix == ".parquet")
            if files:
                _check_shards(files)
                found.append(files)
                break
    return found


def _check_shards(files: list[Path]) -> None:
    """Raises if one of a set of numbered files is missing: training on the rest would go unnoticed."""
    for file in files:
        if (shard := _SHARD.fullmatch(file.name)) is None:
            continue
        stem, count = shard["stem"], int(shard["count"])
        for number in range(count):
            part = file.with_name(f"{stem}-{number:05d}-of-{count:05d}.parquet")
            if part not in files:
                raise ArrnError(f"{part} is missing: {file.name} is one of {count} files")


class ParquetFiles(Source):
    """Images, or sound, from parquet files in the Hugging Face convention.

    Opening reads the labels. The encoded files are read a row group at a time when they are first asked for
    and kept, up to 1 GiB a process (the whole of CIFAR-10 takes 100 MB). A pickle holds none: a worker
    process opens the files itself.

    Args:
        files: the files of the split, in order.
        split: "train" or "test".
        name: the name of the set; by default that of the folder.
        class_names: what the labels mean; by default what the files say, or "0" to the largest label.
        window: what is heard of sound; by default one second at the rate that the metadata declare, or else at
            that of the first clip.
        max_pixels: of an image; more are refused. None is 64 million.
    """

    def __init__(
        self,
        files: Iterable[str | os.PathLike[str]],
        split: str,
        name: str | None = None,
        class_names: Iterable[str] | None = None,
        window: Window | None = None,
        max_pixels: int | None = None,
    ) -> None:
        self.files = tuple(Path(file) for file in files)
        if not self.files:
            raise ArrnError("a parquet set needs at least one file, got none")
        parts = [_read_columns(file) for file in self.files]
        labels = torch.cat([part.labels for part in parts])
        if not len(labels):
            raise ArrnError(f"{self.files[0]} holds no rows")
        given = None if class_names is None else tuple(class_names)
        for file, part in zip(self.files, parts, strict=True):
            given = given or part.class_names
            if part.class_names not in (None, given):
                raise ArrnError(f"{file} names its classes otherwise than the files before it: are they of one set?")
        names = given or numbered_classes(labels, self.files[0])
        super().__init__(name or self.files[0].absolute().parent.name, split, names, labels)
        if len({part.kind for part in parts}) > 1:
            raise ArrnError(f"some of {self.files[0]} and the files beside it hold images, others sound")
        self._columns = tuple(part.column for part in parts)
        self._rows = tuple(part.rows_of_groups for part in parts)
        # Row groups in order: the file, the group's number there, its first row there and in all.
        self._groups = tuple(
            (file, group, first)
            for file, part in enumerate(parts)
            for group, first in enumerate(_starts(part.rows_of_groups))
        )
        self._group_starts = _starts([rows for part in parts for rows in part.rows_of_groups])
        self._forget()
        self.codec: Codec = PictureCodec(max_pixels)
        if parts[0].kind == _SOUNDS:
            self.codec = SoundCodec((window or Window()).at_rate_of(self._clips(), parts[0].sampling_rate))
        self.form, self.max_pixels = self.codec.form, self.codec.max_pixels

    def where(self, index: int) -> str:
        (file, _, first), row = self._locate(index)
        return f"{self.files[file]} row {first + row}"

    def size(self, index: int) -> tuple[int, ...]:
        return self.codec.size(self._encoded(index), self.where(index))

    def read(self, index: int) -> torch.Tensor:
        return self.codec.decode(self._encoded(index), self.where(index))

    def changes(self, index: int) -> tuple[str, ...]:
        if self.form == IMAGE:  # nothing to say, and no need to fetch the bytes for it
            return ()
        return self.codec.changes(self._encoded(index), self.where(index))

    def _locate(self, index: int) -> tuple[tuple[int, int, int], int]:
        if not 0 <= index < len(self):
            raise IndexError(f"{self.name} has {len(self)} samples, got index {index}")
        place = bisect.bisect_right(self._group_starts, index) - 1
        return self._groups[place], index - self._group_starts[place]

    def _encoded(self, index: int) -> bytes:
        self.check_label(index)
        (file, group, _), row = self._locate(index)
        data = self._files_of(file, group)[row].as_py()
        if data is None:
            raise BadSample(self.where(index), f"column {self._columns[file]!r} holds no bytes")
        return bytes(data)

    def _clips(self) -> Iterator[tuple[bytes, str]]:
        """The files that are there, in order, and where; which of them can be read is another question."""
        for index in range(len(self)):
            try:
                yield self._encoded(index), self.where(index)
            except BadSample:
                continue

    def _files_of(self, file: int, group: int) -> Any:
        """The encoded files of a row group, as an arrow array of binaries."""
        with self._lock:
            if (file, group) in self._cache:
                self._cache.move_to_end((file, group))
                return self._cache[file, group]
            rows = self._rows[file][group]
            images = _read_group(self.files[file], group, self._columns[file], rows)
            self._cache[file, group] = images
            while len(self._cache) > 1 and sum(kept.nbytes for kept in self._cache.values()) > _CACHE_BYTES:
                self._cache.popitem(last=False)
            return images

    def _forget(self) -> None:
        self._cache: OrderedDict[tuple[int, int], Any] = OrderedDict()
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key not in ("_cache", "_lock")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()


def _starts(lengths: Iterable[int]) -> list[int]:
    """Where each of the parts that lie one after the other begins."""
    return list(accumulate(lengths, initial=0))[:-1]


@contextmanager
def _reading(file: Path, what: str) -> Iterator[Any]:
    """An open file, as `pyarrow.parquet` has it; whatever goes wrong with it is an `ArrnError`."""
    with needs("pyarrow", "reading parquet files"):
        import pyarrow.parquet as pq
    try:
        check_regular(file)
        with pq.ParquetFile(file) as parquet:
            yield parquet
    except FileNotFoundError:
        raise ArrnError(f"{file} is missing") from None
    except (ArrnError, ImportError):
        raise
    except Exception as error:  # arrow's own errors, those of Python for text that is none, and more
        raise ArrnError(f"{file} is {what}: {getattr(error, 'strerror', None) or first_line(error)}") from None


def _read_group(file: Path, group: int, column: str, rows: int) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    # Opened anew each time: an open file would be shared with forked workers. One thread, for the same reason.
    with _reading(file, f"corrupt in row group {group}") as parquet:
        footer = parquet.metadata.row_group(group)
        chunks = [footer.column(number) for number in range(footer.num_columns)]
        stored = sum(part.total_compressed_size for part in chunks)
        claimed = sum(part.total_uncompressed_size for part in chunks)
        what = f"{file}: row group {group}"
        check_unpacked(claimed, stored, what)
        # A few rows at a time: one file that a million rows repeat takes no room in parquet, and is copied here.
        few = max(1, min(_ROWS_AT_ONCE, _BYTES_AT_ONCE // max(1, claimed)))
        parts, read = [], 0
        for batch in parquet.iter_batches(few, row_groups=[group], columns=[column], use_threads=False):
            part = pc.struct_field(batch.column(0), "bytes")
            parts.append(part)
            read += part.nbytes
            check_unpacked(read, stored, what)
        images = pa.chunked_array(parts)
        if len(images) != rows:
            raise ValueError(f"it holds {len(images)} rows, and announces {rows}")
    return images


@dataclass(frozen=True)
class _Columns:
    """What there is to know of a file before its samples are read.

    Attributes:
        column: the name of the column of samples.
        kind: what they are, `_IMAGES` or `_SOUNDS`.
        labels: int64 of shape (rows,), -1 where there is none.
        class_names: what the labels mean, None if the file does not say.
        rows_of_groups: the number of rows of each row group.
        sampling_rate: that the metadata declare for sound.
    """

    column: str
    kind: str
    labels: torch.Tensor
    class_names: tuple[str, ...] | None
    rows_of_groups: tuple[int, ...]
    sampling_rate: int | None


def _read_columns(file: Path) -> _Columns:
    """Finds the columns of a file and reads its labels.

    Raises:
        ArrnError: for a missing or truncated file, one that is no parquet, one without samples or labels.
    """
    with _reading(file, "truncated or not a parquet file") as parquet:
        import pyarrow as pa

        schema, footer = parquet.schema_arrow, parquet.metadata
        rows = tuple(footer.row_group(group).num_rows for group in range(footer.num_row_groups))
        check_samples(sum(rows), file)
        features = _features(schema.metadata or {})
        column, kind = _file_column(schema, features, file)
        label = _label_column(schema, features, file)
        labels = parquet.read(columns=[label], use_threads=False).column(label)
        numbers = torch.from_numpy(labels.cast(pa.int64(), safe=False).fill_null(-1).to_numpy().copy())
        if len(numbers) != sum(rows) or min(rows, default=0) < 0:
            raise ValueError(f"it holds {len(numbers)} labels, and announces {sum(rows)} rows")
    names = _names(features, label)
    rate = features.get(column, {}).get("sampling_rate")
    declared = rate if type(rate) is int and 1 <= rate <= HIGHEST_RATE else None
    return _Columns(column, kind, numbers, tuple(map(str, names)) or None, rows, declared)


def _names(features: Mapping[str, Mapping[str, Any]], label: str) -> list[Any]:
    """What the metadata call the classes of a column; nothing where they do not, or say nothing sensible."""
    names = features.get(label, {}).get("names")
    return names if isinstance(names, list) else []


def _features(metadata: Mapping[bytes, bytes]) -> dict[str, dict[str, Any]]:
    """What Hugging Face's `datasets` says of each column; nothing where it says nothing sensible."""
    try:
        features = json.loads(metadata[b"huggingface"])["info"]["features"]
        return {name: feature for name, feature in features.items() if isinstance(feature, dict)}
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError):
        return {}


def _file_column(schema: Any, features: Mapping[str, Mapping[str, Any]], file: Path) -> tuple[str, str]:
    """The column of files, and what they are; of several, images before sound, and well-known names first."""
    import pyarrow as pa

    def holds_files(kind: Any) -> bool:
        if not pa.types.is_struct(kind) or kind.get_field_index("bytes") < 0:
            return False
        held = kind.field("bytes").type
        return bool(pa.types.is_binary(held) or pa.types.is_large_binary(held))

    def kind_of(name: str) -> str:
        unsaid = _SOUNDS if name in _NAMES[_SOUNDS] else _IMAGES
        return str(features.get(name, {}).get("_type", unsaid))

    there = [field.name for field in schema if holds_files(field.type)]
    for kind in (_IMAGES, _SOUNDS):
        found = [name for name in there if kind_of(name) == kind]
        if found:
            return str(next((name for name in _NAMES[kind] if name in found), found[0])), kind
    raise ArrnError(
        f"{file} has no column of images or sound, a struct of {{bytes, path}}; its columns are {_listing(schema)}"
    )


def _label_column(schema: Any, features: Mapping[str, Mapping[str, Any]], file: Path) -> str:
    import pyarrow as pa

    whole = [field.name for field in schema if pa.types.is_integer(field.type)]
    if "label" in whole:
        return "label"
    # Where there are several, as in CIFAR-100, the finest tells the most.
    named = [name for name in whole if features.get(name, {}).get("_type") == "ClassLabel"]
    if not named:
        raise ArrnError(
            f"{file} has no label column, whole numbers named 'label' or called ClassLabel in the metadata; "
            f"its columns are {_listing(schema)}"
        )
    return str(max(named, key=lambda name: len(_names(features, name))))


def _listing(schema: Any) -> str:
    return ", ".join(f"{field.name!r} ({field.type})" for field in schema)
