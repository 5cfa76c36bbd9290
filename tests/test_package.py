"""The package around the library: what an import loads, what a wheel holds, what the docs promise."""

import ast
import importlib.util
import operator
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
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
    assert {"arrn/py.typed", "arrn/web/page/index.html", "arrn/web/runtime_license.txt"} <= set(names)
    assert not [name for name in names if name.startswith(("tests", "benchmarks"))]
    target = tmp_path / "site"
    subprocess.run([*pip, "install", "--no-deps", "--target", str(target), str(built)], check=True, capture_output=True)
    code = "import arrn; arrn.create_model('arrn', sizes=(8, 4), features=(4, 4)); print(arrn.__file__)"
    assert str(target) in run_python(code, PYTHONPATH=str(target))


@pytest.mark.filterwarnings("ignore")  # compilers warn about their own insides
@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "docs/get_started.md",
        "docs/inference.md",
        "docs/exporting.md",
        "docs/rectangles.md",
        "docs/backbone.md",
    ],
)
def test_the_examples_of_a_page_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # they write; what they read is as in a checkout
    (tmp_path / "weights").symlink_to(ROOT / "weights")
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)
    assert blocks
    if not can_compile(torch.device("cpu")):
        blocks = [block for block in blocks if "Frozen" not in block]
    if importlib.util.find_spec("onnxscript") is None:
        blocks = [block for block in blocks if "onnx" not in block]
    if importlib.util.find_spec("segmentation_models_pytorch") is None:
        blocks = [block for block in blocks if "segmentation_models_pytorch" not in block]
    for block in blocks:
        exec(compile(block, page, "exec"), {})


# From the ground up: a floor imports those before it.
FLOORS = [
    *("errors", "malloc", "memory", "datasets", "reading", "runtime", "writing", "teamwork", "signal", "metadata"),
    *("gpu", "nn", "testing", "models", "model_folder", "hub", "saving", "creating", "data", "timing", "provenance"),
    *(
        "training",
        "watching",
        "evaluation",
        "runs",
        "deploy",
        "experiments",
        "pages",
        "web",
        "figures",
        "benchmarks",
        "demo",
    ),
    "cli",
]
PACKAGE = ROOT / "src" / "arrn"
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if not path.name.startswith("__"))


def imported_names(path: Path, root: Path = PACKAGE) -> Iterator[str]:
    """The dotted names that a file imports, anywhere in it."""
    package = ("arrn", *path.relative_to(root).parent.parts)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            start = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{start}.{alias.name}" for alias in node.names)


def test_all_forms_of_import_are_seen(tmp_path: Path) -> None:
    path = tmp_path / "nn" / "x.py"
    path.parent.mkdir()
    path.write_text("import arrn.cli\nfrom arrn import demo\ndef f():\n from ..figures import g\n from . import h\n")
    assert list(imported_names(path, tmp_path)) == ["arrn.cli", "arrn.demo", "arrn.figures.g", "arrn.nn.h"]


def test_no_floor_depends_on_a_higher_one() -> None:
    assert {p.stem for p in PACKAGE.iterdir() if not p.name.startswith(("_", "py.typed"))} == set(FLOORS)
    for path in sorted(PACKAGE.rglob("*.py")):
        place = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if place not in FLOORS:  # the package itself, which loads names when they are first used
            continue
        for name in imported_names(path):
            if name.startswith("arrn.") and name != "arrn.__version__":
                floor = name.split(".")[1]
                assert FLOORS.index(floor) <= FLOORS.index(place), f"{path} imports {name}"


def test_prediction_needs_neither_torch_nor_the_rest_of_the_library() -> None:
    # The package is shipped by itself under another name, with `errors` and `reading` beside it.
    for path in sorted((PACKAGE / "runtime").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level == len(path.relative_to(PACKAGE).parts):
                assert node.module in {"errors", "reading"}, path
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            for name in names:
                assert name.partition(".")[0] not in {"arrn", "torch", "torchvision", "safetensors"}, f"{path}: {name}"
    assert "torch" not in run_python("import sys, arrn.runtime; print(*sys.modules)").split()


def test_every_module_is_a_topic_of_some_size() -> None:
    for path in MODULES:
        assert path.stem not in {"utils", "helpers", "misc", "common"}
        assert 30 <= len(path.read_text().splitlines()) <= 430, path


def test_file_names_tell_modules_apart() -> None:
    # These show or measure what others do, and are called after it: `figures/pyramid.py` draws `signal/pyramid.py`.
    named_after_others = {"cli", "figures", "benchmarks", "demo"}
    names = [path.name for path in MODULES if path.relative_to(PACKAGE).parts[0] not in named_after_others]
    assert not {name for name in names if names.count(name) > 1}
