"""`arrn serve`: what it refuses to start with, and the program over a saved network."""

import os
import re
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path

import httpx
import pytest

import arrn
from arrn.metadata import Metadata
from arrn.runtime.serving.listening import listen
from arrn.runtime.serving.server_settings import ServerSettings
from commands import QUIET, Command
from pictures import encoded, picture
from saved_networks import small


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "network"
    model = small()
    model.metadata = Metadata((0.5,) * 3, (0.25,) * 3, class_names=("cat", "dog", "bird"))
    arrn.save(model, folder)
    return folder


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--delay", "soon"], "--delay takes a time such as 5ms, 0.5s or 2m, got 'soon'"),
        (["--max-body", "many"], "--max-body takes a size such as 500kB, 32MB or 1GiB, got 'many'"),
        (["--host", "0.0.0.0"], "--host 0.0.0.0 lets other machines connect, and needs a token: give --token-file"),
        (["--batch", "0"], "batch must be a whole number from 1"),
        (["--port", "99999"], "port must be a whole number from 0 to 65,535, got 99999"),
        (["--token-file", "nowhere"], "the token file nowhere cannot be read: No such file or directory"),
        (["--policy", "best"], "unknown policy 'best'"),
        (["--device", "gpu"], "unknown device 'gpu'"),
    ],
)
def test_what_cannot_be_meant_is_told_in_a_line(
    arrn_command: Command, saved: Path, options: list[str], words: str
) -> None:
    assert words in arrn_command("serve", saved, *options, code=2).err


def test_a_folder_without_a_network_is_told(arrn_command: Command, tmp_path: Path) -> None:
    assert str(tmp_path) in arrn_command("serve", tmp_path, code=2).err
    assert "nowhere" in arrn_command("serve", tmp_path / "nowhere", code=2).err


def test_a_port_that_another_program_has_is_told(arrn_command: Command, saved: Path) -> None:
    with listen(ServerSettings(port=0)) as taken:
        port = taken.getsockname()[1]
        assert f"port {port}: Address already in use" in arrn_command("serve", saved, "--port", port, code=2).err


def test_without_its_packages_it_says_which_extra_brings_them(
    arrn_command: Command, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    told = arrn_command("serve", saved, code=2).err
    assert "pip install '.[serve]'" in told


def test_the_program_answers_as_the_network_does_and_ends_well(saved: Path, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("correct-horse-battery\n")
    command = [sys.executable, "-m", "arrn", "serve", str(saved), "--port", "0", "--device", "cpu", "--delay", "2ms"]
    command += ["--token-file", str(token), "--max-files", "8"]
    environment = os.environ | QUIET | {"PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as server:
        watchdog = threading.Timer(120, server.kill)
        watchdog.start()
        assert server.stdout.readline().startswith("Predictor(image, 8 -> 5, exact, 3 classes")
        address = re.match(r"serving on (http://\S+) ", server.stdout.readline())[1]
        headers = {"Authorization": "Bearer correct-horse-battery"}
        contents = [encoded(picture(height, width)) for height, width in ((4, 5), (20, 9), (64, 64))]
        with httpx.Client(base_url=address, headers=headers, trust_env=False, timeout=30) as client:
            told = client.post("/predict", files=[("file", ("x", content)) for content in contents]).json()["results"]
            assert client.post("/predict", files={"file": b"none"}).status_code == 422
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(f"{address}/network", timeout=10)
        server.send_signal(signal.SIGTERM)
        out, err = server.communicate(timeout=30)
        watchdog.cancel()
    assert (server.returncode, out, err) == (0, "stopped\n", "")
    right = arrn.Predictor(saved, device="cpu")(contents, top=3)
    for result, answer in zip(told, right, strict=True):
        given = {each["name"]: each["probability"] for each in result["answer"]["top"]}
        assert given == pytest.approx(dict(answer.top), abs=1e-5)
        assert result["answer"]["grid"] == list(answer.level)
