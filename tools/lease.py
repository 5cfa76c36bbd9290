"""Runs a queue of commands on a GPU machine that is lent for minutes and reached by a few calls (docs/notes/leases.md).

    python tools/lease.py pack carry cifar10=~/sets/cifar10     # at home: data sets in pieces, a folder a call
    python3 tools/lease.py call carry/1 --queue QUEUE --wait 20  # there, again and again; results go to $OUT
    python tools/lease.py collect lease.tar.gz --into runs/lease # at home: what came back, as files and as a table

A line of a queue has four columns with tabs between: a name, how many of the places it takes (or "all"), about how many
minutes it takes, and a command of the shell. Commands start in this order, as places get free. One that would not end
in time is passed over, one whose data set (any $DATA/NAME in it) has not all come waits, one that fails is tried once
more. The variables of a command: ARRN, DATA, RUNS, RESULTS, KEEP (what comes back), SOURCE (src/, tests/, tools/ and
docs/notes/ of the checkout), KNOWN (its results/) and TO (options of `arrn reproduce`). On the lent machine this needs
nothing but what `arrn` needs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
HOME = Path(os.environ.get("LEASE_HOME", "/tmp/lease"))
MIB = 2**20
LARGEST = 15 * MIB  # of a file that comes back
A_CALL = 63.5 * MIB  # that travels: the checkout, and a folder of pieces
CONTENTS = "contents.json"  # of data/: by data set, its files and their sizes
ARCHIVE, LEFT = "lease.tar.gz", "left.tsv"
ENDED = ("done", "failed", "no time")


@dataclass
class Job:
    """A line of the queue, and how far it is: waiting, running, or one of `ENDED`."""

    name: str
    places: int
    minutes: float
    command: str
    state: str = "waiting"
    tries: int = 0
    started: float = 0.0
    seconds: float = 0.0

    @property
    def log(self) -> Path:
        """What its command says."""
        return HOME / "logs" / f"{self.name}.txt"


def read_queue(text: str, places: int) -> list[Job]:
    """The jobs of a queue; "all" places are as many as there are."""
    jobs = []
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        columns = line.split("\t")
        if len(columns) != 4:
            sys.exit(f"a line of a queue has 4 columns with tabs between, got {len(columns)}: {line!r:.80}")
        name, taken, minutes, command = columns
        jobs.append(Job(name, places if taken == "all" else min(int(taken), places), float(minutes), command))
    return jobs


# At home, before: data sets in pieces.


def room_beside_the_checkout() -> int:
    """Bytes that a call has room for beside the files that git tracks or does not ignore, as a tar file has them."""
    asked = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split("\0")
    files = [ROOT / name for name in names if name and (ROOT / name).is_file()]
    return int(A_CALL) - sum(512 * (2 + file.stat().st_size // 512) for file in files)


def pack(folder: Path, sets: Mapping[str, Path], most: int) -> list[Path]:
    """Writes data sets into folders 1, 2, ... of at most `most` bytes below `folder`; large files are cut."""
    shutil.rmtree(folder, ignore_errors=True)
    contents = {
        name: {file.name: file.stat().st_size for file in sorted(root.iterdir())} for name, root in sets.items()
    }
    call, room = 0, 0
    for name, root in sets.items():
        for file, size in contents[name].items():
            with (root / file).open("rb") as source:
                while source.tell() < size:
                    if not room:
                        call, room = call + 1, most
                    place = folder / str(call) / name
                    place.mkdir(parents=True, exist_ok=True)
                    piece = source.read(room)
                    (place / f"{file}@{source.tell() - len(piece)}").write_bytes(piece)
                    room -= len(piece)
    (folder / "1" / CONTENTS).write_text(json.dumps(contents))
    return [folder / str(n + 1) for n in range(call)]


# On the lent machine: what comes, the worker, what goes back.


def unpack(folder: Path) -> None:
    """Puts the pieces of a call together; a file has its name as soon as it is whole."""
    data = HOME / "data"
    if (folder / CONTENTS).exists():
        _write(data / CONTENTS, _read(data / CONTENTS, {}) | json.loads((folder / CONTENTS).read_text()))
    for source in sorted(folder.rglob("*@*")):
        name, _, offset = source.name.rpartition("@")
        whole = data / source.parent.name / name
        partial = whole.with_name(f"{name}.part")
        partial.parent.mkdir(parents=True, exist_ok=True)
        has = partial.stat().st_size if partial.exists() else 0
        if whole.exists() or int(offset) < has:  # a call that was made twice
            continue
        if int(offset) > has:
            sys.exit(f"{source} follows {has} bytes, not {offset}: the calls come in the order of their folders")
        with partial.open("ab") as file:
            file.write(source.read_bytes())
        if partial.stat().st_size == _read(data / CONTENTS, {})[source.parent.name][name]:
            partial.rename(whole)


def is_there(command: str) -> bool:
    """Whether every data set that a command names has come."""
    contents = _read(HOME / "data" / CONTENTS, {})
    wanted = re.findall(r"\$DATA/(\w+)", command)
    return all(
        name in contents and all((HOME / "data" / name / file).exists() for file in contents[name]) for name in wanted
    )


def environment(source: Path) -> dict[str, str]:
    """The variables of a command."""
    settings = _read(HOME / "settings.json", {})
    places = {name: str(HOME / name.lower()) for name in ("DATA", "RUNS", "RESULTS", "KEEP")}
    return {
        **os.environ,
        **places,
        "PYTHONPATH": str(source / "src"),
        "SOURCE": str(source),
        "KNOWN": str(source / "results"),
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "2"),
        "OMP_WAIT_POLICY": "passive",
        "ARRN": f"{sys.executable} -m arrn",
        "ARRN_COMMIT": settings["commit"],
        "DEVICE": settings["device"],
        # Checkpoints are for second tries only, and those of large networks take seconds.
        "TO": f"--device {settings['device']} --checkpoint-every 20 --out {places['RUNS']}/reproduce "
        f"--results {places['RESULTS']}",
    }


def work() -> None:
    """Carries out the queue until nothing of it waits or runs; the state is in a file, so a later worker goes on."""
    running: dict[str, subprocess.Popen[bytes]] = {}
    jobs = {line["name"]: Job(**line) for line in _read(HOME / "state.json", [])}
    for job in jobs.values():
        job.state = "waiting" if job.state == "running" else job.state
    while True:
        settings = _read(HOME / "settings.json", {})
        queue = read_queue((HOME / "queue.tsv").read_text(), settings["places"])
        ended = {name: job for name, job in jobs.items() if job.state not in ("waiting", "no time")}
        waiting = [job for job in queue if job.name not in ended]  # a new queue takes the place of the old one
        for job in waiting:
            job.tries = jobs[job.name].tries if job.name in jobs else 0
        jobs = ended | {job.name: job for job in waiting}
        for name, process in list(running.items()):
            jobs[name].seconds = round(time.time() - jobs[name].started, 1)
            if (code := process.poll()) is not None:
                again = code != 0 and jobs[name].tries < 2
                jobs[name].state = "done" if code == 0 else "waiting" if again else "failed"
                del running[name]
        free = settings["places"] - sum(jobs[name].places for name in running)
        for job in jobs.values():
            late = time.time() + 60 * job.minutes > settings["deadline"]
            if job.state != "waiting" or not (late or is_there(job.command)):
                continue
            if late:
                job.state = "no time"
            elif job.places > free:
                break
            else:
                running[job.name] = _start(job, settings)
                free -= job.places
        _write(HOME / "state.json", [asdict(job) for job in jobs.values()])
        if not running and all(job.state in ENDED for job in jobs.values()):
            return
        time.sleep(0.3)


def _start(job: Job, settings: Mapping[str, Any]) -> subprocess.Popen[bytes]:
    job.state, job.started, job.tries = "running", time.time(), job.tries + 1
    job.log.parent.mkdir(exist_ok=True)
    with job.log.open("ab") as log:
        return subprocess.Popen(
            ["bash", "-c", job.command],
            cwd=HOME,
            env=environment(Path(settings["source"])),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def call(args: argparse.Namespace) -> None:
    """One call: takes what came with it, sees to it that a worker is at work, waits, and gives back what there is."""
    for name in ("data", "runs", "results", "keep", "logs"):
        (HOME / name).mkdir(parents=True, exist_ok=True)
    unpack(args.folder)
    settings = {"deadline": time.time() + 60 * args.minutes} | _read(HOME / "settings.json", {})
    # A copy of the source for this call: runs that began before go on with theirs.
    settings |= {"source": str(HOME / f"source-{time.time_ns()}"), "places": args.places, "device": args.device}
    settings |= {"commit": args.commit}
    for name in ("src", "results", "tests", "tools", "docs/notes"):
        shutil.copytree(ROOT / name, Path(settings["source"], name))
    for name in ("conftest.py", "pyproject.toml"):
        shutil.copy(ROOT / name, settings["source"])
    _write(HOME / "settings.json", settings)
    if args.queue is not None:
        read_queue(args.queue.read_text(), args.places)  # refuses what the worker could not read
        _replace(HOME / "queue.tsv", args.queue.read_text())
    if not (HOME / "queue.tsv").exists():
        _replace(HOME / "queue.tsv", "")
    worker = _worker_at_work() or _start_worker(args.mps)
    until = time.time() + args.wait
    while time.time() < until and Path(f"/proc/{worker}").exists():
        time.sleep(0.5)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(worker, os.WNOHANG)
    report()


def _worker_at_work() -> int | None:
    process = _read(HOME / "worker.json", None)
    try:
        arguments = Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return None
    return process if b"lease" in arguments and b"work" in arguments else None


def _start_worker(mps: bool) -> int:
    shutil.copy(__file__, HOME / "lease.py")
    variables = os.environ | {"LEASE_HOME": str(HOME)}
    server = shutil.which("nvidia-cuda-mps-control") if mps else None
    if server is not None:  # several processes then run their kernels at the same time
        variables |= {"CUDA_MPS_PIPE_DIRECTORY": f"{HOME}/mps", "CUDA_MPS_LOG_DIRECTORY": f"{HOME}/mps-log"}
        (HOME / "mps").mkdir(exist_ok=True)
        (HOME / "mps-log").mkdir(exist_ok=True)
        subprocess.run([server, "-d"], env=variables, start_new_session=True, check=False)  # says so if one is there
    with (HOME / "worker.txt").open("ab") as log:
        worker = subprocess.Popen(
            [sys.executable, str(HOME / "lease.py"), "work"],
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # lives on after this call
        )
    _write(HOME / "worker.json", worker.pid)
    return worker.pid


def report() -> None:
    """Prints how far everything is; what shall come back goes to $OUT: an archive, and large files beside it."""
    settings = _read(HOME / "settings.json", {})
    for job in (Job(**line) for line in _read(HOME / "state.json", [])):
        state = job.state
        if state == "waiting" and not is_there(job.command):
            state = "waits for data"
        print(f"{job.name:34s} {state:14s} {job.seconds / 60:5.1f} of about {job.minutes:g} minutes", end="")
        print(f"; tries: {job.tries}; {_last_line(job.log)}" if state == "failed" or job.tries > 1 else "")
    for log in sorted((HOME / "runs").rglob("log.jsonl")):
        if time.time() - log.stat().st_mtime < 120:
            print(f"  {log.parent.name}: {_last_line(log)}")
    print(
        f"{(settings['deadline'] - time.time()) / 60:.1f} minutes are left; worker: {_last_line(HOME / 'worker.txt')}"
    )
    if shutil.which("nvidia-smi"):
        asked = "--query-gpu=utilization.gpu,memory.used"
        subprocess.run(["nvidia-smi", asked, "--format=csv,noheader"], check=False)
    out = Path(os.environ["OUT"])
    kept = [file for file in sorted((HOME / "keep").rglob("*")) if file.is_file()]
    large = [file for file in kept if file.stat().st_size > MIB]
    with tarfile.open(out / ARCHIVE, "w:gz") as archive:
        results = sorted([*HOME.glob("results/*/*.json"), *HOME.glob("runs/*/results/*/*.json")])  # of sweeps too
        for file in [*results, *(file for file in kept if file not in large)]:
            archive.add(file, file.relative_to(HOME))
        for file in [*sorted((HOME / "logs").iterdir()), HOME / "worker.txt", HOME / "state.json"]:
            if file.exists():
                archive.add(file, file.relative_to(HOME))
    for file in large:
        if file.stat().st_size > LARGEST:
            print(f"{file.name} has {file.stat().st_size / MIB:.1f} MiB, which is too large to come back")
        else:
            shutil.copy(file, out / file.name)


# At home, after.


def collect(archive: Path, folder: Path) -> None:
    """Unpacks what came back; prints the accuracies of its results and evaluations, in percent; writes what is left."""
    with tarfile.open(archive) as content:
        content.extractall(folder, filter="data")
    for path in sorted(folder.rglob("*.json")):
        found = dict(_accuracies(json.loads(path.read_text())))
        if found:
            shown = " ".join(f"{size}:{100 * value:.1f}" for size, value in sorted(found.items(), reverse=True))
            print(f"{path.relative_to(folder)}  {shown}  mean {100 * sum(found.values()) / len(found):.2f}")
    jobs = [Job(**line) for line in _read(folder / "state.json", [])]
    for job in jobs:
        print(f"{job.name:34s} {job.state:8s} {job.seconds / 60:5.1f} of about {job.minutes:g} minutes")
    left = [f"{job.name}\t{job.places}\t{job.minutes:g}\t{job.command}\n" for job in jobs if job.state != "done"]
    (folder / LEFT).write_text("".join(left))
    print(f"{folder / LEFT}: the {len(left)} lines of the queue that are left")


def _accuracies(value: Any) -> Iterator[tuple[int, float]]:
    """Every accuracy at a resolution, of networks as they adapt by the policy "exact", and of those without levels."""
    if isinstance(value, list):
        for item in value:
            yield from _accuracies(item)
    elif isinstance(value, dict) and isinstance(value.get("resolution"), int) and "accuracy" in value:
        if value.get("adapt") is not False and value.get("policy") != "cheap":
            yield value["resolution"], value["accuracy"]
    elif isinstance(value, dict):
        for name, item in value.items():
            if name != "own_kernel":
                yield from _accuracies(item)


def _last_line(path: Path) -> str:
    lines = path.read_text(errors="replace").strip().splitlines() if path.exists() else []
    return lines[-1][:150] if lines else ""


def _read(path: Path, otherwise: Any) -> Any:
    return json.loads(path.read_text()) if path.exists() else otherwise


def _write(path: Path, value: Any) -> None:
    _replace(path, json.dumps(value))


def _replace(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.new{os.getpid()}")
    partial.write_text(text)
    partial.replace(path)


def main() -> None:
    """One of the commands above; `work` is the process that a call starts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    packing = commands.add_parser("pack", help="data sets into folders, one for each call")
    packing.add_argument("folder", type=Path)
    packing.add_argument("sets", nargs="+", metavar="NAME=FOLDER")
    packing.add_argument("--most", type=float, help="MiB of a folder [default: what the checkout leaves of a call]")
    calling = commands.add_parser("call", help="on the lent machine: take, work, wait, give back")
    calling.add_argument("folder", type=Path, nargs="?", default=Path("carry/none"))
    calling.add_argument("--queue", type=Path, help="new lines of it run next; names that ran are passed over")
    calling.add_argument("--wait", type=float, default=20, help="seconds, or until nothing is left to do")
    calling.add_argument(
        "--minutes", type=float, default=26, help="until the machine goes back, from the first call on"
    )
    calling.add_argument("--places", type=int, default=6, help="that running commands share")
    calling.add_argument("--commit", default="", help="of the checkout, for the results")
    calling.add_argument("--device", default="cuda")
    calling.add_argument("--no-mps", dest="mps", action="store_false", help="without CUDA's multi-process service")
    commands.add_parser("work")
    collecting = commands.add_parser("collect", help="what came back, as files and as a table")
    collecting.add_argument("archive", type=Path)
    collecting.add_argument("--into", type=Path, default=Path("runs/lease"))
    args = parser.parse_args()
    if args.command == "pack":
        sets = {name: Path(root).expanduser() for name, _, root in (each.partition("=") for each in args.sets)}
        most = int(args.most * MIB) if args.most else room_beside_the_checkout()
        if not args.most and most < 40 * MIB:
            print(f"{most // MIB} MiB are left beside the checkout; weights/ and docs/images can be moved aside")
        for folder in pack(args.folder, sets, max(most, 1)):
            print(f"{folder}: {sum(file.stat().st_size for file in folder.rglob('*@*')) / MIB:.1f} MiB")
    elif args.command == "call":
        call(args)
    elif args.command == "work":
        work()
    else:
        collect(args.archive, args.into)


if __name__ == "__main__":
    main()
