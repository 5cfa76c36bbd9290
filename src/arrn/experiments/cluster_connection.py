"""A connection to a Ray cluster, and a look at its machines before any run is started; each trouble is one line."""

from __future__ import annotations

import os
import signal
import socket
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from arrn import __version__
from arrn.errors import ArrnError, first_line, needs, plain
from arrn.experiments import cluster_node
from arrn.experiments.jobs import Job
from arrn.experiments.run_storage import Storage
from arrn.writing import writing_to

_SECONDS_TO_ANSWER = 5.0
_SECONDS_TO_LOOK_AROUND = 180.0  # starting a worker and importing arrn, on slow disks
# How a connection of HTTP/2 begins, which gRPC and so Ray speak: the client's preface and empty settings.
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
_SETTINGS_FRAME = 4  # the kind of frame, at byte 3, that the server answers with


@dataclass(frozen=True)
class ClusterMachine:
    """A machine of the cluster.

    Attributes:
        id: Ray's name of it.
        host: its own name.
        has: how much of each resource.
    """

    id: str
    host: str
    has: dict[str, float]


def machines_of(ray: ModuleType) -> list[ClusterMachine]:
    """The machines that are alive."""
    return [
        ClusterMachine(node["NodeID"], node["NodeManagerHostname"], dict(node["Resources"]))
        for node in ray.nodes()
        if node["Alive"]
    ]


@contextmanager
def connected(address: str) -> Iterator[ModuleType]:
    """A context in which this process is connected to the cluster; gives the module `ray`.

    Raises:
        ArrnError: where Ray is not installed, or cannot connect.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    with needs("ray", "--cluster", extra="cluster"):
        import ray
    if address != "auto":
        _check_address(address)
        _check_loopback(ray, address)
    elif (remembered := _remembered(ray)) and not answers(remembered):
        raise ArrnError(
            f"the Ray cluster of this machine, at {remembered}, no longer answers: start a new cluster with "
            "`ray start --head`"
        )
    on_main_thread = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=address, log_to_driver=False, configure_logging=False)
    except Exception as error:
        raise ArrnError(_why_not(address, error)) from None
    finally:
        if on_main_thread:  # Ray puts its own handler in the place of the one there was
            signal.signal(signal.SIGTERM, before)
    _silence(ray)
    by_value: Any = ray.cloudpickle
    by_value.register_pickle_by_value(cluster_node)  # machines get its code, not its name
    try:
        yield ray
    finally:
        by_value.unregister_pickle_by_value(cluster_node)
        ray.shutdown()


def named(address: str) -> str:
    """The name of the cluster in messages.

    >>> named("auto"), named("10.0.0.1:6379")
    ('the Ray cluster of this machine', 'the Ray cluster at 10.0.0.1:6379')
    """
    return "the Ray cluster of this machine" if address == "auto" else f"the Ray cluster at {address}"


def in_words(error: Exception) -> str:
    """What went wrong on a machine, in one line; Ray puts where it happened before it."""
    return plain(first_line(getattr(error, "cause", None) or error))


def _remembered(ray: ModuleType) -> str:
    """Where Ray would look for the cluster of this machine; a cluster that crashed is still remembered."""
    found = os.environ.get("RAY_ADDRESS", "")
    if not found:
        with suppress(AttributeError, OSError):  # as Ray keeps it today
            found = str(ray._private.utils.read_ray_address() or "")
    return found if ":" in found and "/" not in found else ""


def answers(address: str) -> bool:
    """Whether a program listens at HOST:PORT."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_SECONDS_TO_ANSWER).close()
    except (OSError, ValueError):
        return False
    return True


def _check_address(address: str) -> None:
    """Refuses, within seconds, an address where no cluster is: Ray would try for minutes."""
    host, colon, port = address.rpartition(":")
    if not (host and colon and port.isdecimal() and 0 < int(port) < 2**16) or "/" in host:
        raise ArrnError(
            f"--cluster takes auto, or the address of a cluster's head as HOST:PORT, such as 10.0.0.1:6379; "
            f"got {address!r:.80}"
        )
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_SECONDS_TO_ANSWER) as connection:
            connection.sendall(_PREFACE)
            answer = connection.recv(9)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise ArrnError(f"there is no Ray cluster at {address} ({why}); `ray start --head` starts one") from None
    if len(answer) < 4 or answer[3] != _SETTINGS_FRAME:
        raise ArrnError(f"{address} answers, but is not a Ray cluster: the port of a cluster's head is usually 6379")


def _check_loopback(ray: ModuleType, address: str) -> None:
    """Refuses 127.0.0.1 where only that answers: Ray asks this machine's own address instead, and for minutes."""
    taken = address
    with suppress(AttributeError, ValueError):  # as Ray has it today
        taken = str(ray._private.services.canonicalize_bootstrap_address(address))
    if taken != address and not answers(taken):
        raise ArrnError(
            f"Ray replaces {address} by {taken}, where nothing answers: start the cluster's head without "
            "--node-ip-address 127.0.0.1"
        )


def _why_not(address: str, error: Exception) -> str:
    told = [line.strip() for line in str(error).splitlines() if line.strip()]
    if "Version mismatch" in str(error):
        versions = [line.replace(":", "") for line in told if line.startswith(("Ray:", "Python:"))]
        theirs, ours = " and ".join(versions[:2]), " and ".join(versions[2:4])
        return f"{named(address)} runs {theirs}, but this process runs {ours}: they must be the same"
    if isinstance(error, ConnectionError) and address == "auto":
        return (
            "no Ray cluster was found on this machine: start one with `ray start --head`, or give --cluster HOST:PORT"
        )
    return plain(f"cannot connect to {named(address)}: {first_line(error)}")


def _silence(ray: ModuleType) -> None:
    """Keeps what Ray prints of machines that died, fifty lines each, off the terminal: a line of ours tells."""
    with suppress(AttributeError):
        ray._private.worker._worker_logs_enabled = False


def check_machines(
    ray: ModuleType, machines: Sequence[ClusterMachine], jobs: Sequence[Job], storage: Storage | None
) -> None:
    """Refuses a cluster where a machine lacks arrn, a shared folder or the data, before anything is started.

    A machine that has left the cluster since it was listed is passed over: Ray lists a dead machine for a while.

    Args:
        ray: the module, connected.
        machines: on which runs may be started.
        jobs: what is to run.
        storage: that keeps the runs' folders, None where all machines must share the folders.

    Raises:
        ArrnError: names the machine and what it lacks; and where every machine has left.
    """
    roots = {job.settings.data or job.settings.dataset for job in jobs}
    folders = sorted(root for root in roots if os.path.isabs(root))
    shared = sorted({folder for job in jobs for folder in (job.out, job.results)}) if storage is None else []
    with _tokens(shared) as tokens, nullcontext() if storage is None else storage.token() as token:
        look = ray.remote(cluster_node.look_around)
        found = [_on(ray, machine, look).remote(tokens, folders, token) for machine in machines]
        left = 0
        for machine, answer in zip(machines, found, strict=True):
            try:
                seen = ray.get(answer, timeout=_SECONDS_TO_LOOK_AROUND)
            except ray.exceptions.TaskUnschedulableError:
                left += 1
                continue
            except ray.exceptions.RayError as error:
                raise ArrnError(
                    f"the machine {machine.host} of the cluster does not answer: {first_line(error)}"
                ) from None
            _check(seen, storage)
        if left == len(machines):
            hosts = ", ".join(sorted({machine.host for machine in machines}))
            raise ArrnError(f"every machine that suits the runs has left the cluster: {hosts}; repeat the command")


def _on(ray: ModuleType, machine: ClusterMachine, task: Any) -> Any:
    there = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(machine.id, soft=False)
    return task.options(num_cpus=0, max_retries=0, scheduling_strategy=there)


def _check(seen: dict[str, Any], storage: Storage | None) -> None:
    host = seen["host"]
    if seen["problem"]:
        raise ArrnError(plain(f"the machine {host} of the cluster cannot run arrn: {seen['problem']}"))
    if seen["arrn"] != __version__:
        raise ArrnError(
            f"the machine {host} of the cluster has arrn {seen['arrn']}, but this machine has arrn {__version__}"
        )
    if seen["storage"] and storage is not None:
        raise ArrnError(plain(f"the machine {host} of the cluster cannot read {storage.address}: {seen['storage']}"))
    if seen["unseen"]:
        folder = Path(seen["unseen"][0]).parent
        raise ArrnError(
            f"the machine {host} of the cluster cannot write to {folder}, or sees another folder there: give folders "
            "that all machines share, or --storage with an address such as s3://bucket/runs"
        )
    if seen["missing"]:
        raise ArrnError(
            f"the machine {host} of the cluster has no {seen['missing'][0]}: the data must lie there on each machine"
        )


@contextmanager
def _tokens(folders: Sequence[Path]) -> Iterator[list[str]]:
    """Within it, each folder holds a file that is nowhere else; gives the files."""
    files: list[Path] = []
    try:
        for folder in folders:
            file = folder / f".arrn-shared-{uuid.uuid4().hex}"
            with writing_to(file):
                file.touch()
            files.append(file)
        yield [str(file) for file in files]
    finally:
        for file in files:
            file.unlink(missing_ok=True)
