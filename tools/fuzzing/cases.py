"""Cases run in forks of a process that has loaded all that they need, with limits on memory and time."""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import torch

from fuzzing.mutations import OUTSIDE
from fuzzing.samples import make_templates
from fuzzing.subjects import TRAINING, USES, Subject, list_subjects
from fuzzing.verdicts import (
    GOOD,
    MEMORY,
    PRECIOUS,
    Verdict,
    contents,
    has_checksum,
    judge,
    look_for_damage,
    read,
    read_json,
)

_TOO_MUCH = 2 << 30  # above the limit: it is killed, lest it takes the machine with it
TEMPLATES = "templates"
_ADDRESSES = 8 << 30  # what a case may map at most: more than the sparse files
SECONDS, ASKED, ASKED_TRAINING = 20.0, 18.0, 9.0  # until it is killed, and until it is asked to stop


def prepare(root: Path) -> list[Subject]:
    """Makes the templates below `root`, loads what their use needs into this process, returns what is to be damaged.

    Everything is used once with nothing broken, in a fork: what does not work then would prove nothing.
    """
    os.environ |= {"MPLCONFIGDIR": str(root / "matplotlib"), "XDG_CACHE_HOME": str(root / "cache")}
    if _in_a_fork(lambda: _use_everything(root))[0]:
        raise SystemExit("fuzz: something does not work with nothing broken")
    for name in json.loads((root / "modules.json").read_text()):
        with contextlib.suppress(Exception):  # some can only be loaded once, or in a certain order
            importlib.import_module(name)
    return list_subjects(root / TEMPLATES)


def _use_everything(root: Path) -> None:
    """Makes the templates, and does everything once, to learn what it loads."""
    make_templates(root / TEMPLATES)
    for subject in list_subjects(root / TEMPLATES):
        for use in subject.uses:
            work = _copy(root, subject)
            os.chdir(work)
            _silently(use)
            os.chdir(root)
            shutil.rmtree(work.parent)
    (root / "modules.json").write_text(json.dumps([name for name in sys.modules if "__main__" not in name]))


def _copy(root: Path, subject: Subject) -> Path:
    """A folder to work in, like the template, beside one that is not to be touched."""
    case = Path(tempfile.mkdtemp(dir=root, prefix="case-"))
    shutil.copytree(root / TEMPLATES / subject.template, case / "work", symlinks=True)
    (case / "outside").mkdir()
    (case / "work" / OUTSIDE).resolve().write_text(PRECIOUS)
    subject.restore(case / "work")
    return case / "work"


class Fuzzer:
    """Runs cases below a folder, in forks of this process.

    Args:
        root: the folder, with the templates.
        seed: that every case depends on.
        subjects: what is damaged.
    """

    def __init__(self, root: Path, seed: int, subjects: Sequence[Subject]) -> None:
        self.root, self.seed, self.subjects = root, seed, subjects
        self.kinds = list(dict.fromkeys(subject.kind for subject in subjects))
        self.pool = [path.read_bytes() for path in sorted((root / TEMPLATES).rglob("*.*")) if path.is_file()]
        self.idle = _in_a_fork(lambda: None)[1]

    def intact(self) -> list[Verdict]:
        """Everything once with nothing broken: what does not work then would prove nothing."""
        cases = [(subject, use) for subject in self.subjects for use in subject.uses]
        return [self._run(subject, use, -1, False, damaged=False) for subject, use in cases]

    def case(self, number: int, keep: Path | None = None, show: bool = False) -> Verdict:
        """One case; a hang is looked at twice, since a disk may have been busy."""
        rng = self._random(number)
        kind = self.kinds[number % len(self.kinds)]
        subject = rng.choice([subject for subject in self.subjects if subject.kind == kind])
        use, repair = rng.choice(subject.uses), rng.random() < 0.5
        found = self._run(subject, use, number, repair, keep=keep, show=show)
        return self._run(subject, use, number, repair, keep=keep, show=show) if found.verdict == "hang" else found

    def _random(self, number: int) -> random.Random:
        return random.Random(f"{self.seed}-{number}")

    def _run(
        self,
        subject: Subject,
        use: str,
        number: int,
        repair: bool,
        *,
        damaged: bool = True,
        keep: Path | None = None,
        show: bool = False,
    ) -> Verdict:
        work = _copy(self.root, subject)
        before = contents(work)
        began = time.monotonic()
        pid = os.fork()
        if pid == 0:
            self._be_the_case(work, subject, use, number, repair, damaged)
        status, usage, asked, seconds = _wait(pid, began, ASKED_TRAINING if use in TRAINING else ASKED)
        memory = (usage.ru_maxrss << 10) - self.idle
        told = read_json(work.parent / "told.json")
        text = read(work.parent / "stdout") + read(work.parent / "stderr")
        verdict, detail, place = judge(work, told, status, asked, text, memory, use)
        if verdict == "works" and subject.kind == "safetensors" and damaged and not repair and told.get("checked"):
            verdict, detail = look_for_damage(work, before)
        if verdict not in GOOD and keep is not None:
            _keep(keep / f"{subject.kind}-{self.seed}-{number}", work, text)
        if show:
            sys.stdout.write(f"{read(work.parent / 'mutation')}\n{text}\n{told.get('traceback', '')}\n")
            sys.stdout.write(read(work.parent / "stack"))
        mutation = read(work.parent / "mutation")
        shutil.rmtree(work.parent, ignore_errors=True)
        return Verdict(
            self.seed, number, subject.kind, use, repair, mutation, verdict, detail, place, round(seconds, 2), memory
        )

    def _be_the_case(
        self, work: Path, subject: Subject, use: str, number: int, repair: bool, damaged: bool
    ) -> NoReturn:
        """In the fork: damages the file, uses it, and tells what came of it."""
        os.setsid()
        os.chdir(work)
        sys.path.insert(0, str(work))  # as it is for whoever starts Python there
        rng = self._random(number)
        rng.random()
        told: dict[str, Any] = {"mutation": "none", "code": None, "outside": []}
        try:
            if damaged:
                told["mutation"] = subject.break_it(work, rng, repair, self.pool)
                (work.parent / "mutation").write_text(told["mutation"], errors="backslashreplace")
            told["checked"] = has_checksum(work)
            _redirect(work.parent)
            _limit()
            patience = ASKED_TRAINING if use in TRAINING else ASKED
            faulthandler.dump_traceback_later(0.95 * patience, file=(work.parent / "stack").open("w"))
            _watch_writes(work, self.root, told["outside"])
            told |= _outcome(use)
        except BaseException:  # the fuzzer's own
            told |= {"broken": traceback.format_exc()}
        finally:
            faulthandler.cancel_dump_traceback_later()
            sys.stdout.flush()
            sys.stderr.flush()
            resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            (work.parent / "told.json").write_text(json.dumps(told))
            os._exit(0)


def _resident(pid: int) -> int:
    """The memory of a process; 0 when it has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return 0


def _in_a_fork(work: Callable[[], None]) -> tuple[int, int]:
    """Does it in a process of its own; returns that one's status and peak memory."""
    pid = os.fork()
    if pid == 0:
        try:
            torch.set_num_threads(1)
            work()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    _, status, usage = os.wait4(pid, 0)
    return status, usage.ru_maxrss << 10


def _silently(use: str) -> None:
    saved, null = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    try:
        USES[use]()
    except SystemExit as ended:
        if ended.code:
            raise RuntimeError(f"{use} ended with {ended.code}") from None
    finally:
        sys.stdout.flush()
        os.dup2(saved, 1)
        os.close(null)


def _redirect(case: Path) -> None:
    for stream, name in ((1, "stdout"), (2, "stderr")):
        file = os.open(case / name, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        os.dup2(file, stream)
        os.close(file)


def _limit() -> None:
    torch.set_num_threads(1)
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    hard = resource.RLIM_INFINITY  # so that the limit can be lifted again, to tell what came of it
    resource.setrlimit(resource.RLIMIT_AS, (mapped + _ADDRESSES, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, 1 << 30))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


_CHANGES = {
    "os.remove": 0,
    "os.rename": 1,
    "os.mkdir": 0,
    "os.rmdir": 0,
    "os.truncate": 0,
    "os.link": 1,
    "os.symlink": 1,
}
_STARTS = ("os.system", "os.exec", "os.posix_spawn", "subprocess.Popen", "socket.connect", "socket.bind")
_OURS = ("git", "ldconfig", "lscpu", "uname", "nvidia-smi")


def _watch_writes(work: Path, root: Path, seen: list[str]) -> None:
    """Notes every file that is changed outside of the case's folder, and every program that is started."""
    inside = tuple(str(path.resolve()) for path in (work, root / "matplotlib", root / "cache", Path("/dev")))

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in ("socket.bind", "socket.connect") and isinstance(arguments[1], str):  # a path, not an address
            return
        if event in _STARTS:
            command = arguments[1] if event == "subprocess.Popen" else arguments
            if not any(name in str(command) for name in _OURS):
                seen.append(f"{event} {command!r:.100}")
            return
        if event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
            flags = arguments[2] if isinstance(arguments[2], int) else 0
            if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC):
                place = os.path.realpath(os.fsdecode(arguments[0]))
            else:
                return
        elif event in _CHANGES and isinstance(arguments[_CHANGES[event]], str | bytes | os.PathLike):
            path = os.path.abspath(os.fsdecode(arguments[_CHANGES[event]]))
            place = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
        else:
            return
        if not place.startswith(inside):
            seen.append(f"{event} {place}")

    sys.addaudithook(hook)


def _outcome(use: str) -> dict[str, Any]:
    """Does what a user does; what came of it, as the command line would have it."""
    from arrn.errors import ArrnError, RunError, plain

    try:
        USES[use]()
    except SystemExit as ended:
        return {"code": ended.code or 0}
    except ArrnError as error:
        sys.stderr.write(f"arrn: {plain(' '.join(str(error).split()))}\n")
        return {"code": 1 if isinstance(error, RunError) else 2}
    except BaseException as error:
        frames = traceback.extract_tb(error.__traceback__)
        ours = [frame for frame in frames if f"{os.sep}arrn{os.sep}" in frame.filename]
        last = (ours or frames)[-1]
        place = f"{last.filename.partition(f'src{os.sep}')[2] or last.filename}:{last.lineno}"
        line = " ".join(traceback.format_exception_only(error)[-1].split())
        return {"error": line[:300], "place": place, "traceback": "".join(traceback.format_exception(error))[-6000:]}
    return {"code": 0}


def _kept_waiting(pid: int) -> float:
    """Seconds for which a process was ready to run while the processors did something else."""
    waited = [0]
    with contextlib.suppress(OSError, ValueError, IndexError):
        waited += [int(path.read_text().split()[1]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    return max(waited) / 1e9


def _wait(pid: int, began: float, patience: float) -> tuple[int, resource.struct_rusage, bool, float]:
    """Waits for a case, asks it to stop, kills it; its status, what it used, whether it had to be asked, its seconds.

    What it waited for a processor does not count: the machine may be busy with something else.
    """
    asked, waited = False, 0.0
    while True:
        found, status, usage = os.wait4(pid, os.WNOHANG)
        if found:
            break
        waited = max(waited, _kept_waiting(pid))
        took = time.monotonic() - began - waited
        if took > SECONDS or _resident(pid) > MEMORY + _TOO_MUCH:
            os.killpg(pid, signal.SIGKILL)
        elif took > patience and not asked:
            os.kill(pid, signal.SIGTERM)
            asked = True
        time.sleep(0.002 if took < 1 else 0.02)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)  # what it may have left behind
    return status, usage, asked, time.monotonic() - began - waited


def _keep(target: Path, work: Path, text: str) -> None:
    """Leaves the files of a case that failed, but for those that are no files."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    (target / "output.txt").write_text(text)
    for path in work.rglob("*"):
        if path.is_file() and not path.is_symlink() and path.stat().st_size < 1 << 24:
            place = target / path.relative_to(work)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, place)
