"""tools/lease.py as it is used: each call a process of its own, between which the queue works on."""

import json
import os
import shlex
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from arrn.experiments.plan import choose, plan

TOOL = Path(__file__).parents[1] / "tools" / "lease.py"
NOTES = TOOL.parents[1] / "docs" / "notes"
QUEUES = [*sorted((NOTES / "leases").glob("*.tsv")), NOTES / "design_search" / "next_queue.tsv"]
Lease = Callable[..., str]


@pytest.fixture
def lease(tmp_path: Path) -> Iterator[Lease]:
    """Runs the tool; `code` is its exit status."""
    home, out = tmp_path / "lent", tmp_path / "out"
    out.mkdir()

    def run(*args: object, code: int = 0) -> str:
        variables = os.environ | {"LEASE_HOME": str(home), "OUT": str(out)}
        command = [sys.executable, str(TOOL), *map(str, args)]
        done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=60)
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    yield run
    (home / "settings.json").exists() and run("call", "--wait", 20, *CPU)  # nothing outlives the test


CPU = ("--device", "cpu", "--no-mps")


def queue(path: Path, *lines: tuple[object, ...]) -> Path:
    path.write_text("# what is to run\n\n" + "\n".join("\t".join(map(str, line)) for line in lines))
    return path


def came_back(tmp_path: Path) -> dict[str, bytes]:
    with tarfile.open(tmp_path / "out" / "lease.tar.gz") as archive:
        members = [member for member in archive.getmembers() if member.isfile()]
        return {member.name: archive.extractfile(member).read() for member in members}  # type: ignore[union-attr]


def test_data_come_in_pieces_and_a_job_starts_when_its_set_is_whole(lease: Lease, tmp_path: Path) -> None:
    root = tmp_path / "sets" / "easy"
    root.mkdir(parents=True)
    for name, size in (("a.parquet", 300_000), ("b.parquet", 900_000), ("c.npz", 10)):
        (root / name).write_bytes(os.urandom(size))
    assert "carry/1: 1.1 MiB" in lease("pack", "carry", f"easy={root}")  # there is room for more in a call
    said = lease("pack", "carry", f"easy={root}", "--most", 0.5)
    assert [line.split(":")[0] for line in said.splitlines()] == ["carry/1", "carry/2", "carry/3"]
    assert all(
        sum(file.stat().st_size for file in (tmp_path / "carry" / str(n)).rglob("*@*")) <= 0.5 * 2**20
        for n in (1, 2, 3)
    )
    jobs = queue(
        tmp_path / "q.tsv",
        ("sums", 1, 1, "cd $DATA/easy && sha256sum * > $KEEP/sums.txt"),
        ("other", 1, 1, "echo there > $KEEP/other.txt"),
    )
    said = lease("call", "carry/1", "--queue", jobs, "--wait", 2, *CPU)
    assert "waits for data" in said
    assert "keep/other.txt" in came_back(tmp_path)
    assert "the calls come in the order of their folders" in lease("call", "carry/3", code=1)
    lease("call", "carry/2", "--wait", 0, *CPU)
    lease("call", "carry/2", "--wait", 0, *CPU)  # a call that was made twice
    said = lease("call", "carry/3", "--wait", 20, *CPU)
    assert "waits for data" not in said
    wanted = subprocess.run("sha256sum *", shell=True, cwd=root, capture_output=True, check=True).stdout
    assert came_back(tmp_path)["keep/sums.txt"] == wanted


def test_places_order_second_tries_and_what_would_be_too_late(lease: Lease, tmp_path: Path) -> None:
    note = 'echo "begin {0} $(ls $RUNS | wc -l)" >> $KEEP/notes.txt; touch $RUNS/{0}; sleep 0.6; rm $RUNS/{0}'
    jobs = queue(
        tmp_path / "q.tsv",
        ("one", 1, 1, note.format("one")),
        ("two", 1, 1, note.format("two")),
        ("long", 1, 60, "false"),
        ("alone", "all", 1, note.format("alone")),
        ("three", 1, 1, note.format("three")),
        ("unlucky", 1, 1, "echo at work; test -e $RUNS/tried || { touch $RUNS/tried; false; } && rm $RUNS/tried"),
        ("broken", 1, 1, "echo 'no such thing'; exit 3"),
    )
    said = lease("call", "--queue", jobs, "--wait", 30, "--places", 2, *CPU)
    states = {line.split()[0]: line for line in said.splitlines() if " of about " in line}
    assert all(" done " in states[name] for name in ("one", "two", "alone", "three", "unlucky"))
    assert "no time" in states["long"]
    assert "tries: 2" in states["unlucky"]
    assert " failed " in states["broken"]
    assert states["broken"].endswith("tries: 2; no such thing")
    notes = came_back(tmp_path)["keep/notes.txt"].decode().split("\n")
    began = {line.split()[1]: int(line.split()[2]) for line in notes if line}
    assert list(began)[-2:] == ["alone", "three"]
    assert began["alone"] == 0  # nothing ran beside it
    assert max(began["one"], began["two"]) <= 1
    # A new queue takes the place of the old one; what ran does not run again.
    more = queue(tmp_path / "q.tsv", ("one", 1, 1, note.format("one")), ("four", 1, 1, note.format("four")))
    said = lease("call", "--queue", more, "--wait", 20, *CPU)
    assert "long" not in said
    assert came_back(tmp_path)["keep/notes.txt"].decode().count("begin one") == 1
    assert "begin four" in came_back(tmp_path)["keep/notes.txt"].decode()


def test_a_queue_that_cannot_be_read_is_refused_by_the_call(lease: Lease, tmp_path: Path) -> None:
    said = lease("call", "--queue", queue(tmp_path / "q.tsv", ("one", 1, "true")), code=1)
    assert "4 columns with tabs between, got 3: 'one" in said


@pytest.mark.parametrize("path", QUEUES, ids=lambda path: path.stem)
def test_the_queues_name_runs_of_the_plan(path: Path) -> None:
    lines = [line.split("\t") for line in path.read_text().splitlines() if not line.startswith("#")]
    assert len({name for name, *_ in lines}) == len(lines)
    for _, places, minutes, command in lines:
        assert places == "all" or 1 <= int(places) <= 6
        assert 0 < float(minutes) < 25  # less than a lease
        for part in command.split(" && "):
            words = shlex.split(part)
            if words[:2] == ["$ARRN", "reproduce"]:
                dataset = words[words.index("--dataset") + 1]
                only = [words[n + 1] for n, word in enumerate(words) if word == "--only"]
                assert f"$DATA/{dataset}" in words
                assert [run.name for run in choose(plan(dataset), words[2], only)]
            elif words[:2] == ["$ARRN", "sweep"]:
                assert f"$DATA/{words[2]}" in words
                assert int(words[words.index("--epochs") + 1]) <= 30


def test_a_real_run_comes_back_as_a_result(lease: Lease, easy: Path, tmp_path: Path) -> None:
    """The folder of images travels as it is: pieces are for sets of files in one folder."""
    reproduce = f"$ARRN reproduce all --dataset sample --data {easy} $TO --epochs 1 --only arrn_small"
    jobs = queue(
        tmp_path / "q.tsv",
        ("arrn_small", 2, 1, f"{reproduce} --times never"),
        ("broken", 1, 1, "false"),
        (
            "weights",
            1,
            1,
            "test -e $KNOWN/cifar10/resnet18-seed0.json && head -c 2000000 /dev/urandom > $KEEP/weights.bin",
        ),
    )
    said = lease("call", "--queue", jobs, "--wait", 55, "--commit", "abc", *CPU)
    assert "arrn_small" in said
    result = json.loads(came_back(tmp_path)["results/sample/arrn_small-seed0.json"])
    assert result["provenance"]["commit"] == "abc"
    assert [name for name in came_back(tmp_path) if "results" in name] == ["results/sample/arrn_small-seed0.json"]
    assert (tmp_path / "out" / "weights.bin").stat().st_size == 2_000_000
    table = lease("collect", "out/lease.tar.gz", "--into", "back")
    answers = [each for each in result["report"]["results"] if each["adapt"] and each["policy"] == "exact"]
    shown = " ".join(f"{each['resolution']}:{100 * each['accuracy']:.1f}" for each in answers)
    assert f"results/sample/arrn_small-seed0.json  {shown}  mean " in table
    assert (tmp_path / "back" / "logs" / "arrn_small.txt").exists()
    assert (tmp_path / "back" / "left.tsv").read_text() == "broken\t1\t1\tfalse\n"
