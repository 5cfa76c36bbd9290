"""Files by their address, on disk or in a store that fsspec knows (s3://, gs://, hf://, https://), read in parts."""

from __future__ import annotations

import errno
import io
import logging
import os
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from arrn.errors import ArrnError, RunError, first_line, missing_package, needs, plain
from arrn.reading import open_regular

logger = logging.getLogger(__name__)

_Result = TypeVar("_Result")

PATIENCE = 120.0
"""Seconds for which a read is tried again while a store does not answer."""

_PATIENCE_AT_FIRST = 10.0  # before anything was read, the address may be wrong
_LONGEST_PAUSE = 8.0
AT_ONCE, AT_ONCE_ON_DISK = 8, 2
"""Reads that wait for their answers at the same time: of a store, and of a disk. Each takes some megabytes."""

_PACKAGES = {"s3": "s3fs", "gs": "gcsfs", "hf": "huggingface_hub", "http": "aiohttp", "https": "aiohttp"}
_NO_CREDENTIALS = {"NoCredentialsError", "PartialCredentialsError", "ProfileNotFound", "DefaultCredentialsError"}
_WHOSE = {
    "s3": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or AWS_PROFILE, or FSSPEC_S3_ANON=true for a public bucket",
    "gs": "log in with gcloud, or set FSSPEC_GS_TOKEN=anon for a public bucket",
    "hf": "log in with `hf auth login`, or set HF_TOKEN",
}
_WORTH_ANOTHER_TRY = (408, 425, 429)  # of the answers from 400 to 499; all of those from 500 on
_away: set[str] = set()  # stores that do not answer, of which a line has told; several threads wait for the same one
_away_lock = threading.Lock()


class StoreAwayError(RunError):
    """A store did not answer, however often it was asked."""


@dataclass(frozen=True)
class StoredFile:
    """A file on disk or in a store, at the time when it was listed.

    Attributes:
        address: its path, or its URL.
        size: its size in bytes.
        stamp: text that changes with the content: a time, or the store's own tag.
    """

    address: str
    size: int
    stamp: str = ""

    @property
    def name(self) -> str:
        """The last part of the address."""
        return self.address.rpartition("/")[2] if is_remote(self.address) else Path(self.address).name

    def read(self, start: int, stop: int, given_up: threading.Event | None = None) -> bytes:
        """The bytes from `start` to `stop`. Where a store does not answer, tries again for `PATIENCE` seconds.

        Args:
            start, stop: as in a slice of the file.
            given_up: an event that ends the wait for a store, set when nobody needs the bytes any more.

        Raises:
            ArrnError: for a file that is missing, refused, or shorter than when it was listed.
            StoreAwayError: for a store that does not answer.
        """
        if not is_remote(self.address):
            with open_regular(Path(self.address)) as file:
                file.seek(start)
                content = file.read(stop - start)
        else:
            # The hub's file system would read 5 MiB more, into a buffer that is thrown away.
            how = {"cache_type": "none"} if self.address.startswith("hf://") else {}

            def fetch() -> bytes:
                system, path = _system(self.address)
                return bytes(system.cat_file(path, start=start, end=stop, **how))

            content = patiently(self.address, fetch, PATIENCE, given_up)
        if len(content) > stop - start:
            raise ArrnError(
                f"the server of {self.address} sends whole files only, but shards are read in parts: copy the shards "
                "to a disk, or to a server that answers range requests"
            )
        if len(content) != stop - start:
            raise ArrnError(
                f"{self.address} was cut short during the run: it had {self.size:,} bytes when it was listed"
            )
        return content

    def open(self, given_up: threading.Event | None = None) -> io.BufferedIOBase | io.RawIOBase:
        """The file as Python has files."""
        return StoredReader(self, given_up)


class StoredReader(io.RawIOBase):
    """A stored file as a file of Python's; each `read` is one of the file's.

    Args:
        file: that is read.
        given_up: as in `StoredFile.read`.
        kept: bytes of the file that are here already, and where they begin.
    """

    def __init__(
        self, file: StoredFile, given_up: threading.Event | None = None, kept: tuple[int, bytes] | None = None
    ) -> None:
        super().__init__()
        self._file, self._given_up, self._place = file, given_up, 0
        self._start, self._kept = kept or (0, b"")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._place = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._file.size}[whence]
        return self._place

    def read(self, size: int | None = -1) -> Any:
        stop = self._file.size if size is None or size < 0 else min(self._file.size, self._place + size)
        start, self._place = self._place, max(self._place, stop)
        if stop <= start:
            return b""
        if self._start <= start and stop <= self._start + len(self._kept):
            # A view, of which arrow makes no copy: the row groups that are on their way are the most of what is read.
            return memoryview(self._kept)[start - self._start : stop - self._start]
        return self._file.read(start, stop, self._given_up)


def is_remote(address: str) -> bool:
    """Whether an address is the address of a store, rather than a path.

    >>> is_remote("s3://bucket/train"), is_remote("/data/train")
    (True, False)
    """
    return "://" in address


def file_at(address: str | os.PathLike[str] | StoredFile) -> StoredFile:
    """The file at an address.

    Raises:
        ArrnError: where there is none.
    """
    if isinstance(address, StoredFile):
        return address
    address = str(address)
    if is_remote(address):

        def look() -> dict[str, Any]:
            system, path = _system(address)
            found: dict[str, Any] = system.info(path)
            return found

        return _listed(address, patiently(address, look, _PATIENCE_AT_FIRST))
    try:
        there = os.stat(address)
    except FileNotFoundError:
        raise ArrnError(f"{address} is missing") from None
    except OSError as error:
        raise ArrnError(f"cannot read {address}: {error.strerror or error}") from None
    return StoredFile(address, there.st_size, str(there.st_mtime_ns))


def files_at(addresses: Iterable[str]) -> list[StoredFile]:
    """The file at each address, in the same order; stores are asked for several at once."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(file_at, addresses))


def list_folder(address: str, endings: tuple[str, ...]) -> tuple[list[StoredFile], list[str]]:
    """The files in a folder whose names end so, and the names of the folders in it; both sorted.

    A folder on disk that cannot be listed is empty; others say what is wrong with it.

    Raises:
        ArrnError: where a store has no such folder.
    """
    if not is_remote(address):
        try:
            with os.scandir(address) as entries:
                there = sorted(entries, key=lambda entry: entry.name)
                folders = [entry.name for entry in there if _is_folder(entry)]
        except OSError:
            return [], []
        wanted = [entry.path for entry in there if entry.name.endswith(endings) and entry.name not in folders]
        return [file_at(path) for path in wanted], folders

    def look() -> list[dict[str, Any]]:
        system, path = _system(address)
        found: list[dict[str, Any]] = system.ls(path, detail=True)
        return [{**item, "name": system.unstrip_protocol(item["name"])} for item in found]

    files: list[StoredFile] = []
    folders, unknown = [], []
    for item in patiently(address, look, _PATIENCE_AT_FIRST):
        name = item["name"].rstrip("/")
        if item.get("type") == "directory":
            folders.append(name.rpartition("/")[2])
        elif name.endswith(endings):
            if item.get("size") is None:  # a web page lists names alone
                unknown.append(name)
            else:
                files.append(_listed(name, item))
    files += files_at(unknown)
    return sorted(files, key=lambda file: file.address), sorted(folders)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads to itself
        return False


def _listed(address: str, item: dict[str, Any]) -> StoredFile:
    size = item.get("size")
    if item.get("type") == "directory" or not isinstance(size, int):
        wrong = "is a folder" if size == 0 else "has no size"
        raise ArrnError(f"{address} {wrong}: it should be a file of known size")
    tags = ("ETag", "etag", "blob_id", "md5Hash", "LastModified", "mtime", "last_modified", "generation")
    return StoredFile(address, size, next((str(item[tag]) for tag in tags if item.get(tag)), ""))


def _system(address: str) -> tuple[Any, str]:
    """The file system of an address, and the path there."""
    with needs("fsspec", f"reading {address}", "stream"):
        from fsspec.core import url_to_fs
    system, path = url_to_fs(address)
    return system, str(path)


def patiently(
    address: str, work: Callable[[], _Result], patience: float, given_up: threading.Event | None = None
) -> _Result:
    """What `work` returns, which is tried again for so many seconds where a store does not answer.

    Raises:
        ArrnError: for what another try would not change: nothing is there, no credentials, a missing package.
        StoreAwayError: for a store that did not answer in time.
    """
    given_up = given_up or threading.Event()
    store = "/".join(address.split("/")[:3])
    began, pause = time.monotonic(), 0.25
    while True:
        try:
            result = work()
        except Exception as error:
            refusal = _refusal(address, error)
            if refusal is not None:
                raise ArrnError(refusal) from error
            waited = time.monotonic() - began
            if waited + pause > patience or given_up.is_set():
                _is_news(store, away=False)
                raise StoreAwayError(
                    f"{address} does not answer, tried for {waited:.0f} s: {_why(address, error)}"
                ) from error
            if pause == 0.25 and _is_news(store, away=True):
                logger.warning("%s does not answer (%s): trying again", plain(address), plain(_why(address, error)))
        else:
            _is_news(store, away=False)
            return result
        given_up.wait(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


def _is_news(store: str, away: bool) -> bool:
    """Notes whether a store is away, and tells whether that was not known."""
    with _away_lock:
        known = store in _away
        (_away.add if away else _away.discard)(store)
    return known != away


def _chain(error: BaseException) -> list[BaseException]:
    """An error and the errors that caused it."""
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in chain:
        chain.append(link)
        link = link.__cause__ or link.__context__
    return chain


def _why(address: str, error: BaseException) -> str:
    """The reason that an error gives, in a line; fsspec's errors may name the address alone, and their causes more."""
    lines = [first_line(each) for each in _chain(error)]
    return next((line for line in lines if line != address), lines[0])


def _refusal(address: str, error: BaseException) -> str | None:
    """What is wrong, in a line, if another try would not help; else None."""
    protocol = address.partition("://")[0]
    if isinstance(error, ArrnError):
        return None if isinstance(error, RunError) else str(error)
    chain = _chain(error)
    if any(type(each).__name__ in _NO_CREDENTIALS for each in chain):
        return f"{address}: no credentials; {_WHOSE.get(protocol, 'log in there first')}"
    if isinstance(error, ImportError):
        package = _PACKAGES.get(protocol, str(error.name))
        if package == "gcsfs":  # large, and no part of an extra
            return f"reading {address} needs gcsfs: pip install gcsfs"
        return str(missing_package(f"reading {address}", package, "hub" if protocol == "hf" else "stream"))
    untrusted = next((each for each in chain if isinstance(each, ssl.SSLCertVerificationError)), None)
    if untrusted is not None:
        why = first_line(untrusted)
        advice = "to trust it, set SSL_CERT_FILE to the file of its authority"
        return f"{address}: its certificate is not trusted ({why}); {advice}"
    status = next((code for each in chain if (code := _status(each)) is not None), None)
    if status == 404 or (status is None and _is_missing(chain)):
        bucket = "bucket" in str(error).lower() and "exist" in str(error).lower()
        return f"{address} is missing: {'there is no such bucket' if bucket else 'nothing is there'}"
    if isinstance(error, PermissionError) or status in (401, 403):
        hint = f"; {_WHOSE[protocol]}" if protocol in _WHOSE else ""
        return f"{address}: access is refused ({first_line(error)}){hint}"
    final = status is not None and 400 <= status < 500 and status not in _WORTH_ANOTHER_TRY
    if final or isinstance(error, ValueError | NotImplementedError) or getattr(error, "errno", None) == errno.EINVAL:
        return f"{address} cannot be read: {first_line(error)}"
    return None


def _is_missing(chain: Sequence[BaseException]) -> bool:
    """Whether an error says that nothing is there; fsspec says so of web servers that do not answer, too."""
    gone = (FileNotFoundError, NotADirectoryError)
    away = [each for each in chain[1:] if isinstance(each, OSError) and not isinstance(each, gone)]
    return isinstance(chain[0], gone) and not away and "Server" not in "".join(type(each).__name__ for each in chain)


def _status(error: BaseException) -> int | None:
    """The number of an HTTP answer, where the error of a library holds one."""
    answer = getattr(error, "response", None)
    said = answer.get("ResponseMetadata", {}).get("HTTPStatusCode") if isinstance(answer, dict) else None
    for place, name in (
        (error, "status"),
        (error, "code"),
        (answer, "status_code"),
    ):  # one by one: aiohttp warns of code
        if (found := str(getattr(place, name, None))).isdecimal():
            return int(found)
    return int(str(said)) if str(said).isdecimal() else None
