"""The package around the library: what an import loads, what a wheel holds, what the docs promise."""

import importlib.util
import operator
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch

import arrn
from arrn.benchmarks.ways import can_compile

ROOT = Path(__file__).parents[1]


def run_python(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ | environment
    )
    return done.stdout


def test_the_core_loads_torch_alone() -> None:
    heavy = {
        "torchvision",
        "typer",
        "click",
        "rich",
        "matplotlib",
        "pyarrow",
        "PIL",
        "scipy",
        "safetensors",
        "timm",
        "onnx",
    }
    loaded = run_python("import sys, arrn.signal, arrn.nn; print(*sys.modules)").split()
    assert "torch" in loaded
    assert not heavy & {name.partition(".")[0] for name in loaded}
    assert "torch" not in run_python("import sys, arrn; print(*sys.modules)").split()


def test_every_public_name_is_there() -> None:
    for name in arrn.__all__:
        assert getattr(arrn, name) is not None
    assert set(arrn.__all__) <= set(dir(arrn))
    assert re.fullmatch(r"\d+\.\d+\.\d+", arrn.__version__)
    with pytest.raises(AttributeError, match="no attribute 'resnet'"):
        operator.attrgetter("resnet")(arrn)


def test_the_wheel_installs_and_imports(tmp_path: Path) -> None:
    pytest.importorskip("hatchling")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    wheel = [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path), str(ROOT)]
    subprocess.run(wheel, check=True, capture_output=True)
    (built,) = tmp_path.glob("arrn-*.whl")
    assert built.name.startswith(f"arrn-{arrn.__version__}-")
    names = zipfile.ZipFile(built).namelist()
    assert "arrn/py.typed" in names
    assert not [name for name in names if name.startswith(("tests", "benchmarks"))]
    target = tmp_path / "site"
    subprocess.run([*pip, "install", "--no-deps", "--target", str(target), str(built)], check=True, capture_output=True)
    code = "import arrn; arrn.create_model('arrn', sizes=(8, 4), features=(4, 4)); print(arrn.__file__)"
    assert str(target) in run_python(code, PYTHONPATH=str(target))


@pytest.mark.filterwarnings("ignore")  # compilers warn about their own insides
@pytest.mark.parametrize("page", ["README.md", "docs/deploying.md"])
def test_the_examples_of_a_page_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # they write; what they read is as in a checkout
    (tmp_path / "weights").symlink_to(ROOT / "weights")
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)
    assert blocks
    if not can_compile(torch.device("cpu")):
        blocks = [block for block in blocks if "Frozen" not in block]
    if importlib.util.find_spec("onnxscript") is None:
        blocks = [block for block in blocks if "onnx" not in block]
    for block in blocks:
        exec(compile(block, page, "exec"), {})


def test_no_drawers_and_no_layer_depends_on_a_later_one() -> None:
    layers = [
        *("errors", "writing", "teamwork", "signal", "metadata", "gpu", "nn", "testing", "models"),
        *("saving", "data", "timing", "provenance", "training", "evaluation", "runs", "experiments", "figures"),
        *("benchmarks", "demo", "cli"),
    ]
    package = ROOT / "src" / "arrn"
    assert {p.stem for p in package.iterdir() if not p.name.startswith(("_", "py.typed"))} == set(layers)
    for path in package.rglob("*.py"):
        assert path.stem not in {"utils", "helpers", "misc", "common"}
        place = path.relative_to(package).parts[0].removesuffix(".py")
        if place not in layers:
            continue
        # Imports at the top of a file; what a function imports when called is its own affair.
        for name in re.findall(r"^from arrn\.(\w+)", path.read_text(), flags=re.MULTILINE):
            assert layers.index(name) <= layers.index(place), f"{path} imports arrn.{name}"
