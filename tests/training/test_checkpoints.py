"""Checkpoints: two are kept, whole or not at all; a damaged one costs no more than it must."""

import contextlib
import dataclasses
import errno
import logging
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st

from arrn.errors import ArrnError, RunError
from arrn.training import Checkpoint, Checkpoints
from arrn.training.checkpoints import write_checkpoint
from arrn.writing import TEMPORARY, write_atomically


def checkpoint(epoch: int, step: int = 0) -> Checkpoint:
    tensors = {
        "model.weight": torch.full((3, 4), float(epoch)),
        "model.count": torch.tensor(epoch),
        "optimizer.0.exp_avg": torch.randn(4, 3, 2, 2).to(memory_format=torch.channels_last),
        "half": torch.randn(5).bfloat16(),
    }
    return Checkpoint(epoch, step, tensors, {"totals": [0.1, 2, 3], "counts": [7]})


def names(checkpoints: Checkpoints) -> list[str]:
    return sorted(os.listdir(checkpoints.folder))


@pytest.fixture
def checkpoints(tmp_path: Path) -> Checkpoints:
    return Checkpoints(tmp_path / "checkpoints")


def test_what_is_written_is_read(checkpoints: Checkpoints) -> None:
    written = checkpoint(3, 5)
    checkpoints.write(written)
    found = checkpoints.read_latest()
    assert found is not None
    assert (found.epoch, found.step, found.facts) == (3, 5, written.facts)
    assert set(found.tensors) == set(written.tensors)
    for name, tensor in written.tensors.items():
        assert found.tensors[name].dtype == tensor.dtype
        assert torch.equal(found.tensors[name], tensor)


def test_the_name_that_the_format_once_had_is_read(checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("arrn.training.checkpoints.FORMAT", "arrn checkpoint")
        path = checkpoints.write(checkpoint(3))
    with safetensors.safe_open(path, framework="pt") as file:
        assert file.metadata()["format"] == "arrn checkpoint"
    assert checkpoints.read_latest() is not None


def test_no_folder_and_an_empty_one_have_no_checkpoint(checkpoints: Checkpoints) -> None:
    assert checkpoints.read_latest() is None
    checkpoints.folder.mkdir()
    assert checkpoints.read_latest() is None


def test_names_depend_on_epoch_and_step_and_the_two_latest_are_kept(checkpoints: Checkpoints) -> None:
    for epoch, step in ((0, 7), (1, 0), (1, 12), (2, 0), (9999, 0), (10000, 0)):
        checkpoints.write(checkpoint(epoch, step))
    assert names(checkpoints) == ["checkpoint-10000.safetensors", "checkpoint-9999.safetensors"]
    latest = checkpoints.read_latest()
    assert latest is not None
    assert latest.epoch == 10000
    assert checkpoint(1, 12).file_name == "checkpoint-0001-000012.safetensors"


def truncate(content: bytes) -> bytes:
    return content[: len(content) // 2]


def cut_the_last_byte(content: bytes) -> bytes:
    return content[:-1]


def flip_a_bit_of_a_weight(content: bytes) -> bytes:
    return content[:-3] + bytes([content[-3] ^ 1]) + content[-2:]


def change_a_type(content: bytes) -> bytes:
    return content.replace(b'"F32"', b'"I32"')


def change_the_totals(content: bytes) -> bytes:
    return content.replace(b"[0.1, 2, 3]", b"[0.2, 2, 3]")


def pickled(content: bytes) -> bytes:
    return pickle.dumps({"weights": [1, 2]})


def another_format(content: bytes) -> bytes:
    return safetensors.torch.save({"x": torch.ones(2)})


DAMAGES = [
    truncate,
    cut_the_last_byte,
    flip_a_bit_of_a_weight,
    change_a_type,
    change_the_totals,
    pickled,
    another_format,
    lambda content: b"",
    lambda content: b"garbage" * 100,
    lambda content: b"\xff" * 8 + content,
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_last_one_goes_back_to_the_one_before_with_a_warning(
    checkpoints: Checkpoints, damage: Callable[[bytes], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    checkpoints.write(checkpoint(1))
    last = checkpoints.write(checkpoint(2))
    content = last.read_bytes()
    assert damage(content) != content
    last.write_bytes(damage(content))
    with caplog.at_level(logging.WARNING):
        found = checkpoints.read_latest()
    assert found is not None
    assert found.epoch == 1
    (message,) = caplog.messages
    assert "checkpoint-0002.safetensors" in message
    assert message.endswith("going back to checkpoint-0001.safetensors")


@given(st.data())
def test_any_flipped_bit_is_noticed(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    checkpoints = Checkpoints(tmp_path_factory.getbasetemp() / "bits")
    path = checkpoints.write(checkpoint(1))
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(content)
    with pytest.raises(ArrnError, match=r"no checkpoint in .* can be read"):
        checkpoints.read_latest()
    path.unlink()


def test_when_all_are_damaged_the_error_says_what_to_do(checkpoints: Checkpoints) -> None:
    for epoch in (1, 2):
        path = checkpoints.write(checkpoint(epoch))
    for path in checkpoints.folder.iterdir():
        path.write_bytes(b"x")
    with pytest.raises(ArrnError, match=r"can be read; remove them to start afresh: .*0002.*; .*0001"):
        checkpoints.read_latest()


def test_a_checkpoint_under_anothers_name_is_not_taken(checkpoints: Checkpoints) -> None:
    path = checkpoints.write(checkpoint(1))
    path.rename(path.with_name("checkpoint-0005.safetensors"))
    with pytest.raises(ArrnError, match="is misnamed"):
        checkpoints.read_latest()


@pytest.mark.parametrize("place", [{"epoch": {"0": 0}}, {"epoch": -1}, {"epoch": 1.5}, {"epoch": True}, {"step": "3"}])
def test_a_place_in_the_run_that_means_nothing_is_told_though_the_checksum_fits(
    checkpoints: Checkpoints, place: dict[str, object]
) -> None:
    write_checkpoint(checkpoints.folder / "checkpoint-0001.safetensors", dataclasses.replace(checkpoint(1), **place))
    with pytest.raises(ArrnError, match=f"{next(iter(place))} must be a whole number of at least 0, got"):
        checkpoints.read_latest()


def test_damaged_later_ones_do_not_crowd_out_good_ones(checkpoints: Checkpoints) -> None:
    checkpoints.write(checkpoint(4))
    (checkpoints.folder / "checkpoint-0005.safetensors").write_bytes(b"damaged")
    checkpoints.write(checkpoint(4, 3))
    assert names(checkpoints) == ["checkpoint-0004-000003.safetensors", "checkpoint-0004.safetensors"]


def test_a_write_that_fails_midway_leaves_the_previous_one(
    checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints.write(checkpoint(1))

    def full_disk(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", full_disk)
        with pytest.raises(
            RunError, match=r"No space left on device; the latest checkpoint is checkpoint-0001\..*--resume"
        ):
            checkpoints.write(checkpoint(2))
    assert names(checkpoints) == ["checkpoint-0001.safetensors"]
    found = checkpoints.read_latest()
    assert found is not None
    assert found.epoch == 1
    checkpoints.write(checkpoint(2))
    assert len(names(checkpoints)) == 2


def test_what_a_killed_process_left_unfinished_is_ignored_and_then_removed(checkpoints: Checkpoints) -> None:
    checkpoints.write(checkpoint(1))
    (checkpoints.folder / f".checkpoint-0002.safetensors.abc{TEMPORARY}").write_bytes(b"half of it")
    (checkpoints.folder / ".somebody.else").write_bytes(b"")
    found = checkpoints.read_latest()
    assert found is not None
    assert found.epoch == 1
    checkpoints.write(checkpoint(2))
    assert names(checkpoints) == [".somebody.else", "checkpoint-0001.safetensors", "checkpoint-0002.safetensors"]


def test_the_folder_is_synced_after_the_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    replace, fsync = os.replace, os.fsync

    def noted_fsync(descriptor: int) -> None:
        calls.append("folder" if os.path.isdir(f"/proc/self/fd/{descriptor}") else "file")
        fsync(descriptor)

    def noted_replace(source: str, target: Path) -> None:
        calls.append("rename")
        replace(source, target)

    monkeypatch.setattr("os.fsync", noted_fsync)
    monkeypatch.setattr("os.replace", noted_replace)
    write_atomically(tmp_path / "file", b"content")
    assert calls == ["file", "rename", "folder"]


file_names = st.one_of(
    st.just("checkpoint-0001.safetensors"),
    st.just("checkpoint-0003-000004.safetensors"),
    st.just("checkpoint-99999999999.safetensors"),
    st.just("checkpoint-\u0660\u0661\u0660\u0661.safetensors"),
    st.text(st.characters(blacklist_characters="/\0", blacklist_categories=["Cs"]), min_size=1, max_size=20).filter(
        lambda name: name not in (".", "..")
    ),
)
contents = st.one_of(
    st.binary(max_size=100),
    st.none(),  # a folder of that name
    st.binary(max_size=40).map(lambda header: len(header).to_bytes(8, "little") + header),
    st.just(safetensors.torch.save({"x": torch.ones(2)}, {"format": "arrn checkpoint", "format_version": "1"})),
    st.just(
        safetensors.torch.save(
            {}, {"format": "arrn checkpoint", "format_version": "1", "facts": "[]", "checksum": "0b6dc09b"}
        )
    ),
)


@given(st.dictionaries(file_names, contents, max_size=4))
def test_no_folder_escapes_as_anything_but_an_arrn_error(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes | None]
) -> None:
    checkpoints = Checkpoints(tmp_path_factory.mktemp("fuzz"))
    for name, content in files.items():
        if content is None:
            (checkpoints.folder / name).mkdir()
        else:
            (checkpoints.folder / name).write_bytes(content)
    with contextlib.suppress(ArrnError):
        assert checkpoints.read_latest() is None
    try:
        checkpoints.write(checkpoint(2))
    except RunError:  # a folder stands where the file should go
        return
    found = checkpoints.read_latest()
    assert found is not None
    assert found.epoch == 2
