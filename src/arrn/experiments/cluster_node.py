"""What a machine of a Ray cluster does: it tells what it has, and carries out a run as a process of its own.

Ray sends these functions to the machines as code, because arrn may be missing there. They import the standard library
alone, and must not import anything of arrn.
"""

import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

# Torch is looked for, not imported, which would take seconds.
_ASKED = """
import importlib.util, arrn
for name in ("torch", "typer"):
    if importlib.util.find_spec(name) is None:
        raise ModuleNotFoundError(f"No module named {name!r}")
print(arrn.__version__)
"""
_SECONDS_BETWEEN_LOOKS = 0.2
_SECONDS_TO_STOP = 110.0  # less than the supervisor waits


def look_around(tokens: Sequence[str], folders: Sequence[str], storage: str | None) -> dict[str, Any]:
    """What this machine has of what a run needs.

    Args:
        tokens: files that the supervisor wrote into the folders that all machines must share.
        folders: that are read, such as the root of a data set.
        storage: the address of a file that the supervisor wrote, None where there is no storage.

    Returns:
        host: the machine's name.
        arrn: the version that runs would use; None where there is none.
        problem: why Python does not run arrn here, "" where it does.
        unseen: those of `tokens` that are not there, or whose folders cannot be written to.
        missing: those of `folders` that are not there.
        storage: why the file in the storage cannot be read; "" where it can.
    """
    done = subprocess.run([sys.executable, "-c", _ASKED], capture_output=True, text=True, check=False)
    why = ""
    if storage is not None:
        try:
            import fsspec

            with fsspec.open(storage) as file:
                file.read()
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
    return {
        "host": platform.node(),
        "arrn": done.stdout.strip() or None,
        "problem": done.stderr.strip().rpartition("\n")[2] if done.returncode else "",
        "unseen": [file for file in tokens if not (Path(file).exists() and os.access(Path(file).parent, os.W_OK))],
        "missing": [folder for folder in folders if not Path(folder).exists()],
        "storage": why,
    }


def carry_out(document: str, arguments: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Carries out a run as a process; tells what it says and how it ended.

    Where this function is interrupted, which is how Ray cancels it, the process is asked to stop and waited for.

    Args:
        document: the job's file.
        arguments: of `arrn job`, besides the file.

    Yields:
        ("started", the machine's name), ("said", text) again and again, ("ended", the exit code, negative for a
        signal).
    """
    yield "started", platform.node()
    with tempfile.TemporaryDirectory(prefix="arrn-job-") as folder:
        file, output = Path(folder, "job.json"), Path(folder, "output.txt")
        file.write_text(document, encoding="utf-8")
        with output.open("wb") as sink:
            process = subprocess.Popen(
                [sys.executable, "-m", "arrn", "job", *arguments, str(file)],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env={"OMP_WAIT_POLICY": "passive"} | os.environ,
                start_new_session=True,
            )
        try:
            with output.open(encoding="utf-8", errors="replace") as source:
                running = True
                while running:
                    time.sleep(_SECONDS_BETWEEN_LOOKS)
                    running = process.poll() is None
                    if text := source.read():
                        yield "said", text
            yield "ended", process.returncode
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(_SECONDS_TO_STOP)
                finally:
                    process.kill()
                    process.wait()
