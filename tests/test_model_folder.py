"""The folder of a saved network: checksummed, replaced as one, of regular files, of finite numbers."""

import contextlib
import errno
import json
import logging
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import safetensors.torch
import torch

import arrn
import arrn.saving
from arrn.errors import ArrnError
from arrn.model_folder import CHECKSUM, CONFIG, WEIGHTS, read_config, read_shapes
from arrn.nn import ARRN
from saved_networks import edit, small


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    arrn.save(small(), tmp_path / "model")
    return tmp_path / "model"


def flip(path: Path, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


def test_each_flipped_bit_of_the_weights_is_noticed(saved: Path) -> None:
    whole = (saved / WEIGHTS).read_bytes()
    rng = random.Random(0)
    for _ in range(30):
        flip(saved / WEIGHTS, rng.randrange(8 * len(whole)))
        with pytest.raises(ArrnError, match=r"model\.safetensors"):
            arrn.load(saved)
        (saved / WEIGHTS).write_bytes(whole)
    flip(saved / WEIGHTS, 8 * len(whole) - 1)
    with pytest.raises(ArrnError, match=r"is damaged, or of another network.*copy both files again.*, or save"):
        arrn.load(saved)
    with pytest.raises(ArrnError, match="is damaged"):
        arrn.create_model("arrn", pretrained=saved)


def test_weights_from_before_there_were_checksums_load_with_one_warning(
    saved: Path, caplog: pytest.LogCaptureFixture
) -> None:
    edit(saved, **{CHECKSUM: None})
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            arrn.load(saved)
    assert [record.getMessage() for record in caplog.records] == [
        f"{saved / WEIGHTS} has no checksum in {CONFIG}, so damage would not show: save it again to add one"
    ]


@pytest.mark.parametrize("checksum", [3, "", "x" * 64, "../../" + "a" * 58, ["a" * 64]])
def test_what_is_no_checksum_is_named(saved: Path, checksum: object) -> None:
    edit(saved, **{CHECKSUM: checksum})
    with pytest.raises(ArrnError, match="weights_sha256 must be 64 hexadecimal digits, got"):
        arrn.load(saved)


class Killed(BaseException):
    """As if the process had been killed."""


def before(classes: int) -> ARRN:
    """A network whose answers, and whose number of classes, tell which one it is."""
    torch.manual_seed(classes)
    return small(num_classes=classes)


@contextlib.contextmanager
def failing_at(step: int, error: BaseException) -> Iterator[list[str]]:
    """The step-th thing that is done to the disk fails, and all after it; tells what was done."""
    done: list[str] = []

    def until(name: str, real: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **named: object) -> object:
            if len(done) >= step:
                raise error
            done.append(name)
            return real(*arguments, **named)

        return call

    with pytest.MonkeyPatch.context() as patched:
        for name in ("fsync", "replace", "unlink", "chmod", "mkdir"):
            patched.setattr(os, name, until(name, getattr(os, name)))
        yield done


FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("error", [FULL, Killed()], ids=["full disk", "killed"])
@pytest.mark.parametrize("fresh", [False, True], ids=["over another", "new folder"])
def test_stopped_anywhere_a_folder_holds_the_network_before_or_the_new_one(
    error: BaseException, fresh: bool, tmp_path: Path
) -> None:
    x = torch.randn(1, 3, 8, 8)
    old, new = before(3).eval(), before(4).eval()
    answers = {3: old(x), 4: new(x)}
    found = []
    for step in range(100):
        folder = tmp_path / str(step)
        if not fresh:
            arrn.save(old, folder)
        finished = False
        with contextlib.suppress(ArrnError, Killed), failing_at(step, error):
            arrn.save(new, folder)
            finished = True
        if (folder / CONFIG).exists() or not fresh:
            loaded = arrn.load(folder)
            assert torch.equal(loaded(x), answers[loaded.num_classes])
            found.append(loaded.num_classes)
        else:
            found.append(0)
        arrn.save(new, folder)
        assert sorted(path.name for path in folder.iterdir()) == [CONFIG, WEIGHTS]
        if finished:
            break
    assert finished
    assert set(found) == {0 if fresh else 3, 4}
    assert found == sorted(found)  # once it is the new one, it stays so
    assert found.count(4) > 2  # some crashes came after the config


def test_a_network_that_is_saved_while_it_is_read_is_read_again(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrn.save(before(4), saved)
    real = arrn.saving.check_weights

    def overtaken(path: Path, checksum: str | None) -> None:
        monkeypatch.setattr("arrn.saving.check_weights", real)
        arrn.save(before(3), saved)
        real(path, checksum)

    monkeypatch.setattr("arrn.saving.check_weights", overtaken)
    assert arrn.load(saved).num_classes == 3


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no processes to fork")
def test_killed_while_saving_again_and_again_a_folder_always_loads(tmp_path: Path) -> None:
    x = torch.randn(1, 3, 8, 8)
    networks = {classes: before(classes).eval() for classes in (3, 4)}
    arrn.save(networks[3], tmp_path)
    moments = random.Random(0)
    for _ in range(12):
        pid = os.fork()
        if pid == 0:
            try:
                while True:
                    for network in networks.values():
                        arrn.save(network, tmp_path)
            finally:
                os._exit(1)
        time.sleep(moments.uniform(0, 0.05))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        loaded = arrn.load(tmp_path)
        assert torch.equal(loaded(x), networks[loaded.num_classes](x))


@pytest.mark.parametrize("name", [WEIGHTS, CONFIG])
@pytest.mark.parametrize("kind", ["a FIFO", "a folder", "a device"])
def test_what_is_no_regular_file_is_refused_at_once(saved: Path, name: str, kind: str) -> None:
    (saved / name).unlink()
    if kind == "a FIFO":
        os.mkfifo(saved / name)
    elif kind == "a folder":
        (saved / name).mkdir()
    else:
        (saved / name).symlink_to("/dev/zero")
    with pytest.raises(ArrnError, match=f"cannot read .*{name}: it is {kind}, and should be a regular file"):
        arrn.load(saved)


def write_weights(saved: Path, tensors: dict[str, torch.Tensor]) -> None:
    safetensors.torch.save_file(tensors, saved / WEIGHTS)
    edit(saved, **{CHECKSUM: None})


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["stem.weight", "base.block.depthwise1_norm.running_var"])
def test_weights_that_are_not_finite_are_refused_by_name(saved: Path, name: str, value: float) -> None:
    tensors = safetensors.torch.load_file(saved / WEIGHTS)
    tensors[name].flatten()[-1] = value
    write_weights(saved, tensors)
    with pytest.raises(ArrnError, match=rf"{name} holds NaN or infinity"):
        arrn.load(saved)


def test_a_network_that_diverged_is_not_saved(tmp_path: Path) -> None:
    model = small()
    with torch.no_grad():
        model.stem.weight[0, 0] = torch.nan
    with pytest.raises(ArrnError, match=r"stem\.weight holds NaN or infinity"):
        arrn.save(model, tmp_path / "model")
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("dtype", [torch.float8_e5m2, torch.complex64, torch.uint16, torch.int64])
def test_numbers_that_no_network_computes_in_are_refused(saved: Path, dtype: torch.dtype) -> None:
    tensors = safetensors.torch.load_file(saved / WEIGHTS)
    shape = tensors["stem.weight"].shape
    write_weights(saved, tensors | {"stem.weight": torch.zeros(shape).to(dtype)})
    with pytest.raises(ArrnError, match=rf"stem.weight is of {dtype}, (which no network|expected torch.float32)"):
        arrn.load(saved)


def test_shapes_are_read_and_compared_before_the_weights_are(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_shapes(saved / WEIGHTS)["stem.weight"] == (4, 3)
    document = read_config(saved)
    document["model"]["options"]["in_channels"] = 5
    (saved / CONFIG).write_text(json.dumps(document))
    monkeypatch.setattr("arrn.saving.read_tensors", lambda path: pytest.fail("the weights were read"))
    with pytest.raises(ArrnError, match=r"stem.weight has shape \(4, 3\), expected \(4, 5\)"):
        arrn.load(saved)
