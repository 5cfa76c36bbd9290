"""Runs kept at an address, for machines that share no folder."""

from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from arrn.errors import ArrnError, RunError
from arrn.experiments import run_storage
from arrn.experiments.jobs import Job
from arrn.experiments.run_storage import Storage, kept_in
from arrn.runs import RunSettings
from object_store import object_store, stored


@pytest.fixture(params=["file", "memory", pytest.param("s3", marks=stored)])
def address(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An address; on each, a folder exists as soon as a file is in it."""
    if request.param == "s3":
        with object_store(monkeypatch) as running:
            yield f"s3://{running.new_bucket()}/storage"
        return
    yield f"file://{tmp_path}/storage" if request.param == "file" else "memory://storage"
    fsspec.filesystem("memory").store.clear()


def job(root: Path) -> Job:
    return Job("x", RunSettings("sample"), root / "runs", root / "results")


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def contents(job: Job) -> dict[str, str]:
    found = {path.relative_to(job.out).as_posix(): path.read_text() for path in job.out.rglob("*") if path.is_file()}
    return found | {path.name: path.read_text() for path in job.results.rglob("*.json")}


def test_what_one_machine_leaves_another_takes_up(address: str, tmp_path: Path) -> None:
    here, there = job(tmp_path / "here"), job(tmp_path / "there")
    storage = Storage(address)
    assert not storage.has(here)
    write(here.folder / "log.jsonl", "1")
    write(here.folder / "checkpoints" / "checkpoint-0001.safetensors", "one")
    write(here.folder / "checkpoints" / ".checkpoint-0002.abc.arrn-unfinished", "half")
    write(here.folder / ".lock", "")
    write(here.results / "sample" / "x-seed0.json", "{}")
    storage.push(here)
    assert storage.has(here)
    another = Storage(address)
    another.pull(there)
    expected = {"sample/x-seed0/log.jsonl": "1", "sample/x-seed0/checkpoints/checkpoint-0001.safetensors": "one"}
    assert contents(there) == expected | {"x-seed0.json": "{}"}
    # The other machine goes on: what it replaced is replaced here too.
    write(there.folder / "log.jsonl", "12")
    (there.folder / "checkpoints" / "checkpoint-0001.safetensors").unlink()
    write(there.folder / "checkpoints" / "checkpoint-0002.safetensors", "two")
    another.push(there)
    (here.folder / ".lock").unlink()
    storage.pull(here)
    assert contents(here) == contents(there)


def test_only_what_changed_is_copied(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, storage = job(tmp_path / "here"), Storage(address)
    write(here.folder / "run.json", "{}")
    write(here.folder / "log.jsonl", "1")
    storage.push(here)
    written: list[str] = []
    monkeypatch.setattr(storage, "_write", lambda path, content: written.append(path.rpartition("/")[2]))
    write(here.folder / "log.jsonl", "12")
    storage.push(here)
    assert written == ["log.jsonl"]


def test_a_run_in_a_storage_is_in_a_folder_of_its_machine_meanwhile(address: str, tmp_path: Path) -> None:
    with kept_in(Storage(address), job(tmp_path / "one")) as here:
        assert not here.folder.exists()
        write(here.folder / "log.jsonl", "1")
    assert not here.out.exists()

    def stop_there() -> None:
        with kept_in(Storage(address), job(tmp_path / "two")) as here:
            assert contents(here) == {"sample/x-seed0/log.jsonl": "1"}
            write(here.folder / "log.jsonl", "12")
            raise RunError("stopped")

    with pytest.raises(RunError, match="stopped"):
        stop_there()
    there = job(tmp_path / "three")
    Storage(address).pull_log(there)
    assert contents(there) == {"sample/x-seed0/log.jsonl": "12"}


def test_a_run_that_the_storage_does_not_take_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_storage, "_SECONDS_BETWEEN_ATTEMPTS", 0.0)
    root = tmp_path / "storage"
    storage = Storage(f"file://{root}")
    opened = kept_in(storage, job(tmp_path / "one"))
    here = opened.__enter__()
    write(here.folder / "log.jsonl", "1")
    write(root, "a file in the place of the folder")
    with pytest.raises(RunError) as told:
        opened.__exit__(None, None, None)
    assert f"cannot copy the run to the storage {storage.address}; it stays in {here.folder}: " in str(told.value)
    assert contents(here) == {"sample/x-seed0/log.jsonl": "1"}


def test_names_that_lead_elsewhere_are_not_followed(tmp_path: Path) -> None:
    files = fsspec.filesystem("memory")
    files.store.clear()
    files.pipe_file("/storage/runs/sample/x-seed0/../../../../evil", b"!")
    files.pipe_file("/storage/runs/sample/x-seed0/log.jsonl", b"1")
    here = job(tmp_path / "deep" / "here")
    Storage("memory://storage").pull(here)
    files.store.clear()
    assert contents(here) == {"sample/x-seed0/log.jsonl": "1"}
    assert not list(tmp_path.rglob("evil"))


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("nonsense://x", "cannot use the storage nonsense://x: Protocol not known: nonsense"),
        ("file:///proc/x", "cannot write to the storage file:///proc/x: "),
    ],
)
def test_a_storage_that_cannot_be_is_told(address: str, message: str) -> None:
    with pytest.raises(ArrnError, match=message), Storage(address).token():
        pass
