"""The notebooks run from the top, and store what they show."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

for name in ("nbclient", "ipykernel", "matplotlib"):
    pytest.importorskip(name)

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted(ROOT.glob("notebooks/*.ipynb"))


def test_there_are_two() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["make_your_cnn_adaptive", "one_network_any_resolution"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_what_it_stores(path: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "tools" / "run_notebooks.py"), "--check", str(path)]
    environment = os.environ | {"IPYTHONDIR": str(tmp_path), "JUPYTER_RUNTIME_DIR": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_small_and_holds_its_pictures(path: Path) -> None:
    assert path.stat().st_size < 300_000
    cells = json.loads(path.read_text())["cells"]
    outputs = [output for cell in cells if cell["cell_type"] == "code" for output in cell["outputs"]]
    assert sum("image/png" in output.get("data", {}) for output in outputs) >= 2
    assert not any(output["output_type"] == "error" for output in outputs)
    assert "/home/" not in path.read_text()
