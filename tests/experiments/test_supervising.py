"""Processes for jobs: several at once, failures apart from each other, stopped together."""

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from arrn.experiments.jobs import Job
from arrn.experiments.local_processes import LocalProcesses
from arrn.experiments.supervising import JobProgress, News, supervise
from arrn.runs import RunSettings
from arrn.training import Recipe

# Stands in for `arrn job`: it writes the log of a run, waits for others where told to, and ends as its name says.
ACTOR = """
import json, pathlib, signal, sys, time
job = json.loads(pathlib.Path(sys.argv[1]).read_text())["job"]
name, out = job["name"], pathlib.Path(job["out"])
folder = out / "sample" / f"{name}-seed0"
folder.mkdir(parents=True)
def stop(*signal):
    (folder / "checkpoint").touch()
    sys.exit(1)
signal.signal(signal.SIGTERM, stop)
for epoch in (1, 2):
    with (folder / "log.jsonl").open("a") as log:
        log.write(json.dumps({"epoch": epoch, "accuracy": epoch / 4, "seconds": 2.0}) + chr(10))
if name.startswith("waits"):
    deadline = time.monotonic() + 20
    while len(list(out.glob("sample/*/log.jsonl"))) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)
if name == "crashes":
    print("first", "second", "third", "fourth", "fifth", "sixth", sep=chr(10))
    sys.exit("arrn: it went wrong")
if name == "dies":
    signal.raise_signal(signal.SIGKILL)
if name == "lasts":
    time.sleep(60)
"""


def processes(at_once: int = 1, code: str = ACTOR) -> LocalProcesses:
    return LocalProcesses(at_once, (sys.executable, "-S", "-c", code))


def jobs(out: Path, *names: str, epochs: int = 2) -> list[Job]:
    return [Job(name, RunSettings("sample", recipe=Recipe(epochs=epochs)), out, out / "results") for name in names]


def test_a_crash_is_told_and_the_others_go_on(tmp_path: Path) -> None:
    ended = supervise(processes(), jobs(tmp_path, "crashes", "dies", "works"), every=0.01)
    assert [progress.state for progress in ended] == ["failed", "failed", "finished"]
    assert ended[0].last_words == "third\nfourth\nfifth\nsixth\narrn: it went wrong"
    assert ended[1].last_words == "killed by SIGKILL"
    assert (ended[2].epoch, ended[2].accuracy, ended[2].seconds_left) == (2, 0.5, None)


def test_several_run_at_once(tmp_path: Path) -> None:
    ended = supervise(processes(at_once=2), jobs(tmp_path, "waits-a", "waits-b"), every=0.01)
    assert [progress.state for progress in ended] == ["finished", "finished"]


def test_progress_comes_from_the_log(tmp_path: Path) -> None:
    (job,) = jobs(tmp_path, "x", epochs=10)
    progress = JobProgress(job, "training")
    progress.look()
    assert (progress.epoch, progress.accuracy, progress.seconds_left) == (0, None, None)
    job.folder.mkdir(parents=True)
    lines = [{"epoch": n, "accuracy": n / 10, "seconds": 3.0} for n in (1, 2)]
    (job.folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    progress.look()
    assert (progress.state, progress.epoch, progress.accuracy, progress.seconds_left) == ("training", 2, 0.2, 24.0)
    (job.folder / "log.jsonl").write_text(json.dumps({"epoch": 10, "accuracy": 1.0, "seconds": 3.0}) + "\n")
    progress.look()
    assert progress.state == "evaluating"


def test_an_interruption_stops_every_process_and_waits_for_its_checkpoint(tmp_path: Path) -> None:
    begun = time.monotonic()

    def interrupt(progress: Sequence[JobProgress]) -> None:
        assert time.monotonic() - begun < 30
        if all(each.epoch == 2 for each in progress) and progress[0].state != "stopped":
            raise KeyboardInterrupt

    both = jobs(tmp_path, "lasts", epochs=3)
    with pytest.raises(KeyboardInterrupt):
        supervise(processes(), both, interrupt, every=0.01)
    assert [(job.folder / "checkpoint").exists() for job in both] == [True]


def test_nothing_to_do_is_done() -> None:
    assert supervise(processes(), []) == []


@pytest.mark.skipif(sys.platform == "win32", reason="no signals to a group")
def test_processes_are_apart_from_the_terminals_group(tmp_path: Path) -> None:
    (job,) = jobs(tmp_path, "groups")
    code = "import os; print(os.getpgrp() == os.getpid())"
    supervise(processes(code=code), [job], every=0.01)
    assert job.output.read_text() == "True\n"


class Losing:
    """A place whose first machine dies under each run."""

    slots = 1

    def __init__(self) -> None:
        self.told: list[News] = []

    def start(self, job: Job, times: bool = False) -> None:
        self.told = [News(job, "started", "one"), News(job, "lost", "it died"), News(job, "started", "two")]
        self.told.append(News(job, "finished"))

    def news(self) -> list[News]:
        return [self.told.pop(0)] if self.told else []

    def stop(self) -> None:
        raise AssertionError


def test_a_run_whose_machine_dies_waits_for_another_one(tmp_path: Path) -> None:
    seen: list[tuple[str, str, int]] = []

    def note(progress: Sequence[JobProgress]) -> None:
        seen.extend((each.state, each.machine, each.losses) for each in progress)

    supervise(Losing(), jobs(tmp_path, "x"), note, every=0)
    assert seen == [("training", "one", 0), ("waiting", "", 1), ("training", "two", 1), ("finished", "two", 1)]


def test_further_jobs_come_as_others_end(tmp_path: Path) -> None:
    rooms: list[int] = []

    def more(ended: Sequence[JobProgress], room: int) -> list[Job]:
        rooms.append(room)
        return jobs(tmp_path, f"works-{len(rooms)}") if len(rooms) < 3 else []

    ended = supervise(processes(at_once=2), [], more=more, every=0.01)
    assert [(each.job.name, each.state) for each in ended] == [("works-1", "finished"), ("works-2", "finished")]
    assert rooms == [2, 2, 2]
