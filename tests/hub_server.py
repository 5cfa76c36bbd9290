"""A stand-in for the Hugging Face hub on this machine: what `huggingface_hub` asks for, over repositories in memory.

As on the hub, files whose names end as in `LARGE` are kept by their SHA-256 and served by another host after a
redirect, others are git blobs; a private repository is as good as absent for whoever brings no token.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
import yaml

TOKEN = "hf_" + "x" * 20
LARGE = (".safetensors", ".png", ".bin", ".parquet", ".tar")
OWNER = "me"


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def git_blob(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@dataclass
class Repository:
    """Commits are whole trees; `refs` are branches and tags.

    Attributes:
        served: content that is sent in the place of what is listed, by name.
    """

    private: bool = False
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)
    served: dict[str, bytes] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)

    def commit(self, files: dict[str, bytes], message: str = "", branch: str = "main") -> str:
        listing = "".join(f"{name} {git_blob(content)}\n" for name, content in sorted(files.items()))
        sha = hashlib.sha1(f"{len(self.commits)} {message}\n{listing}".encode()).hexdigest()
        self.commits[sha] = files
        self.refs[branch] = sha
        self.messages.append(message)
        return sha

    def find(self, revision: str) -> str | None:
        revision = self.refs.get(revision, revision)
        return next((sha for sha in self.commits if len(revision) >= 7 and sha.startswith(revision)), None)

    @property
    def files(self) -> dict[str, bytes]:
        """Those of the branch `main`."""
        return self.commits[self.refs["main"]]


@dataclass
class Hub:
    """The stand-in's state; `asked` lists the requests, as METHOD PATH, and `sent` counts bytes of parts of files."""

    address: str = ""
    repositories: dict[str, Repository] = field(default_factory=dict)
    stored: dict[str, bytes] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    refuses: int | None = None
    sent: int = 0

    def add(self, name: str, files: dict[str, bytes], private: bool = False) -> Repository:
        repository = self.repositories[name] = Repository(private)
        repository.commit(files)
        return repository

    @property
    def cdn(self) -> str:
        """Where large files are served: another host, as `huggingface_hub` sees it."""
        return f"{self.address.replace('127.0.0.1', 'localhost')}/cdn"

    def downloads(self) -> list[str]:
        """The files that were sent, by name."""
        return sorted(
            {path.rpartition("/")[2] for path in self.asked if path.startswith("GET") and "/resolve/" in path}
        )


@contextmanager
def hub_server() -> Iterator[Hub]:
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    hub.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def use_hub(hub: Hub, home: object, monkeypatch: pytest.MonkeyPatch, token: str | None = TOKEN) -> dict[str, str]:
    """Makes this process, and those it starts with the environment that it gives, use the stand-in and a new cache."""
    import huggingface_hub.constants as constants

    environment = {
        "HF_ENDPOINT": hub.address,
        "HF_HOME": str(home),
        "HF_HUB_CACHE": f"{home}/hub",
        "HF_TOKEN_PATH": f"{home}/token",
        "HF_HUB_DISABLE_XET": "1",  # its protocol is not the stand-in's
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_TOKEN": token or "",
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    for name in ("HF_HOME", "HF_HUB_CACHE", "HF_TOKEN_PATH"):
        monkeypatch.setattr(constants, name, environment[name])
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    return environment


class _Refused(Exception):
    def __init__(self, status: int, code: str = "", message: str = "") -> None:
        self.status, self.code, self.message = status, code, message


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *arguments: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer()

    do_GET = do_POST = do_PUT = do_HEAD

    def _answer(self) -> None:
        self.url = urlsplit(self.path)
        path = self.url.path
        self.hub.asked.append(f"{self.command} {path}")
        self.body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        try:
            if self.hub.refuses is not None:
                raise _Refused(self.hub.refuses, message="come back later")
            for pattern, handle in _ROUTES:
                if found := re.fullmatch(pattern, path):
                    handle(self, *map(unquote, found.groups()))
                    return
            raise _Refused(404, "NotFound", f"the stand-in knows no {path}")
        except _Refused as refused:
            headers = {"X-Error-Code": refused.code, "X-Error-Message": refused.message or refused.code}
            self._send(refused.status, json.dumps({"error": refused.message}).encode(), headers)

    def _send(self, status: int, content: bytes = b"", headers: dict[str, str] | None = None) -> None:
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if asked is not None and status == 200:
            status, content = 206, content[int(asked[1]) : int(asked[2]) + 1]
            self.hub.sent += len(content)
        self.send_response(status)
        for name, value in (headers or {}).items():
            if value:
                self.send_header(name, value)
        if "Content-Length" not in (headers or {}):
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _json(self, document: Any) -> None:
        self._send(200, json.dumps(document).encode(), {"Content-Type": "application/json"})

    @property
    def _token(self) -> str | None:
        given = self.headers.get("Authorization")
        if given is not None and given != f"Bearer {TOKEN}":
            raise _Refused(401, "", "Invalid credentials in Authorization header")
        return given

    def _repository(self, name: str) -> Repository:
        repository, token = self.hub.repositories.get(name), self._token
        if repository is None or (repository.private and token is None):
            raise _Refused(401 if token is None else 404, "RepoNotFound", "Repository not found")
        return repository

    def _tree(self, name: str, revision: str) -> tuple[Repository, str]:
        repository = self._repository(name)
        sha = repository.find(revision)
        if sha is None:
            raise _Refused(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return repository, sha

    def info(self, name: str, revision: str = "main") -> None:
        repository, sha = self._tree(name, revision)
        details = "blobs" in parse_qs(self.url.query)
        siblings = [
            {"rfilename": path} | (_listed(path, content) if details else {})
            for path, content in repository.commits[sha].items()
        ]
        self._json({"id": name, "sha": sha, "private": repository.private, "siblings": siblings, "tags": []})

    def tree(self, name: str, revision: str) -> None:
        repository, sha = self._tree(name, revision)
        self._json(
            [
                {"type": "file", "path": path, "oid": git_blob(content)} | _listed(path, content)
                for path, content in repository.commits[sha].items()
            ]
        )

    def resolve(self, name: str, revision: str, path: str) -> None:
        repository, sha = self._tree(name, revision)
        content = repository.commits[sha].get(path)
        if content is None:
            raise _Refused(404, "EntryNotFound", "Entry not found")
        headers = {"X-Repo-Commit": sha}
        sent = repository.served.get(path, content)
        if path.endswith(LARGE):
            self.hub.stored[sha256(content)] = sent
            headers |= {"X-Linked-Etag": f'"{sha256(content)}"', "X-Linked-Size": str(len(content))}
            self._send(302, b"", headers | {"Location": f"{self.hub.cdn}/{sha256(content)}"})
        else:
            self._send(200, sent, headers | {"ETag": f'"{git_blob(content)}"'})

    def cdn(self, oid: str) -> None:
        content = self.hub.stored[oid]
        self._send(200, content, {"ETag": f'"{oid}"'})

    def create(self) -> None:
        asked = json.loads(self.body)
        name = f"{asked.get('organization') or OWNER}/{asked['name']}"
        if self._token is None:
            raise _Refused(401, "", "Invalid username or password.")
        if not name.startswith(f"{OWNER}/"):
            raise _Refused(403, "", "You don't have the rights to create a model under this namespace")
        if name in self.hub.repositories:
            told = {"error": "You already created this model repo", "url": f"{self.hub.address}/{name}", "id": name}
            self._send(409, json.dumps(told).encode(), {"X-Error-Message": told["error"]})
            return
        self.hub.add(name, {".gitattributes": b"*.safetensors filter=lfs\n"}, asked.get("visibility") == "private")
        self._json({"url": f"{self.hub.address}/{name}", "id": name})

    def validate(self) -> None:
        content = json.loads(self.body)["content"]
        found = re.match(r"---\n(.*?)\n---\n", content, re.DOTALL)
        metadata = yaml.safe_load(found[1]) if found else None
        if not isinstance(metadata, dict) or "license" not in metadata:
            self._send(400, json.dumps({"errors": [{"message": '"license" is missing'}]}).encode())
            return
        self._json({"warnings": [], "errors": []})

    def preupload(self, name: str, revision: str) -> None:
        repository, sha = self._tree(name, revision)
        files = []
        for asked in json.loads(self.body)["files"]:
            path = asked["path"]
            content = repository.commits[sha].get(path)
            large = path.endswith(LARGE)
            oid = None if content is None else sha256(content) if large else git_blob(content)
            mode = "lfs" if large else "regular"
            files.append({"path": path, "uploadMode": mode, "shouldIgnore": False, "oid": oid})
        self._json({"files": files})

    def batch(self, name: str) -> None:
        self._repository(name)
        objects = [
            asked
            | ({} if asked["oid"] in self.hub.stored else {"actions": {"upload": {"href": self._upload(asked["oid"])}}})
            for asked in json.loads(self.body)["objects"]
        ]
        self._json({"transfer": "basic", "objects": objects})

    def _upload(self, oid: str) -> str:
        return f"{self.hub.cdn}/{oid}"

    def store(self, oid: str) -> None:
        assert sha256(self.body) == oid
        self.hub.stored[oid] = self.body
        self._send(200)

    def commit(self, name: str, revision: str) -> None:
        repository, sha = self._tree(name, revision)
        if self._token is None:
            raise _Refused(401, "", "Invalid username or password.")
        files, message = dict(repository.commits[sha]), ""
        for line in self.body.splitlines():
            asked = json.loads(line)
            value = asked["value"]
            if asked["key"] == "header":
                message = value["summary"]
            elif asked["key"] == "file":
                assert value["encoding"] == "base64"
                files[value["path"]] = base64.b64decode(value["content"])
            elif asked["key"] == "lfsFile":
                files[value["path"]] = self.hub.stored[value["oid"]]
            else:
                assert asked["key"] == "deletedFile"
                del files[value["path"]]
        new = repository.commit(files, message, revision)
        self._json({"success": True, "commitOid": new, "commitUrl": f"{self.hub.address}/{name}/commit/{new}"})


def _listed(path: str, content: bytes) -> dict[str, Any]:
    listed: dict[str, Any] = {"size": len(content), "blobId": git_blob(content)}
    if path.endswith(LARGE):
        listed["lfs"] = {"oid": sha256(content), "sha256": sha256(content), "size": len(content), "pointerSize": 134}
    return listed


_ID, _SET = "([^/]+/[^/]+)", "(datasets/[^/]+/[^/]+)"
_ROUTES = [
    (rf"/api/models/{_ID}", _Handler.info),
    (rf"/api/models/{_ID}/revision/([^/]+)", _Handler.info),
    (rf"/api/models/{_ID}/tree/([^/]+)", _Handler.tree),
    (rf"/api/models/{_ID}/preupload/([^/]+)", _Handler.preupload),
    (rf"/api/models/{_ID}/commit/([^/]+)", _Handler.commit),
    (rf"/api/{_SET}", _Handler.info),
    (rf"/api/{_SET}/revision/([^/]+)", _Handler.info),
    (rf"/api/{_SET}/tree/([^/]+)", _Handler.tree),
    (rf"/{_SET}/resolve/([^/]+)/(.+)", _Handler.resolve),
    (r"/api/repos/create", _Handler.create),
    (r"/api/validate-yaml", _Handler.validate),
    (rf"/{_ID}\.git/info/lfs/objects/batch", _Handler.batch),
    (rf"/{_ID}/resolve/([^/]+)/(.+)", _Handler.resolve),
]


def _cdn(handler: _Handler, oid: str) -> None:
    handler.store(oid) if handler.command == "PUT" else handler.cdn(oid)


_ROUTES.append((r"/cdn/([0-9a-f]{64})", _cdn))
