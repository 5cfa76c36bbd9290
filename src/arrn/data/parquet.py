"""Images and sound in parquet files, in the Hugging Face convention."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from arrn.data.bounds import as_labels, check_class_names, check_samples, check_unpacked, numbered_classes
from arrn.data.chunks import ChunkedSource, EncodedChunk, starts
from arrn.data.decoding import PictureCodec
from arrn.data.sound import SoundCodec
from arrn.data.storage import AT_ONCE, StoredFile, StoredReader, file_at, is_remote
from arrn.errors import ArrnError, first_line, needs
from arrn.reading import LARGEST_DOCUMENT, check_regular, parse_json
from arrn.runtime.wav import HIGHEST_RATE, Window

_METADATA = b"huggingface"
# What Hugging Face's metadata call columns of files; where they say nothing, the name of the column tells.
_IMAGES, _SOUNDS = "Image", "Audio"
_NAMES = {_IMAGES: ("image", "img"), _SOUNDS: ("audio", "sound", "speech")}
_ROWS_AT_ONCE, _BYTES_AT_ONCE = 128, 2**30
_FOOTERS = 64  # that are kept; one is some ten kilobytes
_PADDING = 128  # bytes after a column that arrow reads for files of old writers


class ParquetFiles(ChunkedSource):
    """Images, or sound, from parquet files in the Hugging Face convention, on disk or in a store.

    Opening reads footers and labels. The encoded samples are read a row group at a time.

    Args:
        files: the files of the split, in order: paths, addresses or `StoredFile`s.
        split: "train" or "test".
        name: the name of the set; by default that of the folder.
        class_names: a name for each class; by default the names in the files, or else "0" to the largest label.
        window: the length and the sampling rate of the sound that is read from each clip; by default one second, at the
            rate in the metadata, or else at the rate of the first clip.
        max_pixels: the most pixels of an image; larger ones are refused. None is 64 million.
    """

    def __init__(
        self,
        files: Iterable[str | os.PathLike[str] | StoredFile],
        split: str,
        name: str | None = None,
        class_names: Iterable[str] | None = None,
        window: Window | None = None,
        max_pixels: int | None = None,
    ) -> None:
        self.files = tuple(map(file_at, files))
        if not self.files:
            raise ArrnError("a parquet set needs at least one file, got none")
        parts = _read_all_columns(self.files)
        labels = torch.cat([part.labels for part in parts])
        if not len(labels):
            raise ArrnError(f"{self.files[0].address} holds no rows")
        _check_alike(self.files, parts)
        given = None if class_names is None else tuple(class_names)
        for file, part in zip(self.files, parts, strict=True):
            given = given or part.class_names
            if part.class_names not in (None, given):
                raise ArrnError(
                    f"{file.address} has other class names than the files before it: the files of a set should have "
                    "the same"
                )
        names = given or numbered_classes(labels, self.files[0].address)
        folder = self.files[0].address.removesuffix(self.files[0].name)
        super().__init__(name or Path(folder).absolute().name, split, names, labels)
        self.empty = tuple(file.address for file, part in zip(self.files, parts, strict=True) if not len(part.labels))
        self._column = parts[0].column
        # Of each row group: its number in the file, its first row there, and where its samples lie.
        self._groups = tuple(
            (group, first, span)
            for part in parts
            for group, (first, span) in enumerate(zip(starts(part.rows_of_groups), part.spans, strict=True))
        )
        self._lay_out(
            chain.from_iterable(part.rows_of_groups for part in parts),
            (stop - start for _, _, (start, stop) in self._groups),
            (file for file, part in enumerate(parts) for _ in part.spans),
        )
        self.codec = PictureCodec(max_pixels)
        if parts[0].kind == _SOUNDS:
            self.codec = SoundCodec((window or Window()).at_rate_of(self._clips(), parts[0].sampling_rate))
        self.form, self.max_pixels = self.codec.form, self.codec.max_pixels

    def where(self, index: int) -> str:
        chunk, row = self.locate(index)
        return f"{self.files[self.file_of[chunk]].address} row {self._groups[chunk][1] + row}"

    @property
    def layout(self) -> list[object]:
        return [self._column]

    def without_bytes(self, index: int) -> str:
        return f"column {self._column!r} holds no bytes"

    def read_chunk(self, chunk: int, given_up: threading.Event | None = None) -> EncodedChunk:
        file, (group, _, span) = self.files[self.file_of[chunk]], self._groups[chunk]
        return _read_group(file, self._footer(file), group, self._column, span, self.lengths[chunk], given_up)

    def _footer(self, file: StoredFile) -> Any:
        """What a file says of its row groups; several threads may ask."""
        footer = self._footers.get(file.address)
        if footer is None:
            with _reading(file, "truncated or not a parquet file") as parquet:
                footer = self._footers[file.address] = parquet.metadata
            while len(self._footers) > _FOOTERS:
                self._footers.popitem(last=False)
        return footer

    def forget(self) -> None:
        super().forget()
        self._footers: OrderedDict[str, Any] = OrderedDict()

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in super().__getstate__().items() if key != "_footers"}


@contextmanager
def _reading(file: StoredFile, what: str, footer: Any = None, kept: tuple[int, bytes] | None = None) -> Iterator[Any]:
    """An open file, as `pyarrow.parquet` has it; whatever goes wrong with it is an `ArrnError`."""
    with needs("pyarrow", "reading parquet files"):
        import pyarrow.parquet as pq
    try:
        if not is_remote(file.address):
            check_regular(Path(file.address))
        with pq.ParquetFile(StoredReader(file, kept=kept), metadata=footer, pre_buffer=True) as parquet:
            yield parquet
    except FileNotFoundError:
        raise ArrnError(f"{file.address} is missing") from None
    except (ArrnError, ImportError):
        raise
    except Exception as error:  # arrow's own errors, those of Python for text that is none, and more
        why = getattr(error, "strerror", None) or first_line(error)
        raise ArrnError(f"{file.address} is {what}: {why}") from None


def _read_group(
    file: StoredFile,
    footer: Any,
    group: int,
    column: str,
    span: tuple[int, int],
    rows: int,
    given_up: threading.Event | None,
) -> EncodedChunk:
    """The encoded samples of a row group, whose bytes lie in `span` of the file."""
    import pyarrow.compute as pc

    what = f"{file.address}: row group {group}"
    try:
        stored = file.read(span[0], min(file.size, span[1] + _PADDING), given_up)
    except FileNotFoundError:
        raise ArrnError(f"{file.address} is missing") from None
    with _reading(file, f"corrupt in row group {group}", footer, (span[0], stored)) as parquet:
        described = footer.row_group(group)
        claimed = sum(described.column(number).total_uncompressed_size for number in range(described.num_columns))
        check_unpacked(claimed, len(stored), what)
        # A few rows at a time: one file that a million rows repeat takes no room in parquet, and is copied here.
        few = max(1, min(_ROWS_AT_ONCE, _BYTES_AT_ONCE // max(1, claimed)))
        samples: EncodedChunk = []
        read = 0
        leaf = f"{column}.bytes"
        for batch in parquet.iter_batches(few, row_groups=[group], columns=[leaf], use_threads=False):
            part = pc.struct_field(batch.column(0), "bytes")
            read += part.nbytes
            check_unpacked(read, len(stored), what)
            samples += part.to_pylist()  # all at once takes a quarter of the time of one by one
        if len(samples) != rows:
            raise ValueError(f"it announces {rows} rows, but holds {len(samples)}")
    return samples


@dataclass(frozen=True)
class _Columns:
    """What there is to know of a file before its samples are read.

    Attributes:
        column: the name of the column of samples.
        kind: what they are, `_IMAGES` or `_SOUNDS`.
        labels: int64 of shape (rows,), -1 where there is none.
        class_names: what the labels mean, None if the file does not say.
        label: the name of the column of labels.
        rows_of_groups: the number of rows of each row group.
        spans: where the samples of each row group begin and end in the file.
        sampling_rate: that the metadata declare for sound.
    """

    column: str
    kind: str
    labels: torch.Tensor
    class_names: tuple[str, ...] | None
    label: str
    rows_of_groups: tuple[int, ...]
    spans: tuple[tuple[int, int], ...]
    sampling_rate: int | None


def _read_all_columns(files: Sequence[StoredFile]) -> list[_Columns]:
    if not is_remote(files[0].address):
        return list(map(_read_columns, files))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(_read_columns, files))


def _check_alike(files: Sequence[StoredFile], parts: Sequence[_Columns]) -> None:
    """Refuses files of which some hold something else than the first, or hold the same under other names."""
    first, words = parts[0], {_IMAGES: "images", _SOUNDS: "sound"}
    for file, part in zip(files, parts, strict=True):
        if (part.kind, part.column, part.label) != (first.kind, first.column, first.label):
            raise ArrnError(
                f"{file.address} holds {words[part.kind]} in {part.column!r} and labels in {part.label!r}, but "
                f"{files[0].address} holds {words[first.kind]} in {first.column!r} and labels in {first.label!r}: the "
                "files of a set should have the same columns"
            )


def _read_columns(file: StoredFile) -> _Columns:
    """Finds the columns of a file and reads its labels.

    Raises:
        ArrnError: for a missing or truncated file, one that is no parquet, one without samples or labels.
    """
    with _reading(file, "truncated or not a parquet file") as parquet:
        import pyarrow as pa

        schema, footer = parquet.schema_arrow, parquet.metadata
        rows = tuple(footer.row_group(group).num_rows for group in range(footer.num_row_groups))
        check_samples(sum(rows), file.address)
        features = _features(schema.metadata or {}, file.address)
        column, kind = _file_column(schema, features, file.address)
        label = _label_column(schema, features, file.address)
        labels = parquet.read(columns=[label], use_threads=False).column(label)
        if pa.types.is_uint64(labels.type):
            as_labels(labels.fill_null(0).to_numpy(), file.address)
        numbers = torch.from_numpy(labels.cast(pa.int64(), safe=False).fill_null(-1).to_numpy().copy())
        if len(numbers) != sum(rows) or min(rows, default=0) < 0:
            raise ValueError(f"it announces {sum(rows)} rows, but holds {len(numbers)} labels")
        spans = tuple(_span(footer.row_group(group), f"{column}.bytes") for group in range(footer.num_row_groups))
    names = _names(features, label)
    check_class_names(names, file.address)
    rate = features.get(column, {}).get("sampling_rate")
    declared = rate if type(rate) is int and 1 <= rate <= HIGHEST_RATE else None
    return _Columns(column, kind, numbers, tuple(map(str, names)) or None, label, rows, spans, declared)


def _span(group: Any, leaf: str) -> tuple[int, int]:
    """Where a column of a row group begins and ends in the file."""
    columns = (group.column(number) for number in range(group.num_columns))
    column = next(column for column in columns if column.path_in_schema == leaf)
    start = column.data_page_offset
    if column.has_dictionary_page and 0 < (column.dictionary_page_offset or 0) < start:
        start = column.dictionary_page_offset
    if start < 0 or column.total_compressed_size < 0:
        raise ValueError(
            f"column {leaf!r} of a row group begins at byte {start:,}, and has {column.total_compressed_size:,} bytes"
        )
    return start, start + column.total_compressed_size


def _names(features: Mapping[str, Mapping[str, Any]], label: str) -> list[Any]:
    """What the metadata call the classes of a column; nothing where they do not, or say nothing sensible."""
    names = features.get(label, {}).get("names")
    return names if isinstance(names, list) else []


def _features(metadata: Mapping[bytes, bytes], file: str) -> dict[str, dict[str, Any]]:
    """What Hugging Face's `datasets` says of each column; nothing where the file says nothing of columns.

    Raises:
        ArrnError: for metadata that no program could read, or beyond the bounds of `arrn.reading`: names of classes
            would be lost with them.
    """
    text = metadata.get(_METADATA, b"{}")
    try:
        if len(text) > LARGEST_DOCUMENT:
            raise ValueError(f"{len(text):,} bytes, and should be {LARGEST_DOCUMENT:,} at most")
        document = parse_json(text.decode("utf-8"))
    except ValueError as error:
        raise ArrnError(
            f"{file}: its metadata under {_METADATA.decode()!r}, which name the classes, are not valid JSON: "
            f"{first_line(error)}; write the file again, with other metadata or none"
        ) from None
    info = document.get("info") if isinstance(document, dict) else None
    features = info.get("features") if isinstance(info, dict) else None
    if not isinstance(features, dict):
        return {}
    return {name: feature for name, feature in features.items() if isinstance(feature, dict)}


def _file_column(schema: Any, features: Mapping[str, Mapping[str, Any]], file: str) -> tuple[str, str]:
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
        f"{file} has no column of images or sound (a struct of {{bytes, path}}); its columns are {_listing(schema)}"
    )


def _label_column(schema: Any, features: Mapping[str, Mapping[str, Any]], file: str) -> str:
    import pyarrow as pa

    whole = [field.name for field in schema if pa.types.is_integer(field.type)]
    if "label" in whole:
        return "label"
    # Where there are several, as in CIFAR-100, the finest tells the most.
    named = [name for name in whole if features.get(name, {}).get("_type") == "ClassLabel"]
    if not named:
        raise ArrnError(
            f"{file} has no label column (whole numbers, named 'label' or called ClassLabel in the metadata); its "
            f"columns are {_listing(schema)}"
        )
    return str(max(named, key=lambda name: len(_names(features, name))))


def _listing(schema: Any) -> str:
    return ", ".join(f"{field.name!r} ({field.type})" for field in schema)
