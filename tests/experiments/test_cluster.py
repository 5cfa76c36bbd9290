"""Runs on a real Ray cluster of two nodes, on this machine and its loopback address."""

import http.server
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import fsspec
import pytest

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # nodes listen on 127.0.0.1 only
os.environ["OMP_NUM_THREADS"] = "1"
pytest.importorskip("ray")
if sys.platform != "linux":
    pytest.skip("processes end with their parent on Linux only", allow_module_level=True)

import ray._private.utils
import ray.cluster_utils

import arrn
from arrn.errors import ArrnError
from arrn.experiments import cluster_connection
from arrn.experiments.cluster import Needs, on_cluster
from arrn.experiments.cluster_connection import connected
from arrn.experiments.jobs import Job
from arrn.experiments.run_storage import Storage
from arrn.experiments.supervising import JobProgress, supervise
from arrn.runs import Machine
from object_store import object_store, stored
from small_runs import tiny_settings, weights

EPOCHS = 150
SMALL = {"num_cpus": 1, "num_gpus": 1, "object_store_memory": 80 * 2**20, "include_dashboard": False}


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    """A bucket that the processes of the cluster know."""
    if stored.args[0]:
        yield ""
        return
    with pytest.MonkeyPatch.context() as patch, object_store(patch) as running:
        yield f"s3://{running.new_bucket()}/storage"


@pytest.fixture(scope="module")
def cluster(store: str) -> Iterator[ray.cluster_utils.Cluster]:
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


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["file", pytest.param("s3", marks=stored)])
def test_a_run_whose_machine_dies_goes_on_elsewhere_from_its_checkpoint(
    kind: str, cluster: ray.cluster_utils.Cluster, store: str, easy: Path, tmp_path: Path
) -> None:
    node = cluster.add_node(**{**SMALL, "include_dashboard": None})
    storage = Storage(store if kind == "s3" else f"file://{tmp_path}/storage")
    files, kept = fsspec.core.url_to_fs(storage.address)
    both = [job(name, easy, tmp_path) for name in ("one", "two")]
    dead: list[float] = []

    def kill(progress: Sequence[JobProgress]) -> None:
        files.invalidate_cache()
        begun = [files.glob(f"{kept}/runs/*/{each.job.title}/checkpoints/*") for each in progress]
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
    assert not [path for path in files.find(kept) if "/.arrn" in path]


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


# Stands in for a machine where arrn is not installed.
BLIND = """
import sys
class Blind:
    def find_spec(self, name, path=None, target=None):
        if name == "arrn":
            raise ModuleNotFoundError("No module named 'arrn'", name="arrn")
sys.meta_path.insert(0, Blind())
"""


def test_a_machine_without_the_package_is_named_before_anything_starts(
    cluster: ray.cluster_utils.Cluster, easy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(BLIND)
    with monkeypatch.context() as patched:
        patched.setenv("PYTHONPATH", str(tmp_path))
        node = cluster.add_node(**{**SMALL, "include_dashboard": None})
    try:
        one = job("one", easy, tmp_path / "fleet")
        missing = r"the machine \S+ of the cluster cannot run arrn: ModuleNotFoundError: No module named 'arrn'"
        with pytest.raises(ArrnError, match=missing), on_cluster(cluster.address, Needs("cpu"), [one], None):
            pass
        assert not list(tmp_path.rglob(".arrn*"))
        assert one.state() == "to do"
    finally:
        cluster.remove_node(node)


def test_a_machine_that_has_left_meanwhile_is_passed_over(
    cluster: ray.cluster_utils.Cluster, easy: Path, tmp_path: Path
) -> None:
    gone = cluster_connection.ClusterMachine("ab" * 28, "gone", {"CPU": 1.0})
    with connected(cluster.address):
        there = cluster_connection.machines_of(ray)
        cluster_connection.check_machines(ray, [gone, *there], [job("one", easy, tmp_path)], None)
        with pytest.raises(ArrnError, match="every machine that suits the runs has left the cluster: gone"):
            cluster_connection.check_machines(ray, [gone], [job("one", easy, tmp_path)], None)


def test_what_no_machine_has_is_told(cluster: ray.cluster_utils.Cluster, easy: Path, tmp_path: Path) -> None:
    one = job("one", easy, tmp_path)
    with (
        pytest.raises(ArrnError, match=r"each run needs 4 CPU, but the machines of .* have 1 CPU$"),
        on_cluster(cluster.address, Needs("cpu", cpus_per_job=4), [one], None),
    ):
        pass
    absent = job("one", easy / "absent", tmp_path)
    with (
        pytest.raises(
            ArrnError, match=r"the machine \S+ of the cluster has no .*/absent: the data must lie there on each machine"
        ),
        on_cluster(cluster.address, Needs("cpu"), [absent], None),
    ):
        pass


def test_a_cluster_of_another_python_or_ray_is_told_in_one_line() -> None:
    theirs = {"ray_version": "2.1.0", "python_version": "3.9.5"}
    with pytest.raises(RuntimeError) as refused:
        ray._private.utils.check_version_info(theirs, "node 10.0.0.1")
    told = cluster_connection._why_not("10.0.0.1:6379", refused.value)
    ours = f"Ray {ray.__version__} and Python {sys.version.split()[0]}"
    start = "the Ray cluster at 10.0.0.1:6379 runs Ray 2.1.0 and Python 3.9.5, but this process runs"
    assert told == f"{start} {ours}: they must be the same"


@pytest.mark.parametrize(
    ("seen", "told"),
    [
        (
            {"arrn": "0.0.1"},
            f"the machine gpu7 of the cluster has arrn 0.0.1, but this machine has arrn {arrn.__version__}",
        ),
        ({"unseen": ["/home/me/runs/.arrn-shared-1"]}, "cannot write to /home/me/runs, or sees another folder there"),
        ({"storage": "OSError: no\x1b[2J route"}, r"cannot read memory://runs: OSError: no\x1b[2J route"),
    ],
)
def test_what_a_machine_lacks_is_told(seen: dict[str, object], told: str) -> None:
    all_well = {"host": "gpu7", "arrn": arrn.__version__, "problem": "", "unseen": [], "missing": [], "storage": ""}
    with pytest.raises(ArrnError) as refused:
        cluster_connection._check(all_well | seen, Storage("memory://runs"))
    assert told in str(refused.value)


def test_an_address_without_a_cluster_is_refused_within_seconds() -> None:
    class Server(http.server.BaseHTTPRequestHandler):
        def log_message(self, *words: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"127.0.0.1:{server.server_port}"
        with pytest.raises(ArrnError, match=f"{address} answers, but is not a Ray cluster"), connected(address):
            pass
        server.shutdown()
    with pytest.raises(ArrnError, match=f"there is no Ray cluster at {address} ."), connected(address):
        pass
    for wrong in ("nonsense", "10.0.0.1:0", "ray://10.0.0.1:10001", ":6379"):
        with (
            pytest.raises(ArrnError, match="--cluster takes auto, or the address of a cluster's head"),
            connected(wrong),
        ):
            pass


def test_a_head_that_listens_on_loopback_alone_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ray._private.services.resolve_ip_for_localhost", lambda host: "127.0.0.2")
    monkeypatch.setattr(cluster_connection, "_check_address", lambda address: None)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with (
            pytest.raises(ArrnError, match=rf"Ray replaces 127\.0\.0\.1:{port} by 127\.0\.0\.2:{port}, where nothing"),
            connected(f"127.0.0.1:{port}"),
        ):
            pass


def test_a_cluster_that_crashed_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as server:
        address = f"127.0.0.1:{server.server_port}"
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(ArrnError, match=f"at {address}, no longer answers: start a new cluster"), connected("auto"):
        pass
