"""Shards in an object store: a real one, moto's S3 on loopback, that goes away and comes back, or holds nothing."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from arrn.data import BadSample, StoreAwayError, examine, open_dataset
from arrn.data.shards import expand_braces
from arrn.data.storage import file_at, patiently
from arrn.errors import ArrnError, RunError
from arrn.runs import Machine, run_training
from object_store import Store, object_store, stored
from pictures import write_parquet
from shards import numbered, tar_files, write_shards, write_tar
from small_runs import tiny_settings, weights

COUNTS = (17, 9, 12, 10)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Store]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with object_store(monkeypatch) as running:
        yield running


@stored
@pytest.mark.parametrize("kind", ["parquet", "tar"])
def test_a_store_gives_the_samples_that_a_disk_gives(kind: str, tmp_path: Path, store: Store) -> None:
    root = write_shards(tmp_path / "set", kind, COUNTS)
    dataset = open_dataset(store.upload(root, "s3://bucket/deep/set"))
    local = open_dataset(str(root)).train
    assert dataset.name == "set"
    assert dataset.train.labels.equal(local.labels)
    assert all(torch.equal(dataset.train.read(n), local.read(n)) for n in (0, 16, 17, 47))
    assert dataset.train.where(20).startswith("s3://bucket/deep/set/train-000")
    assert examine(dataset.train).sizes == examine(local).sizes
    assert list((tmp_path / "cache").rglob("*.json"))  # which is not looked at again
    assert examine(dataset.train).sizes == examine(local).sizes


@stored
def test_training_from_a_store_survives_that_it_goes_away(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_shards(tmp_path / "set", "parquet", COUNTS)
    address = store.upload(root, "s3://bucket/set")
    machine = Machine("cpu", stream=True, workers=0)
    run_training(tiny_settings(root), tmp_path / "local", machine)
    from arrn.data.storage import StoredFile

    read, away = StoredFile.read, []

    def reading(file: StoredFile, start: int, stop: int, given_up: Any = None) -> bytes:
        if given_up is not None and not away:  # the first chunk of a batch: the store is gone until it was asked
            away.append(file.address)
            store.stop()
            logging.getLogger("arrn.data.storage").addFilter(back)
        return read(file, start, stop, given_up)

    def back(record: logging.LogRecord) -> bool:
        if len(away) == 1:
            away.append(record.getMessage())
            store.start()
        return True

    monkeypatch.setattr(StoredFile, "read", reading)
    try:
        run_training(tiny_settings(address), tmp_path / "stored", machine)
    finally:
        logging.getLogger("arrn.data.storage").removeFilter(back)
    assert len(away) == 2, away
    assert "does not answer" in away[1]
    assert weights(tmp_path / "stored") == weights(tmp_path / "local")


def test_a_store_that_stays_away_leaves_what_there_is_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from arrn.data.storage import StoredFile

    read, left = StoredFile.read, [0]

    def reading(file: StoredFile, start: int, stop: int, given_up: Any = None) -> bytes:
        if given_up is not None:  # a batch is waited for
            left[0] -= 1
            if left[0] < 0:
                raise StoreAwayError(f"{file.address} does not answer, tried for 120 s: refused")
        return read(file, start, stop, given_up)

    monkeypatch.setattr(StoredFile, "read", reading)
    settings = tiny_settings(write_shards(tmp_path / "set", "parquet", COUNTS))
    for reads, told in ((0, r"refused$"), (45, r"refused; the last checkpoint is kept: go on with --resume$")):
        left[0] = reads
        with pytest.raises(RunError, match=told):
            run_training(settings, tmp_path / f"run{reads}", Machine("cpu", stream=True, workers=0, checkpoint_every=1))
        assert any((tmp_path / f"run{reads}").glob("checkpoints/*")) == (reads > 0)


def test_what_a_store_says_reaches_no_terminal_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    def work() -> None:
        raise OSError("\x1b]0;title\x07")

    with pytest.raises(RunError):
        patiently("s3://b/\x1b[2J", work, 0.3)
    assert "s3://b/\\x1b[2J does not answer (\\x1b]0;title\\x07): trying again" in caplog.text


def test_a_store_that_stays_away_is_one_line() -> None:
    def absent() -> None:
        raise ConnectionError("refused\nat length")

    with pytest.raises(RunError, match=r"^s3://b/x does not answer, tried for 0 s: refused$"):
        patiently("s3://b/x", absent, patience=0.1)


def test_threads_that_wait_for_one_store_tell_it_once(caplog: pytest.LogCaptureFixture) -> None:
    away, threads = [True], 6
    all_failed = threading.Barrier(threads)

    def reader() -> Callable[[], int]:
        tries = iter(range(1000))

        def work() -> int:
            if (number := next(tries)) == 0:
                all_failed.wait(10)
                raise ConnectionError("refused")
            if away[0]:
                raise ConnectionError("refused")
            return number

        return work

    def told() -> int:
        return caplog.text.count("does not answer (refused): trying again")

    with ThreadPoolExecutor(threads) as pool:
        for outage in (1, 2):  # the second one is news again
            away[0] = True
            found = [pool.submit(patiently, f"s3://b/{n}", reader(), 60) for n in range(threads)]
            deadline = time.monotonic() + 30
            while told() < outage and time.monotonic() < deadline:
                time.sleep(0.01)
            away[0] = False
            assert all(each.result() > 0 for each in found)
            assert told() == outage


@stored
def test_what_is_not_there_is_one_line(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_shards(tmp_path / "set", "parquet", [4], split="test")
    store.upload(tmp_path / "set", "s3://bucket/tests")
    for address, complaint in (
        ("s3://no-such-bucket/set", "is missing: there is no such bucket"),
        ("s3://bucket/no-such-folder", "is missing: nothing is there"),
        ("s3://bucket/tests", "holds no training shards"),
        ("s3://bucket/train-{0..1}.tar", "is missing: nothing is there"),
        ("nonsense://x/y", "cannot be read: Protocol not known"),
    ):
        with pytest.raises(ArrnError, match=complaint) as caught:
            open_dataset(address)
        assert "\n" not in str(caught.value)
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with pytest.raises(ArrnError, match=r"s3://bucket/tests: no credentials; set AWS_ACCESS_KEY_ID"):
        open_dataset("s3://bucket/tests")


def test_braces_name_shards(tmp_path: Path) -> None:
    assert expand_braces("{a,b}{1..2}") == ["a1", "a2", "b1", "b2"]
    with pytest.raises(ArrnError, match="should go up, from a number to a larger one"):
        expand_braces("{3..1}")
    write_shards(tmp_path, "tar", COUNTS)
    write_shards(tmp_path, "tar", [4], split="test")
    dataset = open_dataset(f"{tmp_path}/train-{{0000..0003}}.tar")
    assert (len(dataset.train), dataset.test) == (sum(COUNTS), None)
    dataset = open_dataset(f"{tmp_path}/{{train,test}}-0000.tar")
    assert dataset.test is not None
    assert (len(dataset.train), len(dataset.test)) == (COUNTS[0], 4)
    with pytest.raises(ArrnError, match=r"train-0004\.tar is missing"):
        open_dataset(f"{tmp_path}/train-{{0003..0004}}.tar")
    with pytest.raises(ArrnError, match="is missing"):
        file_at(tmp_path / "none")


def test_a_tar_with_a_missing_label_is_named_and_skipped(tmp_path: Path) -> None:
    files = tar_files([numbered(n) for n in range(8)])
    write_tar(tmp_path / "train-0000.tar", [file for file in files if file[0] != "000004.cls"])
    source = open_dataset(str(tmp_path)).train
    with pytest.raises(BadSample, match=r"train-0000\.tar sample 000004: has no label: its tar should hold a \.cls"):
        examine(source)
    found = examine(source, skip_bad=True)
    assert (len(found.source), len(found.bad)) == (7, 1)


def test_a_word_in_the_place_of_a_label_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("arrn.data.remembered._LARGE", 0)  # what was seen is kept, and read the second time
    write_shards(tmp_path, "tar", [3])
    files = dict(tar_files([numbered(n) for n in range(3, 8)], 3))
    files |= {"000004.cls": b"cat\n", "000005.cls": b"-3", "000006.json": b'{"label": "dog"}', "000007.cls": b""}
    write_tar(tmp_path / "train-0001.tar", list(files.items()))
    for _ in range(2):
        found = examine(open_dataset(str(tmp_path)).train, skip_bad=True)
        said = [str(error).partition("train-0001.tar sample ")[2] for error in found.bad]
        assert said[:3] == [
            f"{key}: its label is {label}, and should be a whole number from 0 to 2,147,483,647"
            for key, label in (("000004", "'cat'"), ("000005", "-3"), ("000006", "'dog'"))
        ]
        assert said[3].startswith("000007: has no label")
    assert (tmp_path / "cache" / "arrn" / "seen").is_dir()
    (tmp_path / "train-0000.tar").unlink()
    write_tar(tmp_path / "train-0001.tar", [("a.png", numbered(1)), ("a.cls", b"cat")])
    with pytest.raises(ArrnError, match=r"sample a: its label is 'cat', and .*; no sample of this set has a label"):
        open_dataset(str(tmp_path))


def test_more_class_names_than_any_set_has_are_refused_before_anything_is_opened(tmp_path: Path) -> None:
    (tmp_path / "classnames.txt").write_text("\n\n".join(map(str, range(2**16 + 1))))
    (tmp_path / "train-0000.tar").write_bytes(b"not opened")
    with pytest.raises(ArrnError, match=r"classnames\.txt: a set has at most 65,536 classes, got 65,537"):
        open_dataset(str(tmp_path))


def test_an_empty_shard_is_told_and_the_rest_is_read(tmp_path: Path) -> None:
    write_shards(tmp_path / "tar", "tar", [4, 0, 5])
    write_shards(tmp_path / "parquet", "parquet", [4, 0, 5])
    for kind in ("tar", "parquet"):
        dataset = open_dataset(str(tmp_path / kind))
        assert len(dataset.train) == 9
        assert dataset.remark is not None
        assert f"1 of 3 files hold no sample, such as {tmp_path / kind / 'train-000'}" in dataset.remark
        assert len(examine(dataset.train).sizes) == 9
    (tmp_path / "tar" / "train-0001.tar").write_bytes(b"")
    with pytest.raises(ArrnError, match=r"train-0001\.tar is truncated or not a tar file: it is empty, of 0 bytes"):
        open_dataset(str(tmp_path / "tar"))


def test_tars_beside_parquet_are_not_left_out_in_silence(tmp_path: Path) -> None:
    write_shards(tmp_path, "parquet", [4])
    assert open_dataset(str(tmp_path)).remark is None
    write_shards(tmp_path, "tar", [6])
    dataset = open_dataset(str(tmp_path))
    assert len(dataset.train) == 4
    assert dataset.remark is not None
    assert f"tar files such as {tmp_path}/train-0000.tar are left out" in dataset.remark
    assert len(open_dataset(f"{tmp_path}/train-{{0000..0000}}.tar").train) == 6


def test_a_tar_that_is_cut_short_is_named(tmp_path: Path) -> None:
    write_shards(tmp_path, "tar", [6])
    file = tmp_path / "train-0000.tar"
    whole = file.read_bytes()
    for keep in (100, 700, 4000):
        file.write_bytes(whole[:keep])
        with pytest.raises(ArrnError, match=r"train-0000\.tar is truncated or not a tar file"):
            open_dataset(str(tmp_path))


def test_shards_of_other_columns_are_named(tmp_path: Path) -> None:
    write_parquet(tmp_path / "train-1.parquet", [numbered(0)] * 3, [0, 1, 0])
    write_parquet(tmp_path / "train-2.parquet", [numbered(0)] * 3, [0, 1, 0], image_column="photo")
    with pytest.raises(
        ArrnError, match=r"train-2\.parquet holds images in 'photo'.*train-1\.parquet holds images in 'img'"
    ):
        open_dataset(str(tmp_path))
