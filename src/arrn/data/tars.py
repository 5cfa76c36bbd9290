"""Images and sound in tar files, in the WebDataset convention: KEY.jpg and KEY.cls, one sample after another."""

from __future__ import annotations

import tarfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import torch

from arrn.data.bounds import check_samples, numbered_classes
from arrn.data.chunks import ChunkedSource, EncodedChunk, starts
from arrn.data.decoding import PICTURES, PictureCodec
from arrn.data.remembered import Remembered
from arrn.data.sound import SoundCodec
from arrn.data.source import BadSample
from arrn.data.storage import AT_ONCE, StoredFile, file_at, is_remote
from arrn.errors import ArrnError, first_line
from arrn.reading import open_regular, parse_json
from arrn.runtime.wav import Window

_CHUNK_BYTES = 2**23  # of a stretch that is read at once
_BLOCK_BYTES = 2**23  # of a tar that is read through
_LONGEST_LABEL = 2**16
_MOST_LABELS, _LARGEST_LABEL = 1000, 2**31 - 1  # labels of a tar that are no numbers and are noted; those that are
_NO_LABEL = "has no label: its tar should hold a .cls with a whole number beside it, or a .json with a 'label'"


@dataclass
class _Members:
    """What a tar holds: for each sample its key, its label (-1: none), and where its file lies (length -1: nowhere).

    `odd` has what stands in the place of a label and is no whole number, by the sample's number in the tar, as text.
    """

    suffix: str = ""
    keys: list[str] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    odd: dict[str, str] = field(default_factory=dict)


class TarFiles(ChunkedSource):
    """Images, or sound, from tar files in the WebDataset convention, on disk or in a store.

    The files of a sample lie one after another, and their names are the same up to the first dot: `0017.jpg`, and
    either `0017.cls`, which holds a whole number, or `0017.json` with a "label". Other files are ignored. Opening a tar
    reads its headers on a disk, and the whole tar in a store. The places of the samples are kept for later runs.

    Args:
        files: the files of the split, in order: paths, addresses or `StoredFile`s.
        split: "train" or "test".
        name: the name of the set.
        class_names: a name for each class; by default "0" to the largest label.
        window: the length and the sampling rate of the sound that is read from each clip; by default one second, at the
            rate of the first clip.
        max_pixels: the most pixels of an image; larger ones are refused. None is 64 million.
    """

    def __init__(
        self,
        files: Iterable[str | StoredFile],
        split: str,
        name: str,
        class_names: Iterable[str] | None = None,
        window: Window | None = None,
        max_pixels: int | None = None,
    ) -> None:
        self.files = tuple(map(file_at, files))
        if not self.files:
            raise ArrnError("a set of tar files needs at least one file, got none")
        with ThreadPoolExecutor(AT_ONCE if is_remote(self.files[0].address) else 1) as pool:
            parts = list(pool.map(_members_of, self.files))
        self.empty = tuple(file.address for file, part in zip(self.files, parts, strict=True) if not part.keys)
        labels = torch.tensor([label for part in parts for label in part.labels], dtype=torch.int64)
        if not len(labels):
            raise ArrnError(
                f"{self.files[0].address} holds no samples: it needs files such as 0017.jpg beside 0017.cls"
            )
        suffix = _only_kind(self.files, parts)
        firsts = starts(len(part.keys) for part in parts)
        self._odd = {
            first + int(n): text for first, part in zip(firsts, parts, strict=True) for n, text in part.odd.items()
        }
        known = labels[labels >= 0]
        if class_names is None and not len(known):
            file, key = next((file, part.keys[0]) for file, part in zip(self.files, parts, strict=True) if part.keys)
            raise ArrnError(f"{file.address} sample {key}: {self._without_label(0)}; no sample of this set has a label")
        names = numbered_classes(known, self.files[0].address) if class_names is None else class_names
        super().__init__(name, split, names, labels)
        # As bytes and numbers, of which worker processes share one copy.
        keys = [key.encode("utf-8", "surrogateescape") for part in parts for key in part.keys]
        self._keys = torch.frombuffer(bytearray(b"".join(keys)), dtype=torch.uint8)
        self._key_ends = torch.tensor([*map(len, keys)]).cumsum(0)
        self._offsets = torch.tensor([offset for part in parts for offset in part.offsets])
        self._lengths = torch.tensor([length for part in parts for length in part.lengths])
        stretches = [(n, *each) for n, part in enumerate(parts) for each in _stretches(part)]
        self._spans = tuple(span for _, _, span in stretches)
        self._lay_out(
            (count for _, count, _ in stretches),
            (stop - start for start, stop in self._spans),
            (file for file, _, _ in stretches),
        )
        self.codec = PictureCodec(max_pixels)
        if suffix in SoundCodec.suffixes:
            self.codec = SoundCodec((window or Window()).at_rate_of(self._clips(), None))
        self.form, self.max_pixels = self.codec.form, self.codec.max_pixels

    def where(self, index: int) -> str:
        chunk, _ = self.locate(index)
        ends = self._key_ends.numpy()
        key = self._keys.numpy()[ends[index - 1] if index else 0 : ends[index]].tobytes()
        return f"{self.files[self.file_of[chunk]].address} sample {key.decode('utf-8', 'backslashreplace')}"

    def without_bytes(self, index: int) -> str:
        return "its tar holds no image or sound for it" if int(self._lengths[index]) < 0 else "it is empty"

    def check_label(self, index: int) -> None:
        if int(self.labels[index]) == -1:
            raise BadSample(self.where(index), self._without_label(index))
        super().check_label(index)

    def _without_label(self, index: int) -> str:
        """What is wrong with a sample that has no label."""
        if index not in self._odd:
            return _NO_LABEL
        return f"its label is {self._odd[index]}, and should be a whole number from 0 to {_LARGEST_LABEL:,}"

    def read_chunk(self, chunk: int, given_up: threading.Event | None = None) -> EncodedChunk:
        start, stop = self._spans[chunk]
        content = _read(self.files[self.file_of[chunk]], start, stop, given_up)
        inside = self.samples_of(chunk)
        places = (self._offsets[inside.start : inside.stop] - start).tolist()
        lengths = self._lengths[inside.start : inside.stop].tolist()
        return [
            content[place : place + length] if length > 0 else None
            for place, length in zip(places, lengths, strict=True)
        ]


def _stretches(members: _Members) -> Iterator[tuple[int, tuple[int, int]]]:
    """Samples that are read at once: how many, and where they begin and end in the tar."""
    count, start, stop = 0, 0, 0
    for offset, length in zip(members.offsets, members.lengths, strict=True):
        end = offset + max(0, length)
        if count and end - start > _CHUNK_BYTES:
            yield count, (start, stop)
            count = 0
        if not count:
            start = offset
        count, stop = count + 1, end
    if count:
        yield count, (start, stop)


def _only_kind(files: Sequence[StoredFile], parts: Sequence[_Members]) -> str:
    """How the names of the samples end, which are all images or all sound."""
    found = [(file, part.suffix) for file, part in zip(files, parts, strict=True) if part.suffix]
    if not found:
        raise ArrnError(f"{files[0].address} and the files beside it hold no image and no sound")
    first, suffix = found[0]
    for file, other in found:
        if (other in PICTURES.suffixes) != (suffix in PICTURES.suffixes):
            raise ArrnError(f"{file.address} holds {other} files, but {first.address} holds {suffix} files")
    return suffix


def _members_of(file: StoredFile) -> _Members:
    """What a tar holds, as it was written down before or else as it is read through."""
    remembered = Remembered(file, "tar", "odd labels")
    document = remembered.recall()
    if document is not None:
        with suppress(KeyError, TypeError, AttributeError):
            found = _Members(**document["members"])
            alike = len({len(found.keys), len(found.labels), len(found.offsets), len(found.lengths)}) == 1
            if alike and all(n.isdecimal() and isinstance(text, str) for n, text in found.odd.items()):
                return found
    members = _read_through(file)
    remembered.keep({"members": vars(members)})
    return members


def _read_through(file: StoredFile) -> _Members:
    members = _Members()
    before = ""
    try:
        if not file.size:
            raise tarfile.ReadError("it is empty, of 0 bytes")
        with _opened(file) as tar:
            for member in tar:
                if not member.isreg() or member.issparse():
                    continue
                if member.offset_data + member.size > file.size:
                    raise tarfile.ReadError(f"it ends within {member.name}")
                folder, _, last = member.name.rpartition("/")
                stem, _, ending = last.partition(".")
                key = f"{folder}/{stem}" if folder else stem
                suffix = f".{ending.lower().rpartition('.')[2]}"
                image = suffix in PICTURES.suffixes or suffix in SoundCodec.suffixes
                if not (image or ending.lower() in ("cls", "json")) or not stem:
                    continue
                if key != before:
                    before = key
                    members.keys.append(key)
                    members.labels.append(-1)
                    members.offsets.append(member.offset_data)
                    members.lengths.append(-1)
                    check_samples(len(members.keys), file.address)
                if image:
                    members.suffix = members.suffix or suffix
                    members.offsets[-1], members.lengths[-1] = member.offset_data, member.size
                elif members.labels[-1] == -1 and member.size <= _LONGEST_LABEL:
                    content = tar.extractfile(member)
                    assert content is not None
                    members.labels[-1], odd = _label(content.read(), ending.lower())
                    if odd and len(members.odd) < _MOST_LABELS:
                        members.odd[str(len(members.keys) - 1)] = odd
    except FileNotFoundError:
        raise ArrnError(f"{file.address} is missing") from None
    except ArrnError:
        raise
    except (tarfile.TarError, OSError, EOFError, ValueError, RecursionError) as error:
        raise ArrnError(f"{file.address} is truncated or not a tar file: {first_line(error)}") from None
    return members


@contextmanager
def _opened(file: StoredFile) -> Iterator[tarfile.TarFile]:
    """A tar, whose members come one after another: on a disk what lies between their headers is not read."""
    if is_remote(file.address):
        with tarfile.open(None, "r|", cast(Any, _Blocks(file)), 2**18) as tar:
            yield tar
        return
    with open_regular(Path(file.address)) as content, tarfile.open(None, "r:", content) as tar:
        yield tar


def _label(content: bytes, ending: str) -> tuple[int, str]:
    """The label in a .cls or a .json, and ""; -1 where there is none, and what there is in its place, if anything."""
    found: Any = content.decode("utf-8", "replace").strip()
    try:
        found = parse_json(found) if ending == "json" else int(found)
    except (ValueError, ArrnError):
        return -1, f"{found!r:.80}" if found else ""
    if isinstance(found, dict):
        found = found.get("label", found.get("cls"))
    if isinstance(found, int) and not isinstance(found, bool) and 0 <= found <= _LARGEST_LABEL:
        return found, ""
    return -1, "" if found is None else f"{found!r:.80}"


class _Blocks:
    """A stored file that is read from its beginning to its end, some megabytes at a time."""

    def __init__(self, file: StoredFile) -> None:
        self._file = file
        self._block, self._place = memoryview(b""), 0

    def read(self, size: int) -> bytes:
        parts = []
        while size > 0:
            if not len(self._block):
                stop = min(self._file.size, self._place + _BLOCK_BYTES)
                if stop == self._place:
                    break
                self._block, self._place = memoryview(_read(self._file, self._place, stop, None)), stop
            parts.append(self._block[:size])
            self._block = self._block[size:]
            size -= len(parts[-1])
        return b"".join(parts)


def _read(file: StoredFile, start: int, stop: int, given_up: threading.Event | None) -> bytes:
    try:
        return file.read(start, stop, given_up)
    except OSError as error:
        raise ArrnError(f"{file.address} cannot be read: {error.strerror or error}") from None
