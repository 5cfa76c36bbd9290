"""Networks on the Hugging Face hub: `hf://OWNER/NAME[@REVISION]` to a folder, as `arrn.save` wrote it.

A revision is resolved to its commit first, and everything is of that commit. Of a repository only the files in `FILES`
are taken, by name: a pickle or a Python file in it is never downloaded.
"""

from __future__ import annotations

import dataclasses
import hashlib
import logging
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arrn import __version__
from arrn.errors import ArrnError, first_line, needs
from arrn.reading import LARGEST_DOCUMENT, open_regular

if TYPE_CHECKING:
    from huggingface_hub import HfApi

SCHEME = "hf://"

CONFIG, WEIGHTS = "config.json", "model.safetensors"  # as in `arrn.model_folder`, which imports torch
REQUIRED = (CONFIG, WEIGHTS)
OPTIONAL = ("evaluation.json", "accuracy.json", "cascade.json")
FILES = (*REQUIRED, *OPTIONAL)
"""What is downloaded from a repository, and nothing else: numbers and text, no code."""

_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9])?"
_ADDRESS = re.compile(rf"({_NAME}/{_NAME})(?:@([A-Za-z0-9][A-Za-z0-9._/+-]{{0,199}}))?", re.ASCII)
_COMMIT = re.compile("[0-9a-f]{40}")
_PICKLES = (".bin", ".ckpt", ".joblib", ".npy", ".npz", ".pickle", ".pkl", ".pt", ".pth")


@dataclass(frozen=True)
class HubAddress:
    """A repository on the hub, and a revision of it: a branch, a tag or a commit.

    >>> HubAddress.parse("hf://me/birds@v1")
    HubAddress(repository='me/birds', revision='v1')
    >>> print(HubAddress.parse("me/birds"))
    hf://me/birds
    """

    repository: str
    revision: str | None = None

    @classmethod
    def parse(cls, text: str) -> HubAddress:
        """The address in a text, with `hf://` before it or without.

        Raises:
            ArrnError: for what is no address.
        """
        found = _ADDRESS.fullmatch(text.removeprefix(SCHEME))
        if found is None or ".." in text or "--" in found[1]:
            raise ArrnError(f"{text!r:.200} is no address: it should be hf://OWNER/NAME or hf://OWNER/NAME@REVISION")
        return cls(found[1], found[2])

    @property
    def is_pinned(self) -> bool:
        """Whether the revision is a commit, which never changes."""
        return self.revision is not None and _COMMIT.fullmatch(self.revision) is not None

    def at(self, revision: str | None) -> HubAddress:
        """The same repository at another revision."""
        return dataclasses.replace(self, revision=revision)

    def __str__(self) -> str:
        return f"{SCHEME}{self.repository}{'' if self.revision is None else f'@{self.revision}'}"


def is_hub_address(path: object) -> bool:
    """Whether a path is an address on the hub.

    >>> is_hub_address("hf://me/birds"), is_hub_address("runs/birds")
    (True, False)
    """
    return isinstance(path, str) and path.startswith(SCHEME)


_LOCATED: dict[Path, HubAddress] = {}


def locate(path: str | os.PathLike[str]) -> Path:
    """The folder of a network: the path itself, or for an address on the hub where its files were downloaded to.

    An address with a commit that was downloaded before needs no network. Files lie in the cache of `huggingface_hub`.

    Raises:
        ArrnError: for an address that is none, a hub that cannot be reached, a repository or revision that is not
            there, one without safetensors, and files that are not what the hub says of them.
    """
    if not (isinstance(path, str) and is_hub_address(path)):
        return Path(path)
    address = HubAddress.parse(path)
    with needs("huggingface_hub", f"reading {SCHEME} addresses", "hub"):
        import huggingface_hub  # noqa: F401
    folder = _cached(address) if address.is_pinned else None
    if folder is None:
        address, folder = _download(address)
    _LOCATED[folder] = address
    return folder


def hub_address(folder: Path) -> str | None:
    """The address, with its commit, that `locate` found in a folder; None for other folders."""
    address = _LOCATED.get(folder)
    return None if address is None else str(address)


def hub_api(token: str | None = None) -> HfApi:
    """The client of the hub: that of the environment variable ``HF_ENDPOINT``, or else the public one."""
    with needs("huggingface_hub", "the hub", "hub"):
        from huggingface_hub import HfApi

    return HfApi(_endpoint(), token=token, library_name="arrn", library_version=__version__)


def _endpoint() -> str | None:
    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or None


def _cached(address: HubAddress) -> Path | None:
    """The folder of a commit that was downloaded whole; None where it was not."""
    from huggingface_hub import try_to_load_from_cache

    found = [try_to_load_from_cache(address.repository, name, revision=address.revision) for name in REQUIRED]
    return Path(found[0]).parent if all(isinstance(path, str) for path in found) else None  # type: ignore[arg-type]


def _download(address: HubAddress) -> tuple[HubAddress, Path]:
    from huggingface_hub import snapshot_download

    with hub_errors(address):
        info = hub_api().model_info(address.repository, revision=address.revision, files_metadata=True)
        files = {sibling.rfilename: sibling for sibling in info.siblings or []}
        if info.sha is None or not _COMMIT.fullmatch(info.sha):
            raise ArrnError(f"the hub names no commit for {address}, but {info.sha!r:.80}")
        address = address.at(info.sha)
        _check_listing(address, files)
        wanted = [name for name in FILES if name in files]
        with quietly():
            path = snapshot_download(
                address.repository,
                revision=address.revision,
                allow_patterns=wanted,
                endpoint=_endpoint(),
                library_name="arrn",
                library_version=__version__,
            )
    folder = Path(path)
    _check_files(address, folder, {name: files[name] for name in wanted})
    return address, folder


@contextmanager
def quietly() -> Iterator[None]:
    """Within it, bars appear on terminals alone, and what goes wrong is told once, by the error."""
    from huggingface_hub.utils.tqdm import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    logger = logging.getLogger("huggingface_hub")
    level, hide = logger.level, not (sys.stderr.isatty() or are_progress_bars_disabled())
    logger.setLevel(logging.ERROR)
    if hide:
        disable_progress_bars()
    try:
        yield
    finally:
        logger.setLevel(level)
        if hide:
            enable_progress_bars()


def _check_listing(address: HubAddress, files: Mapping[str, Any]) -> None:
    """Refuses a repository by what it says that it holds, before anything is downloaded."""
    if WEIGHTS not in files:
        pickles = sorted(name for name in files if name.lower().endswith(_PICKLES))
        if pickles:
            raise ArrnError(
                f"{address} holds no {WEIGHTS} but {pickles[0]!r:.80}, which may be a pickle that runs any code: "
                "arrn reads safetensors only"
            )
        raise ArrnError(f"{address} holds no {WEIGHTS}: it is not a network that arrn.save wrote")
    if CONFIG not in files:
        raise ArrnError(f"{address} holds no {CONFIG}: it is not a network that arrn.save wrote")
    for name in FILES:
        size = getattr(files.get(name), "size", None) or 0
        if name != WEIGHTS and size > LARGEST_DOCUMENT:
            raise ArrnError(f"{address}: {name} has {size:,} bytes, and should have {LARGEST_DOCUMENT:,} at most")
    size, free = files[WEIGHTS].size or 0, _free_space()
    if free is not None and size > free:
        raise ArrnError(f"{address}: {WEIGHTS} has {size:,} bytes, and the disk has room for {free:,}")


def _free_space() -> int | None:
    """Bytes that are free where downloads go."""
    from huggingface_hub import constants

    cache = Path(constants.HF_HUB_CACHE)
    there = next((folder for folder in (cache, *cache.parents) if folder.is_dir()), None)
    return None if there is None else shutil.disk_usage(there).free


def _check_files(address: HubAddress, folder: Path, files: Mapping[str, Any]) -> None:
    """Compares what was downloaded with the checksums that the hub lists, and those with the one in the config.

    A file that differs is removed, so that nobody finds it in the cache.
    """
    for name, listed in files.items():
        path = folder / name
        if _checksum(path, listed) != (listed.blob_id if listed.lfs is None else listed.lfs.sha256):
            path.resolve().unlink(missing_ok=True)
            path.unlink(missing_ok=True)
            raise ArrnError(
                f"{name} of {address} is not what the hub lists: it was damaged or changed on its way; try again"
            )
    from arrn.model_folder import CHECKSUM, checksum_in, read_config

    checksum = checksum_in(read_config(folder))
    if checksum is None:
        raise ArrnError(f"{CONFIG} of {address} has no {CHECKSUM}: save the network again and publish that")
    found = files[WEIGHTS].lfs.sha256 if files[WEIGHTS].lfs is not None else checksum
    if found != checksum:
        raise ArrnError(
            f"{WEIGHTS} of {address} is not that of its {CONFIG}, which names SHA-256 {checksum[:16]}, while the hub "
            f"lists {found[:16]!r}: one of the two was changed"
        )


def _checksum(path: Path, listed: Any) -> str:
    """As the hub counts it: SHA-256 of large files, and of others what git does."""
    with open_regular(path) as file:
        if listed.lfs is not None:
            return hashlib.file_digest(file, "sha256").hexdigest()
        found = hashlib.sha1(b"blob %d\0" % os.fstat(file.fileno()).st_size, usedforsecurity=False)
        while part := file.read(2**20):
            found.update(part)
    return found.hexdigest()


@contextmanager
def hub_errors(address: HubAddress, doing: str = "read") -> Iterator[None]:
    """Within it, what the hub or the network refuses is an `ArrnError` of one sentence.

    Args:
        address: what is asked for.
        doing: "read" or "write".
    """
    from huggingface_hub import errors

    place = address.at(None)
    try:
        yield
    except ArrnError:
        raise
    except errors.RevisionNotFoundError:
        raise ArrnError(f"{place} has no revision {address.revision!r:.80}") from None
    except errors.GatedRepoError:
        raise ArrnError(
            f"{place} is open only to people whom its owners admit: ask for access on its page, then log in with "
            "`hf auth login`"
        ) from None
    except errors.RepositoryNotFoundError:
        raise ArrnError(
            f"there is no repository {place}, or it is private and {_token_said()}: check the name, or log in with "
            "`hf auth login`"
        ) from None
    except errors.HfHubHTTPError as error:
        raise ArrnError(_refusal(error, place, doing)) from None
    except (ConnectionError, TimeoutError, errors.LocalEntryNotFoundError) as error:
        raise ArrnError(_unreachable(error, address)) from None
    except OSError as error:  # such as a full disk
        raise ArrnError(f"cannot {doing} {place}: {error.strerror or first_line(error):.300}") from None
    except _transport_errors() as error:
        raise ArrnError(_unreachable(error, address)) from None
    except (ValueError, RuntimeError) as error:  # of huggingface_hub's own checks, or of what uploads files
        cause = error if error.__cause__ is None else error.__cause__
        raise ArrnError(f"cannot {doing} {place}: {first_line(cause):.300}") from None
    except (LookupError, TypeError, AttributeError, AssertionError) as error:  # of `huggingface_hub`, on odd answers
        why = f"{type(error).__name__}: {first_line(error):.200}"
        raise ArrnError(f"cannot {doing} {place}: the hub answers what huggingface_hub does not know ({why})") from None


def _transport_errors() -> type[BaseException]:
    """The base of the errors of the HTTP library that `huggingface_hub` uses, which is not the same in all versions."""
    from huggingface_hub import errors

    base: type[BaseException] = errors.HfHubHTTPError.__bases__[0]
    return base


def _token_said() -> str:
    from huggingface_hub import get_token

    return "no token was sent" if get_token() is None else "the token does not open it"


def _refusal(error: Any, place: HubAddress, doing: str) -> str:
    status = error.response.status_code
    said = " ".join((error.server_message or first_line(error)).split())[:300]
    if status == 401:
        return f"the hub does not take the token ({_token_said()}): log in with `hf auth login`, or set HF_TOKEN"
    if status == 403:
        return f"the token may not {doing} {place} ({said}): use one that may, by `hf auth login` or HF_TOKEN"
    return f"the hub refused to {doing} {place} with status {status}: {said}"


def _unreachable(error: BaseException, address: HubAddress) -> str:
    """That there is no connection, and which commit of the repository could be used without one."""
    from huggingface_hub import constants

    why = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else first_line(error)[:200]
    known = _commits_here(address)
    advice = f"; {address.at(known[0])} was downloaded before and needs no network" if known else ""
    return f"cannot reach the hub at {_endpoint() or constants.ENDPOINT} for {address} ({why}){advice}"


def _commits_here(address: HubAddress) -> list[str]:
    """The commits of a repository that were downloaded, the newest first."""
    from huggingface_hub import CacheNotFound, constants, scan_cache_dir

    try:
        cache = scan_cache_dir(constants.HF_HUB_CACHE)
    except (CacheNotFound, OSError, ValueError):
        return []
    found = [
        revision
        for repo in cache.repos
        if repo.repo_id == address.repository and repo.repo_type == "model"
        for revision in repo.revisions
    ]
    commits = [each.commit_hash for each in sorted(found, key=lambda each: each.last_modified, reverse=True)]
    return [commit for commit in commits if _cached(address.at(commit)) is not None]
