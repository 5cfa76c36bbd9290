"""`arrn reproduce`: the real program on a few images."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from arrn.experiments import read_results
from commands import QUIET, Command, program

RESULTS = Path(__file__).parents[2] / "results"


def places(root: Path) -> list[object]:
    return ["--out", root / "runs", "--results", root / "results", "--device", "cpu"]


def test_runs_are_trained_timed_skipped_and_fail_alone(easy: Path, tmp_path: Path, arrn_command: Command) -> None:
    """One process after another is what takes long here, so one test looks at all of it."""
    common = ["--dataset", "sample", "--data", easy, "--epochs", 1, *places(tmp_path)]
    only = ["--only", "arrn_small", "--only", "mobilenet_v3_small"]
    broken = tmp_path / "runs" / "sample" / "mobilenet_v3_small-seed0"
    broken.mkdir(parents=True)
    (broken / "stranger").touch()  # what is there and is no run's is left alone
    said = arrn_command("reproduce", "efficiency", *common, *only, "--times", "only").out
    assert said == f"results: {tmp_path}/results/sample\n"  # nothing is finished, and nothing is trained
    done = program("reproduce", "efficiency", *common, *only, "--jobs", 2, "--times", "never", code=1)
    assert done.stderr == ("arrn: 1 of 2 runs failed: mobilenet_v3_small-seed0; the same command tries them again\n")
    assert "2 to train and evaluate, 2 at once" in done.stdout
    assert "arrn_small-seed0: finished  epoch 1/1  accuracy" in done.stdout
    assert f"mobilenet_v3_small-seed0 failed; the end of {broken}.txt:" in done.stdout
    assert f"    arrn: {broken} holds no run (run.json is missing) but other files, such as 'stranger'" in done.stdout
    assert "to time" not in done.stdout
    (result,) = read_results(tmp_path / "results")
    assert not result.timings
    done = program("reproduce", "efficiency", *common, *only[:2], "--times", "only")
    assert "1 to time, 1 at once\narrn_small-seed0: timing" in done.stdout
    (result,) = read_results(tmp_path / "results")
    assert result.experiments == ("robustness", "efficiency", "ablation")
    assert len(result.timings) == 2 * 8
    assert result.command == "arrn reproduce robustness --dataset sample --only arrn_small --seeds 1 --epochs 1"
    # From here on there is nothing to run, so this process can do it.
    said = arrn_command("reproduce", "efficiency", *common, "--only", "arrn_small").out
    assert said.splitlines() == ["arrn_small-seed0: finished before and skipped", f"results: {tmp_path}/results/sample"]
    table = arrn_command("reproduce", "robustness", *common, *only, "--list").out
    assert [line.split("│")[-2].strip() for line in table.splitlines() if "│" in line] == ["finished", "to do"]
    table = arrn_command("reproduce", "robustness", *common, *only, "--first-seed", 1, "--seeds", 2, "--list").out
    assert [table.count(f"arrn_small-seed{seed}") for seed in range(4)] == [0, 1, 1, 0]
    longer = [*common[:-8], "--epochs", 2, *places(tmp_path)]
    assert "epochs was 1 and is now 2" in arrn_command("reproduce", "robustness", *longer, code=2).err
    table = arrn_command("reproduce", "robustness", *longer, "--only", "arrn_small", "--list").out
    assert "│ differs │" in table
    assert "arrn_small-seed0 differs: " in table
    assert "epochs was 1 and is now 2; another --out starts a new run" in table


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["robust", "--dataset", "sample"], "unknown experiment 'robust'; did you mean 'robustness'?"),
        (["all", "--dataset", "cifar"], "unknown data set of the experiments 'cifar'; did you mean 'cifar10'?"),
        (["all", "--dataset", "sample", "--only", "resnet"], "unknown run of all: 'resnet'"),
        (["all", "--dataset", "sample", "--epochs", "0"], "epochs must be a whole number from 1 to 1000000, got 0"),
        (["all", "--dataset", "sample", "--device", "abacus"], "unknown device 'abacus'"),
        (["all", "--dataset", "sample", "--times", "later"], "unknown choice of --times 'later'"),
        (["all", "--dataset", "imagenette96"], "unknown data set 'imagenette96'"),
        (["all", "--dataset", "sample", "--jobs-per-gpu", "2"], "--jobs-per-gpu 2 is for --cluster"),
        (["all", "--dataset", "sample", "--storage", "s3://b"], "--storage s3://b is for --cluster"),
    ],
)
def test_what_cannot_be_right_is_told_before_anything_runs(
    arrn_command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert message in arrn_command("reproduce", *arguments, code=2).err
    assert not list(tmp_path.iterdir())


def test_a_cluster_needs_ray(
    arrn_command: Command, easy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    where = ["--dataset", "sample", "--data", easy, "--cluster", "auto", *places(tmp_path)]
    refused = arrn_command("reproduce", "all", *where, code=2)
    assert refused.err == "arrn: --cluster needs ray: pip install '.[cluster]' in a clone of the repository\n"
    assert not list(tmp_path.iterdir())


def wait_for(what: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.skipif(sys.platform != "linux", reason="processes end with their parent on Linux only")
def test_stopped_or_killed_it_leaves_checkpoints_and_no_processes(
    easy: Path, tmp_path: Path, arrn_command: Command
) -> None:
    arguments = ["reproduce", "robustness", "--dataset", "sample", "--data", easy, "--epochs", 100000]
    arguments += ["--only", "arrn_small", *places(tmp_path)]
    run = tmp_path / "runs" / "sample" / "arrn_small-seed0"
    output = run.with_name("arrn_small-seed0.txt")

    @contextmanager
    def begun(epochs: int) -> Iterator[subprocess.Popen[str]]:
        """The program, once its run has told of so many epochs."""
        process = subprocess.Popen(
            [sys.executable, "-m", "arrn", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            env=os.environ | QUIET,
        )
        try:
            wait_for(lambda: output.exists() and output.read_text().count("epoch ") >= epochs)
            yield process
        finally:
            process.kill()  # its run ends with it
            process.communicate()

    with begun(3) as process:
        process.send_signal(signal.SIGTERM)
        said, error = process.communicate(timeout=60)
        assert (process.returncode, error) == (1, "arrn: interrupted\n")
    assert said.splitlines()[-2].startswith("arrn_small-seed0: stopped  epoch ")
    assert said.splitlines()[-1] == "stopped, with checkpoints: the same command continues"
    assert "stopped by SIGTERM" in output.read_text()
    assert list((run / "checkpoints").iterdir())
    assert "interrupted" in arrn_command(*arguments, "--list").out
    with begun(output.read_text().count("epoch ") + 3):
        pass
    assert "going on from checkpoint-" in output.read_text()
    wait_for(lambda: output.read_text().count("stopped by SIGTERM") == 2)


# Of former designs, and of transplants with the dropout of a design: they stay until they are trained again.
AWAITED = {
    f"arrn_{name}-seed0" for name in ("mobilenet_v3_large", "mobilenet_v3_small", "resnet18", "resnet50", "stl10")
}


@pytest.mark.parametrize("dataset", [folder.name for folder in sorted(RESULTS.iterdir()) if folder.is_dir()])
def test_published_results_are_those_of_the_plan(arrn_command: Command, tmp_path: Path, dataset: str) -> None:
    published = [result for result in read_results(RESULTS) if result.dataset == dataset]
    seeds = ["--seeds", max(result.seed for result in published) + 1]
    where = ["--dataset", dataset, *seeds, "--results", RESULTS, "--out", tmp_path, "--device", "cpu"]
    out = arrn_command("reproduce", "all", *where, "--list").out
    rows = [line.split() for line in out.splitlines() if line.startswith("│")]
    states = {row[1]: row[-2] for row in rows if row[-2] != "do"}  # of "to do"
    assert set(states) == {f"{result.name}-seed{result.seed}" for result in published}
    assert {name for name, state in states.items() if state != "finished"} <= AWAITED
