"""Runs on a real Ray cluster of two nodes, on this machine and its loopback address."""

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # nodes listen on 127.0.0.1 only
os.environ["OMP_NUM_THREADS"] = "1"
pytest.importorskip("ray")
if sys.platform != "linux":
    pytest.skip("processes end with their parent on Linux only", allow_module_level=True)

import ray.cluster_utils

from arrn.errors import ArrnError
from arrn.experiments.cluster import Needs, on_cluster
from arrn.experiments.jobs import Job
from arrn.experiments.run_storage import Storage
from arrn.experiments.supervising import JobProgress, supervise
from arrn.runs import Machine
from small_runs import tiny_settings, weights

EPOCHS = 150
SMALL = {"num_cpus": 1, "num_gpus": 1, "object_store_memory": 80 * 2**20, "include_dashboard": False}


@pytest.fixture(scope="module")
def cluster() -> Iterator[ray.cluster_utils.Cluster]:
    cluster = ray.cluster_utils.Cluster(initialize_head=True, head_node_args=SMALL)
    yield cluster
    cluster.shutdown()


def job(name: str, easy: Path, root: Path, epochs: int = EPOCHS) -> Job:
    settings, machine = tiny_settings(easy, epochs=epochs), Machine("cpu", checkpoint_every=1)
    return Job(name, settings, root / "runs", root / "results", machine=machine)


def children() -> list[str]:
    """The command lines of all runs that there are."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode().split("\0")
        except OSError:
            continue
        if "job" in words and any("arrn-job-" in word for word in words):
            found.append(" ".join(words))
    return found


def epochs_of(job: Job) -> list[int]:
    return [json.loads(line)["epoch"] for line in (job.folder / "log.jsonl").read_text().splitlines()]


def test_a_run_whose_machine_dies_goes_on_elsewhere_from_its_checkpoint(
    cluster: ray.cluster_utils.Cluster, easy: Path, tmp_path: Path
) -> None:
    node = cluster.add_node(**{**SMALL, "include_dashboard": None})
    kept = tmp_path / "storage"
    storage = Storage(f"file://{kept}")
    both = [job(name, easy, tmp_path) for name in ("one", "two")]
    dead: list[float] = []

    def kill(progress: Sequence[JobProgress]) -> None:
        begun = [list(kept.glob(f"runs/*/{each.job.title}/checkpoints/*")) for each in progress]
        if all(begun) and not dead:
            dead.append(time.monotonic())
            cluster.remove_node(node, allow_graceful=False)

    with on_cluster(cluster.address, Needs(jobs_per_gpu=2), both, storage) as place:
        assert place.slots == 2
        ended = supervise(place, both, kill, every=0.1)
    assert dead
    assert [(each.state, each.last_words) for each in ended] == [("finished", "")] * 2
    assert sum(each.losses for each in ended) == 1
    lost = next(each.job for each in ended if each.losses)
    assert "going on from checkpoint-" in lost.output.read_text()
    # What came back is whole: every epoch once, a result, and the weights of the run that nothing happened to.
    for each in both:
        assert epochs_of(each) == list(range(1, EPOCHS + 1))
        assert each.read_result() is not None
    assert weights(both[0].folder) == weights(both[1].folder)
    assert not children()
    assert not list(kept.rglob(".arrn*"))


def test_an_interruption_stops_runs_with_checkpoints_and_leaves_no_process(
    cluster: ray.cluster_utils.Cluster, easy: Path, tmp_path: Path
) -> None:
    (long,) = [job("long", easy, tmp_path, epochs=100_000)]

    def interrupt(progress: Sequence[JobProgress]) -> None:
        if progress[0].state == "training" and progress[0].epoch >= 2:
            raise KeyboardInterrupt

    with on_cluster(cluster.address, Needs("cpu"), [long], None) as place, pytest.raises(KeyboardInterrupt):
        supervise(place, [long], interrupt, every=0.1)
    assert list((long.folder / "checkpoints").iterdir())
    assert long.state() == "interrupted"
    assert not children()
    assert not list(tmp_path.rglob(".arrn-shared*"))
