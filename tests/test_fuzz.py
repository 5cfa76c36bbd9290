"""A few cases of the fuzzer, always the same; and that it notices what it is there for."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[1] / "tools"
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits and peak memory are Linux's")

# Each use does what a damaged file should not make it do.
BAD_USES = """
import os, pickle, resource, subprocess, sys, time, warnings
from pathlib import Path

sys.path.insert(0, sys.argv[1])
from fuzzing import cases, mutations, subjects

def traceback(): [][0]
def crash(): os.abort()
def hang(): time.sleep(60)
def memory(): len(b"x" * (9 << 28))
def escape(): print(Path("file.txt").read_text())
def outside(): Path(mutations.OUTSIDE).write_text("mine now")
def program(): subprocess.run(["true"])
def code(): pickle.loads(mutations.PICKLED)
def untidy(): warnings.warn("in the user's way", RuntimeWarning)
def silent(): sys.exit(2)
def unnoticed(): print("UNNOTICED: weights that are not finite")
def refused(): sys.stderr.write("arrn: file.txt is not a file of ours\\n"); sys.exit(2)
def works(): print("well")

uses = [traceback, crash, hang, memory, escape, outside, program, code, untidy, silent, unnoticed, refused, works]
subjects.USES.update({use.__name__: use for use in uses})
root = Path(sys.argv[2])
(root / cases.TEMPLATES / "text").mkdir(parents=True)
(root / cases.TEMPLATES / "text" / "file.txt").write_text("text")
damage = lambda data, rng, repair, other: (b"\\x1b[31m", "an escape")
told = {}
for use in uses:
    cases.ASKED, cases.SECONDS = (1.0, 2.0) if use is hang else (100.0, 120.0)
    subject = subjects.Subject("text", "text", "file.txt", damage, (use.__name__,))
    verdict = cases.Fuzzer(root, 1, [subject]).case(1)
    told[use.__name__] = verdict.verdict
import json; print(json.dumps(told))
"""


def _run(*command: object) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    return subprocess.run(
        [sys.executable, *map(str, command)], capture_output=True, text=True, env=environment, check=False
    )


def test_damaged_files_work_or_are_refused_in_one_line(tmp_path: Path) -> None:
    done = _run(TOOLS / "fuzz.py", "--cases", 58, "--seed", 23, "--out", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "58 cases of seed 23" in done.stdout
    assert not list(tmp_path.glob("*/output.txt"))  # what failed would lie here


def test_the_fuzzer_notices_what_goes_wrong(tmp_path: Path) -> None:
    done = _run("-c", BAD_USES, TOOLS, tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {
        **{name: name for name in ("traceback", "crash", "hang", "memory", "escape", "outside", "untidy")},
        "program": "outside",
        "code": "code run",
        "silent": "untidy",
        **{name: name for name in ("unnoticed", "refused", "works")},
    }
