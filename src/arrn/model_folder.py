"""The folder of a saved network: its weights, and the config that names their checksum, replaced as one.

Two files cannot be renamed at once. The config is what decides: new weights are written beside the old ones under a
name made of their checksum, the new config takes the place of the old one, and the weights get their usual name last.
Whoever reads in between, or after a crash, finds the weights that the config names under one name or the other.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch

from arrn.errors import ArrnError, first_line, plain
from arrn.reading import open_regular, read_document
from arrn.runtime.manifest import MANIFEST
from arrn.writing import remove_leftovers, rename, write_atomically, write_document

FORMAT, FORMAT_VERSION = "arrn", 1
WEIGHTS, CONFIG = "model.safetensors", "config.json"
CHECKSUM = "weights_sha256"
"""Where `CONFIG` names the SHA-256 of `WEIGHTS`."""

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
"""The real numbers that networks compute in."""

_OTHERS = (
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint8,
    torch.bool,
    torch.complex64,
    torch.complex128,
)
_NEW_WEIGHTS = re.compile(r"\.model-[0-9a-f]{16}\.safetensors", re.ASCII)
_PICKLES = (b"PK", *(b"\x80" + bytes([protocol]) for protocol in range(2, 6)))

logger = logging.getLogger(__name__)


def write_model(directory: Path, weights: bytes, document: Mapping[str, Any]) -> None:
    """Writes a network's two files, made with their folder if need be, in the place of those of another network.

    Killed anywhere, it leaves the network before or this one, as `read_config` and `find_weights` find them.

    Args:
        directory: where.
        weights: the content of `WEIGHTS`.
        document: what `CONFIG` says, but for the checksum.
    """
    checksum = hashlib.sha256(weights).hexdigest()
    new = directory / _new_name(checksum)
    directory.mkdir(parents=True, exist_ok=True)
    remove_leftovers(directory)
    write_atomically(new, weights)
    write_document(directory / CONFIG, FORMAT, FORMAT_VERSION, {**document, CHECKSUM: checksum})
    rename(new, directory / WEIGHTS)
    for path in directory.iterdir():  # of writers that were killed
        if _NEW_WEIGHTS.fullmatch(path.name):
            path.unlink(missing_ok=True)


def _new_name(checksum: str) -> str:
    return f".model-{checksum[:16]}.safetensors"


def read_config(directory: Path) -> dict[str, Any]:
    """What `CONFIG` says.

    Raises:
        ArrnError: for no such folder, and as `read_document` does.
    """
    if not directory.is_dir():
        raise ArrnError(
            f"{directory} is not a directory: arrn.load takes the directory that holds {WEIGHTS} and {CONFIG}"
        )
    if not (directory / CONFIG).exists() and (directory / MANIFEST).exists():
        raise ArrnError(
            f"{directory} is what `arrn export` made, which predicts and serves: for all else take the folder that it "
            f"was made from, which holds {WEIGHTS} and {CONFIG}"
        )
    return read_document(directory / CONFIG, FORMAT, FORMAT_VERSION)


def checksum_in(document: Mapping[str, Any]) -> str | None:
    """The checksum of the weights that a config names; None in those from before there was one."""
    checksum = document.get(CHECKSUM)
    if checksum is not None and not (isinstance(checksum, str) and re.fullmatch("[0-9a-f]{64}", checksum)):
        raise ArrnError(f"{CHECKSUM} must be 64 hexadecimal digits, got {checksum!r:.80}")
    return checksum


def find_weights(directory: Path, checksum: str | None) -> Path:
    """The file of the weights: `WEIGHTS`, unless who wrote them was killed before they got that name."""
    new = directory / _new_name(checksum or "")
    return new if checksum is not None and new.is_file() else directory / WEIGHTS


_CHECKOUT = Path(__file__).parents[2]  # where the package runs from src/arrn
SHIPPED = "weights"


def shipped_weights(name: str) -> Path:
    """The folder of a network's weights in the clone of the repository that the package runs from.

    Raises:
        ArrnError: for a network without weights there, and outside a clone; with what to do.
    """
    folder = _CHECKOUT / SHIPPED
    there = sorted(path.parent.name for path in folder.glob(f"*/{CONFIG}"))
    if name in there:
        return folder / name
    if not there:
        raise ArrnError(
            f"the weights of {name!r} are in the folder {SHIPPED}/ of a clone of the repository, but this arrn is "
            f"installed without one: clone it and give the path, pretrained='CLONE/{SHIPPED}/{name}'"
        )
    raise ArrnError(
        f"{folder} has no weights of {name!r}, only of {', '.join(there)}: for weights of your own give the folder "
        "that arrn.save wrote"
    )


def check_weights(path: Path, checksum: str | None) -> None:
    """Refuses weights that are not those with the checksum; None is a warning, once for each file.

    Raises:
        ArrnError: with both checksums and what to do.
    """
    if checksum is None:
        _warn_unchecked(path)
        return
    try:
        with open_regular(path) as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ArrnError(f"cannot read {path}: {error.strerror or error}") from error
    if found != checksum:
        raise ArrnError(
            f"{path} is damaged, or of another network than {CONFIG}: its SHA-256 is {found[:16]}, but {CONFIG} names "
            f"{checksum[:16]}: copy both files again from where they came, or save the network again"
        )


@lru_cache(maxsize=256)
def _warn_unchecked(path: Path) -> None:
    logger.warning("%s has no checksum in %s, so damage would not show: save it again to add one", plain(path), CONFIG)


def read_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The shapes of the tensors in a safetensors file, by its header alone.

    Raises:
        ArrnError: for a file that is missing, truncated, no regular file or a pickle.
    """
    try:
        with open_regular(path) as file:
            start = file.read(2)
        if start in _PICKLES:
            raise ArrnError(f"{path} is a pickle, which could run any code; arrn reads safetensors only")
        with safetensors.safe_open(path, framework="pt") as tensors:
            return {name: tuple(tensors.get_slice(name).get_shape()) for name in tensors.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise ArrnError(f"{path} is missing") from None
    except OSError as error:
        raise ArrnError(f"cannot read {path}: {error.strerror or error}") from error
    except safetensors.SafetensorError as error:
        raise ArrnError(f"{path} is truncated or not a safetensors file: {first_line(error)}") from None


def read_tensors(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of a safetensors file that `read_shapes` has read.

    Raises:
        ArrnError: for a file that changed since, and for numbers that networks do not hold.
    """
    try:
        tensors = safetensors.torch.load_file(path)
    except OSError as error:
        raise ArrnError(f"cannot read {path}: {error.strerror or error}") from error
    except (safetensors.SafetensorError, AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
        raise ArrnError(f"{path} cannot be read: {first_line(error)}") from None
    odd = next((name for name, tensor in tensors.items() if tensor.dtype not in (*DTYPES, *_OTHERS)), None)
    if odd is not None:
        raise ArrnError(f"{path}: {odd:.80} is of {tensors[odd].dtype}, which no network computes in")
    return tensors
