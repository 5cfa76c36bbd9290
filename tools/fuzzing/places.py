"""Places that strangers answer for: a repository on the Hugging Face hub, and a store of shards. Nothing is connected.

The hub's answers lie in `answers.json` and its files in `repo/`; the store's list lies in `listing.json` and its files
in `bucket/`. A case damages one of them.
"""

from __future__ import annotations

import builtins
import hashlib
import importlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

from fsspec import register_implementation
from fsspec.spec import AbstractFileSystem

REPOSITORY, ADDRESS, STORED_SET = "me/birds", "hf://me/birds", "fuzz://bucket"
_COMMIT = "0123456789abcdef0123456789abcdef01234567"
_LARGE = ".safetensors"
_NUMBERS = ("config.json", "recipe.toml", "evaluation.json", "cascade.json")
_PUBLISHED = (*_NUMBERS, "model.safetensors", "README.md", "evaluation.png")
_WRITING = ("POST", "PUT", "DELETE")
_MOST = 1 << 24  # bytes of a file that are sent, so that the sender does not count against the case

FAILURES: tuple[tuple[str, Any], ...] = tuple(
    ("fails", name) for name in ("TimeoutError", "PermissionError", "FileNotFoundError", "ValueError", "OSError")
)
"""What a store's list may say besides what is in the seed: the error that each read of the file ends with."""

HEADERS: tuple[tuple[str, Any], ...] = (
    ("Location", "http://elsewhere.invalid/config.json"),
    ("Location", "/me/birds/resolve/main/config.json"),
    ("Retry-After", "1000000"),
    ("Content-Length", "9000000000000000000"),
    ("Content-Encoding", "gzip"),
    ("ETag", '"../../escaped"'),
    ("X-Repo-Commit", "../../../escaped"),
    ("status", 302),
    ("status", 401),
    ("status", 403),
    ("status", 404),
    ("status", 429),
    ("status", 500),
    ("status", 503),
)
"""What an answer of the hub may have besides what is in the seed."""


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _git_blob(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def _listed(name: str, content: bytes) -> dict[str, Any]:
    listed: dict[str, Any] = {"rfilename": name, "size": len(content), "blobId": _git_blob(content)}
    if name.endswith(_LARGE):
        digest = _sha256(content)
        listed["lfs"] = {"oid": digest, "sha256": digest, "size": len(content), "pointerSize": 134}
    return listed


def write_answers(repo: Path) -> None:
    """Writes what the hub answers for the files of a repository, beside its folder."""
    files = {path.name: path.read_bytes() for path in sorted(repo.iterdir()) if path.is_file()}
    info = {"id": REPOSITORY, "sha": _COMMIT, "private": False, "tags": []}
    info["siblings"] = [_listed(name, content) for name, content in files.items()]
    tree = {
        "document": [
            {"type": "file", "path": name, "oid": _git_blob(content)} | _listed(name, content)
            for name, content in files.items()
        ]
    }
    here = f"/api/models/{REPOSITORY}"
    answers: dict[str, dict[str, Any]] = {
        here: {"document": info},
        f"{here}/revision/{_COMMIT}": {"document": info},
        f"{here}/tree/{_COMMIT}": tree,
        f"{here}/tree/main": tree,
        "/api/repos/create": {"document": {"url": f"http://hub.invalid/{REPOSITORY}", "id": REPOSITORY}},
        "/api/validate-yaml": {"document": {"warnings": [], "errors": []}},
        f"{here}/preupload/main": {
            "document": {
                "files": [{"path": name, "uploadMode": "regular", "shouldIgnore": False} for name in _PUBLISHED]
            }
        },
        f"{here}/commit/main": {
            "document": {
                "success": True,
                "commitOid": _COMMIT,
                "commitUrl": f"http://hub.invalid/{REPOSITORY}/commit/{_COMMIT}",
            }
        },
    }
    for name, content in files.items():
        tag = _sha256(content) if name.endswith(_LARGE) else _git_blob(content)
        answers[f"/{REPOSITORY}/resolve/{_COMMIT}/{name}"] = {
            "file": name,
            "ETag": f'"{tag}"',
            "X-Repo-Commit": _COMMIT,
        }
    (repo.parent / "answers.json").write_text(json.dumps(answers))


def repair_repository(repo: Path) -> None:
    """Makes the checksum in the config, and what the hub says of sizes and checksums, valid again."""
    from fuzzing.formats import repair_weights

    if all(path.is_file() and path.stat().st_size < _MOST for path in repo.iterdir()):
        repair_weights(repo)
        write_answers(repo)


def use_hub() -> None:
    """Makes `huggingface_hub` ask the files here, and keep what it downloads here."""
    import huggingface_hub
    from huggingface_hub import constants

    os.environ |= {"HF_ENDPOINT": "http://hub.invalid", "HF_TOKEN": "hf_" + "x" * 20}
    cache = Path("downloaded").resolve()
    for name in ("HF_HOME", "HF_HUB_CACHE", "HF_XET_CACHE"):
        setattr(constants, name, str(cache))
    constants.HF_HUB_DISABLE_XET = True
    # How long `huggingface_hub` waits before it tries again is its own affair, and the hub's.
    asking: Any = importlib.import_module("huggingface_hub.utils._http")
    asking.time = SimpleNamespace(sleep=lambda seconds: None)
    client: Any = huggingface_hub.get_session()
    library = importlib.import_module(type(client).__module__.partition(".")[0])  # it is not the same in all versions
    transport = library.MockTransport(lambda request: _answer(library, request))
    huggingface_hub.set_client_factory(lambda: library.Client(transport=transport, follow_redirects=True))


def _answer(library: Any, request: Any) -> Any:
    """What the hub answers to a request."""
    text = _read(Path("answers.json"))
    try:
        answers = json.loads(text)
        found = answers.get(unquote(request.url.path))
    except (ValueError, AttributeError, RecursionError):
        return library.Response(200, content=text)
    if found is None and request.method in _WRITING:
        return library.Response(200, content=b"{}")
    if not isinstance(found, dict):
        return library.Response(404, headers={"X-Error-Code": "EntryNotFound"}, content=b"{}")
    status = found.get("status", 200)
    headers = {
        _header(name): _header(value) for name, value in found.items() if name not in ("status", "document", "file")
    }
    body = json.dumps(found["document"]).encode() if "document" in found else b""
    if "file" in found:
        path = Path("repo") / str(found["file"]).replace("/", "_").replace("\0", "")[:200]
        body = _read(path)
    headers.setdefault("Content-Length", str(len(body)))
    known = isinstance(status, int) and not isinstance(status, bool) and 200 <= status < 600
    return library.Response(
        status if known else 200, headers=headers, content=b"" if request.method == "HEAD" else body
    )


def _header(text: object) -> str:
    """What can travel in a header."""
    plain = "".join(letter for letter in str(text)[:5000] if letter.isprintable())
    return plain.encode("latin-1", "replace").decode("latin-1")


def _read(path: Path) -> bytes:
    """The beginning of a file; what is no plain file is empty."""
    try:
        if not path.is_file():
            return b""
        with path.open("rb") as file:
            return file.read(_MOST)
    except OSError:
        return b""


class Store(AbstractFileSystem):  # type: ignore[misc]
    """A store that says what `listing.json` says, and sends the files in `bucket/`."""

    protocol = "fuzz"
    cachable = False

    def _listing(self) -> list[dict[str, Any]]:
        try:
            items = json.loads(_read(Path("listing.json")))
        except (ValueError, RecursionError) as error:
            raise OSError(f"the list cannot be read: {error}") from None
        items = [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
        return [_item(item) for item in items]

    def ls(self, path: str, detail: bool = True, **how: Any) -> list[Any]:
        """All that there is, or one file."""
        found = [item for item in self._listing() if item["name"] == path or path.strip("/") == "bucket"]
        if not found:
            raise FileNotFoundError(path)
        return found if detail else [item["name"] for item in found]

    def info(self, path: str, **how: Any) -> dict[str, Any]:
        """What the list says of one file."""
        found: dict[str, Any] = next((item for item in self._listing() if item["name"] == path), {})
        if not found:
            raise FileNotFoundError(path)
        return found

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **how: Any) -> bytes:
        """A part of a file, or the error that the list names."""
        failure = self.info(path).get("fails")
        if failure is not None:
            kind = getattr(builtins, str(failure), None)
            raise (kind if isinstance(kind, type) and issubclass(kind, Exception) else OSError)(str(failure))
        return _read(Path("bucket") / path.rpartition("/")[2])[start:end]


def _item(item: dict[str, Any]) -> dict[str, Any]:
    """What a library makes of the list of a store: of the right types, whatever the values."""
    size, kind = item.get("size"), item.get("type", "file")
    known = isinstance(size, int) and not isinstance(size, bool)
    return {**item, "name": str(item.get("name", "")), "size": size if known else None, "type": str(kind)}


def write_listing(bucket: Path) -> None:
    """Writes what the store says of the files in its folder, beside the folder."""
    items = [
        {"name": f"bucket/{path.name}", "size": path.stat().st_size, "type": "file", "ETag": _sha256(path.read_bytes())}
        for path in sorted(bucket.iterdir())
        if path.is_file() and path.stat().st_size < _MOST
    ]
    (bucket.parent / "listing.json").write_text(json.dumps(items))


def in_the_store(use: Callable[[str], None]) -> Callable[[], None]:
    """The use of a data set, of the one in the store, by a library that soon gives up."""

    def run() -> None:
        from arrn.data import storage

        storage.PATIENCE = storage._PATIENCE_AT_FIRST = 1.0
        register_implementation("fuzz", Store, clobber=True)
        use(STORED_SET)

    return run


def load_from_hub() -> None:
    """What a program does: load by an address, run."""
    import torch

    import arrn
    from arrn.nn.network import as_network

    use_hub()
    model = arrn.load(ADDRESS)
    if not all(tensor.isfinite().all() for tensor in model.state_dict().values()):
        sys.stdout.write("UNNOTICED: weights that are not finite\n")
    network = as_network(model)
    with torch.no_grad():
        model(torch.rand(1, network.in_channels, *[8] * network.ndim))
