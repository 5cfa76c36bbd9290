"""An object store for tests: moto's S3 on loopback, which can be switched off and on; what it holds stays."""

import importlib.util
import logging
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

stored = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("moto", "flask", "s3fs"))), reason="moto, flask or s3fs is not installed"
)


class Store:
    """S3 on loopback, which can be switched off and on; what it holds stays."""

    def __init__(self) -> None:
        from moto.server import ThreadedMotoServer

        self._make = lambda port: ThreadedMotoServer("127.0.0.1", port=port, verbose=False)
        self.port = 0
        self.start()

    def start(self) -> None:
        self._server = self._make(self.port)
        self._server.start()
        self.port = self._server.get_host_and_port()[1]

    def stop(self) -> None:
        self._server.stop()

    def new_bucket(self) -> str:
        """The name of an empty bucket: what others hold stays when the store is gone, within this process."""
        import fsspec

        name = f"bucket-{uuid.uuid4().hex}"
        fsspec.filesystem("s3").mkdir(name)
        return name

    def upload(self, folder: Path, address: str) -> str:
        import fsspec

        system, path = fsspec.core.url_to_fs(address)
        system.makedirs(path.partition("/")[0], exist_ok=True)
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                system.pipe_file(f"{path}/{file.relative_to(folder).as_posix()}", file.read_bytes())
        return address


@contextmanager
def object_store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A store that s3:// means in this process, and in those that it starts from now on."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "FSSPEC_S3_ANON"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "tester")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    import s3fs

    store = Store()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{store.port}")
    s3fs.S3FileSystem.clear_instance_cache()
    try:
        yield store
    finally:
        store.stop()
        s3fs.S3FileSystem.clear_instance_cache()
