"""What a parquet file says of itself: which column holds images or sound, which the labels, what their names are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from arrn.data.extras import needs
from arrn.errors import ArrnError

__all__ = ["IMAGES", "SOUNDS", "Columns", "read_columns"]

# What Hugging Face's metadata call columns of files; where they say nothing, the name of the column tells.
IMAGES, SOUNDS = "Image", "Audio"
_NAMES = {IMAGES: ("image", "img"), SOUNDS: ("audio", "sound", "speech")}


@dataclass(frozen=True)
class Columns:
    """What there is to know of a file before its samples are read.

    Attributes:
        column: the name of the column of samples.
        kind: what they are, `IMAGES` or `SOUNDS`.
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


def read_columns(file: Path) -> Columns:
    """Finds the columns of a file and reads its labels.

    Raises:
        ArrnError: for a missing or truncated file, one that is no parquet, one without samples or labels.
    """
    with needs("pyarrow", "reading parquet files"):
        import pyarrow as pa
        import pyarrow.parquet as pq
    try:
        with pq.ParquetFile(file) as parquet:
            schema, footer = parquet.schema_arrow, parquet.metadata
            features = _features(schema.metadata or {})
            column, kind = _file_column(schema, features, file)
            label = _label_column(schema, features, file)
            labels = parquet.read(columns=[label], use_threads=False).column(label)
            rows = tuple(footer.row_group(group).num_rows for group in range(footer.num_row_groups))
    except FileNotFoundError:
        raise ArrnError(f"{file} is missing") from None
    except (OSError, KeyError, UnicodeDecodeError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ArrnError(f"{file} is truncated or not a parquet file: {reason}") from None
    names = features.get(label, {}).get("names")
    known = tuple(map(str, names)) if isinstance(names, list) and names else None
    numbers = torch.from_numpy(labels.cast(pa.int64(), safe=False).fill_null(-1).to_numpy().copy())
    rate = features.get(column, {}).get("sampling_rate")
    declared = rate if isinstance(rate, int) and rate > 0 else None
    return Columns(column, kind, numbers, known, rows, declared)


def _features(metadata: Mapping[bytes, bytes]) -> dict[str, dict[str, Any]]:
    """What Hugging Face's `datasets` says of each column; nothing where it says nothing sensible."""
    try:
        features = json.loads(metadata[b"huggingface"])["info"]["features"]
        return {name: feature for name, feature in features.items() if isinstance(feature, dict)}
    except (KeyError, ValueError, TypeError, AttributeError):
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
        unsaid = SOUNDS if name in _NAMES[SOUNDS] else IMAGES
        return str(features.get(name, {}).get("_type", unsaid))

    there = [field.name for field in schema if holds_files(field.type)]
    for kind in (IMAGES, SOUNDS):
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
    return str(max(named, key=lambda name: len(features[name].get("names") or ())))


def _listing(schema: Any) -> str:
    return ", ".join(f"{field.name!r} ({field.type})" for field in schema)
