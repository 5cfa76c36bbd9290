"""A look at every sample of a set in chunks: each chunk is read once, and what was seen is kept for later runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from arrn.data.chunks import ChunkedSource
from arrn.data.remembered import Remembered
from arrn.data.source import IMAGE, BadSample
from arrn.data.storage import StoredFile
from arrn.signal.grid import Grid

Seen: TypeAlias = tuple[Grid, tuple[str, ...]] | str
"""Of a good sample its grid and what reading it changes; of a bad one what is wrong with it."""


def look_at_chunks(
    source: ChunkedSource,
    decode: bool,
    each: Callable[[Callable[[int], list[Seen]], Sequence[int]], Iterator[list[Seen]]],
) -> Iterator[list[Seen]]:
    """What is seen of every sample, in order, some at a time. Labels are another matter.

    Files in stores, and large ones on disk, are looked at once (`Remembered`).

    Args:
        source: of the samples.
        decode: whether to decode whole samples, or to read headers only.
        each: calls a function for each chunk of a list, perhaps several at once, and gives the results in order.
    """
    chunks: list[list[int]] = [[] for _ in source.files]
    for chunk, number in enumerate(source.file_of):
        chunks[number].append(chunk)
    kept = [
        _recall(_remembered(source, file, decode), sum(source.lengths[chunk] for chunk in of_file))
        for file, of_file in zip(source.files, chunks, strict=True)
    ]
    unknown = [chunk for of_file, seen in zip(chunks, kept, strict=True) if seen is None for chunk in of_file]
    fresh = each(lambda chunk: _look(source, chunk, decode), unknown)
    for file, of_file, seen in zip(source.files, chunks, kept, strict=True):
        if seen is not None:
            yield seen
            continue
        found: list[Seen] = []
        for _ in of_file:
            part = next(fresh)
            found += part
            yield part
        kinds = {kind: number for number, kind in enumerate(dict.fromkeys(found))}
        content = {"kinds": list(kinds), "samples": [kinds[one] for one in found]}
        _remembered(source, file, decode).keep(content)


def _look(source: ChunkedSource, chunk: int, decode: bool) -> list[Seen]:
    encoded = source.read_chunk(chunk)
    inside = source.samples_of(chunk)
    return [_see(source, index, content, decode) for index, content in zip(inside, encoded, strict=True)]


def _see(source: ChunkedSource, index: int, encoded: bytes | None, decode: bool) -> Seen:
    if encoded is None:
        return source.without_bytes(index)
    where, codec = source.where(index), source.codec
    try:
        size = tuple(codec.decode(encoded, where).shape[1:]) if decode else codec.size(encoded, where)
        return size, () if source.form == IMAGE else codec.changes(encoded, where)
    except BadSample as error:
        return error.reason


def _remembered(source: ChunkedSource, file: StoredFile, decode: bool) -> Remembered:
    return Remembered(file, "look", decode, repr(source.codec), source.layout)


def _recall(remembered: Remembered, samples: int) -> list[Seen] | None:
    """What was seen of a file of so many samples."""
    document = remembered.recall()
    if document is None:
        return None
    try:
        kinds = [_as_seen(kind) for kind in document["kinds"]]
        seen = [kinds[number] for number in document["samples"]]
    except (KeyError, IndexError, TypeError, ValueError):
        return None
    return seen if len(seen) == samples else None


def _as_seen(kind: Any) -> Seen:
    if isinstance(kind, str):
        return kind
    size, changes = kind
    return tuple(map(int, size)), tuple(map(str, changes))
