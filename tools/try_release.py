"""Installs what `make release` built into fresh environments, and tries it as a reader of the README would.

    python tools/try_release.py dist                           # the library, each extra, arrn-runtime
    python tools/try_release.py dist --only train timm         # the library and two trials
    python tools/try_release.py dist --python python3.13       # environments of another Python

PyTorch is installed once, with the wheel alone. Each trial then gets an environment of its own that sees what is in
the first one, so that no extra leans on what another one brought. `executorch` is large: it is tried when it is named.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)

# The extras of an environment, and the commands that are tried there; {here} is the folder that they run in.
TRIALS: dict[str, tuple[str, ...]] = {
    "train": (
        "python readme.py",
        "arrn train sample --epochs 1 --out runs/first",
        "arrn evaluate runs/first --resolutions 16,8",
        "arrn predict weights/arrn_small pictures",
        "arrn figures skipping --out figures",
    ),
    "timm": ("python timm_trial.py",),
    "train,onnx": ("arrn export weights/arrn_small --to onnx --out exported", "arrn predict exported pictures"),
    "serve": ("python serve_trial.py arrn weights/arrn_small",),
    "train,hub": ("arrn publish weights/arrn_small me/small --license mit --out card.md",),
    "stream": ("python stream_trial.py",),
    "cluster": ("python cluster_trial.py",),
    "search": ("arrn sweep sample --trials 1 --p 0.3:0.6 --epochs 1",),
    "train,tensorboard": ("arrn train sample --epochs 1 --tensorboard --out runs/board",),
    "web": ("arrn web weights/arrn_small --out site",),
    "docs": (f"mkdocs build --strict --quiet --config-file {ROOT}/mkdocs.yml --site-dir {{here}}/pages",),
    "train,executorch": ("arrn export weights/arrn_small --to executorch --out executorch",),
}
RUNTIME_TRIALS = (
    "python -c \"import importlib.util as u; assert u.find_spec('torch') is None\"",
    "arrn-runtime predict exported pictures",
    "python serve_trial.py arrn-runtime exported",
)

TIMM_TRIAL = """
import arrn, timm, torch

model = arrn.transplant(timm.create_model("regnety_002"), size=64, num_classes=3).eval()
print(model(torch.rand(1, 3, 20, 20)).shape)
"""
STREAM_TRIAL = """
import functools, http.server, threading
from arrn.data.storage import file_at
import s3fs

handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory="pictures")
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(file_at(f"http://127.0.0.1:{server.server_port}/skipping.png"))
"""
CLUSTER_TRIAL = """
import pathlib, subprocess, sys
import ray

ray.init(num_cpus=1, include_dashboard=False)  # a cluster of its own, which ends with this program
address = ray.get_runtime_context().gcs_address
program = pathlib.Path(sys.executable).with_name("arrn")
command = [program, "reproduce", "robustness", "--dataset", "sample", "--only", "arrn_small", "--epochs", "1"]
subprocess.run([*command, "--cluster", address], check=True)
"""
SERVE_TRIAL = """
import json, pathlib, socket, subprocess, sys, time, urllib.error, urllib.request

with socket.socket() as place:
    place.bind(("127.0.0.1", 0))
    port = place.getsockname()[1]
program = pathlib.Path(sys.executable).with_name(sys.argv[1])
server = subprocess.Popen([program, "serve", sys.argv[2], "--port", str(port)])
try:
    for _ in range(120):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz")
            break
        except OSError:
            time.sleep(0.5)
    content = pathlib.Path("pictures/skipping.png").read_bytes()
    asked = urllib.request.Request(f"http://127.0.0.1:{port}/predict", content, {"Content-Type": "image/png"})
    print(json.load(urllib.request.urlopen(asked)))
finally:
    server.terminate()
    server.wait()
"""


class Environment:
    """A fresh virtual environment; with `below`, one that sees that environment's packages too."""

    def __init__(self, place: Path, python: str, below: Environment | None = None) -> None:
        subprocess.run([python, "-m", "venv", place], check=True)
        self.programs = place / "bin"
        (self.packages,) = place.glob("lib/python*/site-packages")
        if below is not None:
            (self.packages / "below.pth").write_text(f"{below.packages}\n")

    def run(self, command: Sequence[str], folder: Path) -> None:
        """Runs a command of this environment in a folder, with one thread and without the repository on the path.

        Raises:
            SystemExit: where the command fails; its output is shown.
        """
        program = self.programs / command[0]  # not one of that name elsewhere on the path
        kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
        paths = {"PATH": f"{self.programs}{os.pathsep}{kept['PATH']}", "OMP_NUM_THREADS": "1"}
        start = time.monotonic()
        done = subprocess.run(
            [program, *command[1:]], cwd=folder, env=kept | paths, capture_output=True, text=True, check=False
        )
        print(f"  {time.monotonic() - start:4.0f} s  {shlex.join(command)[:110]}", flush=True)
        if done.returncode:
            print(f"{done.stdout}\n{done.stderr}", flush=True)  # before the environments are removed, which takes long
            sys.exit(f"this command failed with code {done.returncode}: {shlex.join(command)}")

    def install(self, *wanted: str) -> None:
        """Installs what pip is given."""
        pip = ["python", "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
        self.run([*pip, *wanted], ROOT)


def prepare(folder: Path, blocks: Sequence[str]) -> None:
    """Puts into a folder what the trials read: the README's code, weights, pictures and small programs."""
    (folder / "pictures").mkdir()
    for name in ("skipping.png", "pyramid.png"):
        shutil.copy(ROOT / "docs" / "images" / name, folder / "pictures")
    (folder / "weights").symlink_to(ROOT / "weights")
    for name, text in {
        "core.py": "\n".join(block for block in blocks if "torchvision" not in block),
        "readme.py": "\n".join(blocks),
        "timm_trial.py": TIMM_TRIAL,
        "stream_trial.py": STREAM_TRIAL,
        "cluster_trial.py": CLUSTER_TRIAL,
        "serve_trial.py": SERVE_TRIAL,
    }.items():
        (folder / name).write_text(text)


def built(dist: Path, pattern: str) -> Path:
    """The one file of that name.

    Raises:
        SystemExit: where there is none, or more than one.
    """
    found = sorted(dist.glob(pattern))
    if len(found) != 1:
        sys.exit(f"{dist} should hold one {pattern}, and holds {len(found)}: run make release")
    return found[0].resolve()


def main() -> None:
    """Tries everything, or what is named, and says what was tried."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dist", type=Path, help="the folder of the wheels")
    parser.add_argument("--only", nargs="*", help=f"these trials: {', '.join([*TRIALS, 'runtime'])}")
    parser.add_argument("--python", default=sys.executable, help="the Python of the environments")
    parser.add_argument(
        "--torch", default=f"-c {ROOT}/constraints.txt torch torchvision", help="what pip is given first"
    )
    parser.add_argument("--work", type=Path, help="where the environments go [default: a folder that is removed]")
    options = parser.parse_args()
    wheel, runtime = built(options.dist, "arrn-*.whl"), built(options.dist, "arrn_runtime-*.whl")
    for pattern in ("arrn-*.tar.gz", "arrn_runtime-*.tar.gz"):
        built(options.dist, pattern)
    usual = [*(name for name in TRIALS if "executorch" not in name), "runtime"]
    wanted = usual if options.only is None else options.only
    if unknown := set(wanted) - {*TRIALS, "runtime"}:
        parser.error(f"no such trial: {', '.join(unknown)}")
    with tempfile.TemporaryDirectory(dir=options.work) as name:
        place = Path(name)
        blocks = BLOCK.findall((ROOT / "README.md").read_text(encoding="utf-8"))
        folder = place / "trial"
        folder.mkdir()
        prepare(folder, blocks)
        print(f"the library alone, {options.python}", flush=True)
        core = Environment(place / "core", options.python)
        core.install(*shlex.split(options.torch))
        core.install(str(wheel))
        core.run(["python", "core.py"], folder)
        for extras in (each for each in TRIALS if each in wanted):
            print(f"[{extras}]", flush=True)
            if extras == "web" and shutil.which("npm") is None:
                print("  npm is not on this machine: not tried")
                continue
            layer = Environment(place / extras.replace(",", "-"), options.python, core)
            layer.install("--no-deps", "--ignore-installed", str(wheel))  # its programs, which start this environment
            layer.install(f"{wheel}[{extras}]")
            for command in TRIALS[extras]:
                layer.run(shlex.split(command.replace("{here}", str(folder))), folder)
        if "runtime" in wanted and "train,onnx" in wanted:
            print("arrn-runtime, without PyTorch", flush=True)
            alone = Environment(place / "runtime", options.python)
            alone.install(f"{runtime}[serve]")
            for command in RUNTIME_TRIALS:
                alone.run(shlex.split(command), folder)
    print("all of it works")


if __name__ == "__main__":
    main()
