"""Shards at addresses: a web server, over HTTP and HTTPS, and the Hugging Face hub; all on loopback."""

import dataclasses
import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from arrn.data import examine, open_dataset
from arrn.errors import ArrnError, RunError
from arrn.runs import Machine, run_training
from bucket_server import bucket_server
from commands import program
from hub_server import Hub, hub_server, use_hub
from range_server import make_certificate, served
from shards import write_shards
from small_runs import tiny_settings, weights

STREAMED = Machine("cpu", stream=True, workers=0)
COUNTS = (17, 9, 12, 10)
web = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("fsspec", "aiohttp"))), reason="fsspec or aiohttp is not installed"
)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def check_alike(address: str, root: Path) -> None:
    """Checks that an address gives the samples that a folder gives."""
    stored, local = open_dataset(address).train, open_dataset(str(root)).train
    assert stored.labels.equal(local.labels)
    assert all(torch.equal(stored.read(n), local.read(n)) for n in range(len(local)))
    assert examine(stored).sizes == examine(local).sizes


@web
@pytest.mark.parametrize("kind", ["parquet", "tar"])
def test_a_web_server_gives_the_samples_that_a_disk_gives(kind: str, tmp_path: Path) -> None:
    root = write_shards(tmp_path / "set", kind, COUNTS)
    with served(tmp_path) as address:
        check_alike(f"{address}/set", root)  # by the links of the page that lists the folder
        pattern = "train-{0000..0003}.tar" if kind == "tar" else "train-{00000..00003}-of-00004.parquet"
        check_alike(f"{address}/set/{pattern}", root)


@web
@pytest.mark.parametrize("kind", ["parquet", "tar"])
def test_a_web_server_that_gives_whole_files_only_is_one_line(kind: str, tmp_path: Path) -> None:
    write_shards(tmp_path / "set", kind, COUNTS)
    with (
        served(tmp_path, ranges=False) as address,
        pytest.raises(ArrnError, match=r"the server of .*train-0000.* sends whole files only") as caught,
    ):
        examine(open_dataset(f"{address}/set").train)
    assert "\n" not in str(caught.value)


@web
def test_what_a_web_server_does_not_have_is_one_line(tmp_path: Path) -> None:
    write_shards(tmp_path / "set", "tar", COUNTS)
    with served(tmp_path) as address:
        for wrong, complaint in (
            (f"{address}/none", "is missing: nothing is there"),
            (f"{address}/set/train-{{0003..0004}}.tar", r"train-0004\.tar is missing: nothing is there"),
        ):
            with pytest.raises(ArrnError, match=complaint) as caught:
                open_dataset(wrong)
            assert "\n" not in str(caught.value)


@web
def test_a_web_server_that_is_away_is_not_taken_for_an_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arrn.data.storage._PATIENCE_AT_FIRST", 0.2)
    with served(tmp_path) as address:
        pass
    with pytest.raises(RunError, match=r"train-0\.tar does not answer, tried for . s: Cannot connect to host"):
        open_dataset(f"{address}/train-{{0..1}}.tar")


@web
def test_training_from_https_ends_as_from_a_disk(tmp_path: Path) -> None:
    root = write_shards(tmp_path / "set", "tar", COUNTS)
    settings = tiny_settings(root)
    run_training(settings, tmp_path / "local", STREAMED)
    certificate = make_certificate(tmp_path / "certificate.pem")
    options = [f"{name}={value}".replace(" ", "") for name, value in settings.options.items()]
    command = ["train", "--model", "arrn", "--epochs", 2, "--batch-size", 4, "--device", "cpu", "--stream"]
    command += ["--workers", 0, *(word for option in options for word in ("--option", option))]
    with served(tmp_path, certificate=certificate) as address:
        shards = f"{address}/set/train-{{0000..0003}}.tar"
        program(*command, "--out", tmp_path / "stored", shards, SSL_CERT_FILE=str(certificate))
        # Nobody else vouches for it.
        refused = program(*command, "--out", tmp_path / "refused", shards, code=2)
    assert "train-0000.tar: its certificate is not trusted (" in refused.stderr
    assert "set SSL_CERT_FILE to the file of its authority" in refused.stderr
    assert weights(tmp_path / "stored") == weights(tmp_path / "local")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    hugging_face = pytest.importorskip("huggingface_hub")
    with hub_server() as running:
        use_hub(running, tmp_path / "home", monkeypatch, token=None)
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", running.address)
        template = running.address + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)
        hugging_face.HfFileSystem.clear_instance_cache()
        yield running
        hugging_face.HfFileSystem.clear_instance_cache()


@pytest.mark.parametrize("kind", ["parquet", "tar"])
def test_the_hub_gives_the_samples_that_a_disk_gives(kind: str, hub: Hub, tmp_path: Path) -> None:
    root = write_shards(tmp_path / "set", kind, COUNTS)
    files = {path.name: path.read_bytes() for path in root.iterdir()}
    hub.add("datasets/me/photos", files)
    check_alike("hf://datasets/me/photos@main", root)
    assert hub.sent < 4 * sum(map(len, files.values()))  # reading and looking, and no more than was asked for
    settings = tiny_settings(root)
    for name, data in (("local", str(root)), ("stored", "hf://datasets/me/photos")):
        run_training(dataclasses.replace(settings, dataset=data), tmp_path / name, STREAMED)
    assert weights(tmp_path / "stored") == weights(tmp_path / "local")


def test_what_the_hub_does_not_have_is_one_line(hub: Hub, tmp_path: Path) -> None:
    root = write_shards(tmp_path / "set", "tar", COUNTS)
    hub.add("datasets/me/private", {path.name: path.read_bytes() for path in root.iterdir()}, private=True)
    for name in ("none", "private"):
        told = rf"^hf://datasets/me/{name}: access is refused \(.*; log in with `hf auth login`, or set HF_TOKEN$"
        with pytest.raises(ArrnError, match=told) as caught:
            open_dataset(f"hf://datasets/me/{name}")
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["parquet", "tar"])
def test_google_gives_the_samples_that_a_disk_gives(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")  # which asks by gRPC, as the stand-in does not
    gcsfs = pytest.importorskip("gcsfs", reason="gcsfs is not installed, nor part of an extra")
    root = write_shards(tmp_path / "bucket" / "deep" / "set", kind, COUNTS)
    monkeypatch.setitem(pytest.importorskip("fsspec.config").conf, "gs", {"token": "anon"})  # as FSSPEC_GS_TOKEN does
    with bucket_server(tmp_path / "bucket") as address:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", address)
        gcsfs.GCSFileSystem.clear_instance_cache()
        check_alike("gs://bucket/deep/set", root)
        for wrong in ("gs://bucket/none", "gs://none/set"):
            with pytest.raises(ArrnError, match=f"{wrong} is missing") as caught:
                open_dataset(wrong)
            assert "\n" not in str(caught.value)
    gcsfs.GCSFileSystem.clear_instance_cache()
