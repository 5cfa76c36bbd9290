"""`arrn-runtime`, built and installed where there is no torch: it predicts and serves as this library does."""

import importlib.metadata
import json
import os
import re
import signal
import subprocess
import sys
import tomllib
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest
import torch
from packaging.requirements import Requirement
from PIL import Image

import arrn
from arrn.errors import missing_package
from arrn.metadata import Metadata
from arrn.testing import awaken_norms
from commands import QUIET
from pictures import encoded, picture

pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")
pytest.importorskip("hatchling")

from arrn.deploy import export_network

RUNTIME = Path(__file__).parents[2] / "runtime"
PIP = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
SIZES = [(16, 16), (3, 5), (40, 7), (8, 8), (5, 4)]


def requirements(wanted: Sequence[Requirement]) -> set[str]:
    """The names of distributions that these need, with all that those need."""
    found: set[str] = set()
    waiting = list(wanted)
    while waiting:
        requirement = waiting.pop()
        if requirement.name in found or not (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
            continue
        found.add(requirement.name)
        waiting += [Requirement(text) for text in importlib.metadata.requires(requirement.name) or []]
    return found


def make_environment(place: Path, wheel: Path, extra: str = "") -> Path:
    """A virtual environment with the wheel and what it needs, linked from this one; the folder of its programs."""
    venv.create(place, symlinks=True)
    (site,) = place.glob("lib/python*/site-packages")
    metadata = zipfile.ZipFile(wheel).read("arrn_runtime-" + arrn.__version__ + ".dist-info/METADATA").decode()
    declared = [Requirement(line) for line in re.findall("^Requires-Dist: (.*)$", metadata, re.MULTILINE)]
    taken = [each for each in declared if each.marker is None or (extra and each.marker.evaluate({"extra": extra}))]
    for each in taken:
        each.marker = None
    for name in requirements(taken):
        distribution = importlib.metadata.distribution(name)
        tops = {file.parts[0] for file in distribution.files or [] if file.parts[0] not in ("..", "__pycache__")}
        for top in tops:
            if not (site / top).exists():
                (site / top).symlink_to(distribution.locate_file(top))
    command = [*PIP, "--python", str(place / "bin/python"), "install", "--no-index", "--no-deps", str(wheel)]
    subprocess.run(command, check=True, capture_output=True)
    return place / "bin"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("wheel")
    build = [*PIP, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(place), str(RUNTIME)]
    subprocess.run(build, check=True, capture_output=True)
    (built,) = place.glob("arrn_runtime-*.whl")
    return built


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_environment(tmp_path_factory.mktemp("environment"), wheel)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network in "saved", its export in "out", and pictures of mixed sizes."""
    place = tmp_path_factory.mktemp("network")
    torch.manual_seed(0)
    model = arrn.create_model("arrn", sizes=(16, 8, 4), features=(4, 6, 8), depth=1, num_classes=3)
    awaken_norms(model, torch.randn(6, 3, 16, 16))
    arrn.save(model, place / "saved", Metadata((0.4,) * 3, (0.25,) * 3, class_names=("ant", "bee", "cat")))
    export_network(place / "saved", place / "out")
    for seed, (height, width) in enumerate(SIZES):
        Image.fromarray(picture(height, width, seed)).save(place / f"{seed}.png")
    return place


def run(program: Path, *arguments: object, cwd: Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | QUIET
    done = subprocess.run(
        [program, *map(str, arguments)], capture_output=True, encoding="utf-8", env=environment, cwd=cwd, check=False
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done


def test_the_wheel_is_of_this_version_and_holds_its_own_code_alone(wheel: Path) -> None:
    assert wheel.name == f"arrn_runtime-{arrn.__version__}-py3-none-any.whl"
    names = zipfile.ZipFile(wheel).namelist()
    assert {"arrn_runtime/runtime/onnx_engine.py", "arrn_runtime/errors.py", "arrn_runtime/LICENSE"} <= set(names)
    assert not [name for name in names if name.startswith("arrn/") or "__pycache__" in name]
    both = [tomllib.loads((RUNTIME / path).read_text())["project"] for path in ("pyproject.toml", "../pyproject.toml")]
    small, large = (project["optional-dependencies"]["serve"] for project in both)
    assert small == [text for text in large if not text.startswith("arrn")]


def test_it_answers_as_this_library_does_without_torch(programs: Path, folder: Path) -> None:
    code = """
import json
from concurrent.futures import ThreadPoolExecutor
import numpy as np
from PIL import Image
for package in ("torch", "arrn"):
    try:
        __import__(package)
    except ModuleNotFoundError:
        continue
    raise SystemExit(f"{package} is there")
import arrn_runtime
files = [f"{n}.png" for n in range(5)]
predictor = arrn_runtime.Predictor("out")
with ThreadPoolExecutor(4) as pool:
    found = list(pool.map(lambda _: predictor(files, top=3), range(8)))
assert all([a.top[0][0] for a in one] == [a.top[0][0] for a in found[0]] for one in found)
arrays = predictor([np.asarray(Image.open(file)) for file in files], top=3)
assert [a.top for a in arrays] == [a.top for a in predictor(files, top=3)]
print(json.dumps([[dict(a.top), a.level, a.size] for a in arrays]))
"""
    told = json.loads(run(programs / "python", "-I", "-c", code, cwd=folder).stdout)
    expected = arrn.Predictor(folder / "saved", device="cpu")([folder / f"{n}.png" for n in range(5)], top=3)
    for (top, level, size), answer in zip(told, expected, strict=True):
        assert top == pytest.approx(dict(answer.top), abs=1e-5)
        assert (tuple(level), tuple(size)) == (answer.level, answer.size)


def test_its_command_tells_what_is_in_files(programs: Path, folder: Path) -> None:
    command = programs / "arrn-runtime"
    lines = run(command, "predict", "out", "*.png", "--top", "2", cwd=folder).stdout.splitlines()
    assert [line.partition(": ")[0] for line in lines] == [
        "0.png (16x16, level 16)",
        "1.png (3x5, level 8)",
        "2.png (40x7, level 16)",
        "3.png (8x8, level 8)",
        "4.png (5x4, level 8)",
    ]
    done = run(command, "predict", "out", "0.png", "no.png", "--json", cwd=folder, code=2)
    answers = json.loads(done.stdout)["answers"]
    assert answers[0]["class"] in {"ant", "bee", "cat"}
    assert answers[1] == {"file": "no.png", "error": "no such file"}
    assert done.stderr == "arrn-runtime: 1 of 2 files could not be read\n"
    for arguments, words in {
        ("predict", "saved", "0.png"): "saved holds no manifest.json: give a folder that `arrn export` made",
        ("predict", "out", "0.png", "--int8"): "holds no 8-bit files",
        ("predict", "out", "0.png", "--policy", "best"): "unknown policy 'best'",
        ("predict", "out"): "the following arguments are required: inputs",
        (
            "serve",
            "out",
        ): "needs fastapi, uvicorn, python-multipart and prometheus-client: pip install 'arrn-runtime[serve]'",
    }.items():
        error = run(command, *arguments, cwd=folder, code=2).stderr
        assert error.startswith("arrn-runtime: ")
        assert words in error
        assert error.count("\n") == 1


@pytest.mark.slow
def test_it_serves(wheel: Path, folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("uvicorn")
    programs = make_environment(tmp_path / "environment", wheel, extra="serve")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | QUIET
    server = subprocess.Popen(
        [programs / "arrn-runtime", "serve", "out", "--port", "0", "--threads", "1"],
        cwd=folder,
        stdout=subprocess.PIPE,
        encoding="utf-8",
        env=environment,
    )
    try:
        assert server.stdout is not None
        address = re.findall(r"http://\S+", server.stdout.readline())[0]
        (expected,) = arrn.Predictor(folder / "saved", device="cpu")([picture(9, 11)])
        answer = httpx.post(
            f"{address}/predict", content=encoded(picture(9, 11)), headers={"Content-Type": "image/png"}
        )
        assert answer.status_code == 200, answer.text
        assert expected.name in answer.text
        server.send_signal(signal.SIGTERM)
        assert server.wait(30) == 0
    finally:
        server.kill()
        server.communicate()  # which closes the pipe


def test_messages_name_packages_and_no_clone(programs: Path, folder: Path) -> None:
    code = "from arrn_runtime.errors import missing_package; print(missing_package('this', 'numpy', 'onnx'))"
    assert run(programs / "python", "-I", "-c", code, cwd=folder).stdout == "this needs numpy: pip install 'numpy'\n"
    assert "pip install '.[onnx]'" in str(missing_package("this", "numpy", "onnx"))
