"""Runs kept at an address of fsspec, such as s3://bucket/runs, for machines that share no folder."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from arrn.errors import ArrnError, RunError, first_line, plain
from arrn.experiments.jobs import Job
from arrn.experiments.results import result_path
from arrn.runs.run_folder import CHECKPOINTS, LOCK, LOG
from arrn.writing import is_leftover, write_atomically, writing_to

_SECONDS_BETWEEN_PUSHES = 2.0
_ATTEMPTS, _SECONDS_BETWEEN_ATTEMPTS = 5, 3.0

logger = logging.getLogger(__name__)


class Storage:
    """An address that keeps the folder and the result of each run.

    Args:
        address: an address of fsspec, such as s3://bucket/runs. The package for the address must be installed.

    Raises:
        ArrnError: for an address that cannot be used.
    """

    def __init__(self, address: str) -> None:
        import fsspec

        self.address = address.rstrip("/")
        try:
            self._files, self._root = fsspec.core.url_to_fs(self.address)
        except (ImportError, ValueError, OSError) as error:
            raise ArrnError(plain(f"cannot use the storage {address}: {first_line(error)}")) from error
        self._pushed: dict[str, tuple[int, int]] = {}

    @contextlib.contextmanager
    def token(self) -> Iterator[str]:
        """Within it, the storage has a file that is nowhere else; gives the file's address.

        Raises:
            ArrnError: where it cannot be written.
        """
        name = f".arrn-shared-{uuid.uuid4().hex}"
        path = f"{self._root}/{name}"
        try:
            self._write(path, b"arrn")
        except Exception as error:  # each kind of storage has errors of its own
            raise ArrnError(plain(f"cannot write to the storage {self.address}: {first_line(error)}")) from error
        try:
            yield f"{self.address}/{name}"
        finally:
            with contextlib.suppress(Exception):
                self._files.rm_file(path)

    def has(self, job: Job) -> bool:
        """Whether anything of the run is kept here."""
        return bool(self._files.exists(self._folder(job)))

    def push(self, job: Job) -> None:
        """Copies here what is new of the run's folder and its result, and removes checkpoints that went."""
        kept = _files_of(job)
        for name, path in kept.items():
            with contextlib.suppress(FileNotFoundError):  # a checkpoint that a newer one has replaced meanwhile
                state = _state(path)
                if self._pushed.get(name) != state:
                    self._write(f"{self._root}/{name}", path.read_bytes())
                    self._pushed[name] = state
        for name in set(self._pushed) - set(kept):
            with contextlib.suppress(FileNotFoundError):
                self._files.rm_file(f"{self._root}/{name}")
            del self._pushed[name]

    def pull(self, job: Job) -> None:
        """Copies the run's folder and its result from here; checkpoints that are no longer here are removed."""
        self._files.invalidate_cache()
        folder, result = self._folder(job), f"{self._root}/{_result_name(job)}"
        names = {path: path.removeprefix(folder).lstrip("/") for path in self._files.find(folder)}
        found = {path: job.folder / name for path, name in names.items() if ".." not in name.split("/")}
        if self._files.exists(result):
            found[result] = result_path(job.results, job.dataset, job.name, job.settings.seed)
        for source, path in found.items():
            with writing_to(path):
                write_atomically(path, self._files.cat_file(source))
            self._pushed[source.removeprefix(self._root).lstrip("/")] = _state(path)
        for path in (job.folder / CHECKPOINTS).glob("*"):
            if path not in found.values():
                path.unlink()

    def pull_log(self, job: Job) -> None:
        """Copies the run's log, where there is one; a storage that does not answer is asked again later."""
        try:
            content = self._files.cat_file(f"{self._folder(job)}/{LOG}")
        except Exception:  # not there yet, or out of reach for a moment
            return
        with writing_to(job.folder / LOG):
            write_atomically(job.folder / LOG, content)

    def _folder(self, job: Job) -> str:
        return f"{self._root}/{_name(job)}"

    def _write(self, path: str, content: bytes) -> None:
        """Writes a file whole: object stores do so themselves, elsewhere it is renamed when it is complete."""
        self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
        if "file" not in self._protocols:
            self._files.pipe_file(path, content)
            return
        write_atomically(Path(path), content)

    @property
    def _protocols(self) -> tuple[str, ...]:
        protocol: Any = self._files.protocol
        return (protocol,) if isinstance(protocol, str) else tuple(protocol)


def _name(job: Job) -> str:
    return f"runs/{job.dataset}/{job.title}"


def _result_name(job: Job) -> str:
    return f"results/{job.dataset}/{job.title}.json"


def _state(path: Path) -> tuple[int, int]:
    facts = path.stat()
    return facts.st_mtime_ns, facts.st_size


def _files_of(job: Job) -> dict[str, Path]:
    """The files of a run, by their names in the storage.

    Checkpoints come last: the log is read after they were listed, so it has every epoch that they have.
    """
    paths = [path for path in job.folder.rglob("*") if path.is_file() and not is_leftover(path) and path.name != LOCK]
    paths.sort(key=lambda path: (path.parent.name == CHECKPOINTS, path))
    found = {f"{_name(job)}/{path.relative_to(job.folder).as_posix()}": path for path in paths}
    result = result_path(job.results, job.dataset, job.name, job.settings.seed)
    return found | ({_result_name(job): result} if result.exists() else {})


@contextlib.contextmanager
def kept_in(storage: Storage, job: Job) -> Iterator[Job]:
    """A context in which a run that the storage keeps lies in a temporary folder of this machine.

    Changed files are copied to the storage every two seconds, and at the end. Copying stops once the process that
    started this one has ended, since another machine may have taken over the run.

    Raises:
        RunError: when the storage cannot be read or written after several attempts. The folder stays.
    """
    parent = os.getppid()
    folder = Path(tempfile.mkdtemp(prefix="arrn-run-"))
    here = dataclasses.replace(job, out=folder / "runs", results=folder / "results")
    _insist(lambda: storage.pull(here), f"cannot read the run {job.title} from the storage {storage.address}")
    done = threading.Event()
    copying = threading.Thread(target=_push_until, args=(done, storage, here, parent), daemon=True)
    copying.start()
    try:
        yield here
    finally:
        done.set()
        copying.join()
        if os.getppid() == parent:
            failed = f"cannot copy the run to the storage {storage.address}; it stays in {here.folder}"
            _insist(lambda: storage.push(here), failed)
        shutil.rmtree(folder, ignore_errors=True)


def _push_until(done: threading.Event, storage: Storage, job: Job, parent: int) -> None:
    while not done.wait(_SECONDS_BETWEEN_PUSHES) and os.getppid() == parent:
        try:
            storage.push(job)
        except Exception as error:  # each kind of storage has errors of its own; the next push may do better
            logger.warning("cannot write to %s: %s; trying again", plain(storage.address), plain(first_line(error)))


def _insist(act: Callable[[], None], failed: str) -> None:
    """Acts, several times if need be; `failed` begins the error when all attempts have failed."""
    for attempt in range(_ATTEMPTS):
        try:
            act()
            return
        except Exception as error:  # each kind of storage has errors of its own
            if attempt + 1 == _ATTEMPTS:
                raise RunError(plain(f"{failed}: {first_line(error)}")) from error
        time.sleep(_SECONDS_BETWEEN_ATTEMPTS)
