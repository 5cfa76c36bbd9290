"""Runs on a Ray cluster: one task a run, on a part of a GPU; a run whose machine dies is started again."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from arrn.errors import ArrnError, RunError
from arrn.experiments import cluster_node
from arrn.experiments.cluster_connection import answers, check_machines, connected, in_words, machines_of, named
from arrn.experiments.jobs import Job, write_job
from arrn.experiments.run_storage import Storage
from arrn.experiments.supervising import LAST_LINES, SECONDS_TO_STOP, News

if TYPE_CHECKING:
    import ray

_MOST_LOSSES = 5  # of machines under one run: what loses more is likely what kills them
_SECONDS_BETWEEN_PULLS = 5.0
# Ray ends this process, without a word to whoever called it, when the head has been silent for a minute.
_SECONDS_BETWEEN_CALLS, _MOST_SILENCE = 5.0, 30.0


@dataclass(frozen=True)
class Needs:
    """The device and the cores that each run needs, and the most runs at the same time.

    Attributes:
        device: "auto", "cpu" or "cuda"; "auto" takes GPUs where the cluster has any.
        jobs_per_gpu: the number of runs that share a GPU.
        cpus_per_job: the processor cores of each run.
        at_once: the most runs at the same time over all machines; None for as many as fit.
    """

    device: str = "auto"
    jobs_per_gpu: int = 1
    cpus_per_job: int = 1
    at_once: int | None = None

    def resources(self, machines: Sequence[dict[str, float]]) -> dict[str, float]:
        """The resources that each run asks Ray for, given the resources of each machine.

        >>> Needs(jobs_per_gpu=3).resources([{"CPU": 8}, {"CPU": 8, "GPU": 2}])
        {'CPU': 1, 'GPU': 0.3333}
        """
        on_gpu = self.device == "cuda" or (self.device == "auto" and any(has.get("GPU", 0) for has in machines))
        # Ray counts in parts of ten thousand, and as many parts as there are runs must fit.
        share = int(10_000 / self.jobs_per_gpu) / 10_000
        return {"CPU": self.cpus_per_job} | ({"GPU": share} if on_gpu else {})


def count_slots(needed: dict[str, float], machines: Sequence[dict[str, float]]) -> int:
    """The number of runs that fit on the machines at the same time, if each needs these resources.

    >>> count_slots({"CPU": 1, "GPU": 0.3333}, [{"CPU": 8}, {"CPU": 8, "GPU": 2}, {"CPU": 4, "GPU": 2}])
    10
    """
    return sum(min(int(has.get(name, 0) / amount + 1e-9) for name, amount in needed.items()) for has in machines)


@dataclass
class _Running:
    job: Job
    times: bool
    told: ray.ObjectRefGenerator[Any]  # what the task says, as it says it
    losses: int = 0
    last_lines: str = ""


class ClusterLostError(Exception):
    """The cluster no longer answers."""


class RayCluster:
    """A place for runs: the machines of a Ray cluster. `on_cluster` gives one.

    Args:
        needs: the needs of each run.
        storage: keeps the runs' folders; None where all machines share the folders.
    """

    def __init__(self, needs: Needs, storage: Storage | None) -> None:
        import ray

        self._ray, self._needs, self._storage = ray, needs, storage
        self._needed = needs.resources([machine.has for machine in machines_of(ray)])
        self._running: list[_Running] = []
        self._news: list[News] = []
        self._pulled = self._called = self._heard = time.monotonic()

    @property
    def slots(self) -> int:
        """How many runs fit on the machines that are alive, at least 1: another machine may join."""
        fit = count_slots(self._needed, [machine.has for machine in machines_of(self._ray)])
        return max(1, min(fit, self._needs.at_once or fit))

    def start(self, job: Job, times: bool = False) -> None:
        """Hands the run to Ray, which starts it where what it needs is free."""
        write_job(job)
        if self._storage is not None and not self._storage.has(job):
            self._storage.push(job)  # begun without a storage, or with another one
        self._running.append(_Running(job, times, self._submit(job, times)))

    def _submit(self, job: Job, times: bool) -> ray.ObjectRefGenerator[Any]:
        whole = {"num_gpus": 1.0} if times else {"num_gpus": self._needed.get("GPU", 0)}
        task = self._ray.remote(cluster_node.carry_out).options(
            num_returns="streaming",
            num_cpus=self._needed["CPU"],
            **(whole if "GPU" in self._needed else {}),
            max_retries=0,
            name=f"arrn {job.title}",
        )
        arguments = ["--patience", str(SECONDS_TO_STOP), *(["--times"] if times else [])]
        if self._storage is not None:
            arguments += ["--storage", self._storage.address]
        return task.remote(job.file.read_text(encoding="utf-8"), arguments)

    def news(self) -> list[News]:
        """What the tasks said since; their output goes to the jobs' files, the folders are fetched from the storage."""
        if self._storage is not None and time.monotonic() - self._pulled > _SECONDS_BETWEEN_PULLS:
            for running in self._running:
                self._storage.pull_log(running.job)
            self._pulled = time.monotonic()
        self._call_the_head()
        for running in list(self._running):
            self._listen(running)
        news, self._news = self._news, []
        return news

    def _call_the_head(self) -> None:
        """Notices when the cluster's head has gone."""
        now = time.monotonic()
        if now - self._called < _SECONDS_BETWEEN_CALLS:
            return
        self._called = now
        if answers(self._ray.get_runtime_context().gcs_address):
            self._heard = now
        elif now - self._heard > _MOST_SILENCE:
            self._running.clear()  # there is nobody to ask to stop them: they end with their machines' part of Ray
            raise ClusterLostError(f"its head has not answered for {now - self._heard:.0f} seconds")

    def _listen(self, running: _Running) -> None:
        """Takes what one task has said so far."""
        while True:
            ready, _ = self._ray.wait([running.told], timeout=0, fetch_local=False)
            if not ready:
                return
            try:
                kind, what = self._ray.get(next(running.told))
            except StopIteration:
                return
            except self._ray.exceptions.RayError as error:
                self._fail(running, error)
                return
            if kind == "started":
                self._news.append(News(running.job, "started", str(what)))
            elif kind == "said":
                self._write(running, str(what))
            elif kind == "ended":
                self._end(running, int(what))
                return

    def _write(self, running: _Running, text: str) -> None:
        with running.job.output.open("a", encoding="utf-8") as output:
            output.write(text)
        running.last_lines = "\n".join((running.last_lines + text).splitlines()[-LAST_LINES:])

    def _end(self, running: _Running, code: int) -> None:
        self._running.remove(running)
        if self._storage is not None:
            self._storage.pull(running.job)
        killed = f"\nkilled by signal {-code}" if code < 0 else ""
        failed = News(running.job, "failed", running.last_lines + killed)
        self._news.append(failed if code else News(running.job, "finished"))

    def _fail(self, running: _Running, error: Exception) -> None:
        """A task that did not come to its end: its machine or its worker died, or Ray could not run it."""
        errors = self._ray.exceptions
        lost = isinstance(error, (errors.NodeDiedError, errors.WorkerCrashedError, errors.ObjectLostError))
        if lost and running.losses < _MOST_LOSSES:
            running.losses += 1
            running.told = self._submit(running.job, running.times)
            self._news.append(News(running.job, "lost", in_words(error)))
            return
        self._running.remove(running)
        often = f"its machines died {running.losses + 1} times; the last time: " if lost else ""
        self._news.append(News(running.job, "failed", f"{often}{in_words(error)}"))

    def stop(self) -> None:
        """Cancels every task, which asks its run to stop, and waits for the checkpoints."""
        for running in self._running:
            with suppress(self._ray.exceptions.RayError):
                self._ray.cancel(running.told, force=False)
        deadline = time.monotonic() + SECONDS_TO_STOP
        left = list(self._running)
        while left and time.monotonic() < deadline:
            left = [running for running in left if not self._has_ended(running)]
            time.sleep(0.1)
        for running in self._running:
            if self._storage is not None:
                self._storage.pull(running.job)
        self._running.clear()

    def _has_ended(self, running: _Running) -> bool:
        """Whether a cancelled task is over; what it said until then is kept."""
        while self._ray.wait([running.told], timeout=0, fetch_local=False)[0]:
            try:
                kind, what = self._ray.get(next(running.told))
            except (StopIteration, self._ray.exceptions.RayError):
                return True
            if kind == "said":
                self._write(running, str(what))
        return False


@contextmanager
def on_cluster(address: str, needs: Needs, jobs: Sequence[Job], storage: Storage | None) -> Iterator[RayCluster]:
    """A context with a connection to a Ray cluster, whose machines were checked for all that the jobs need.

    Args:
        address: "auto" for the cluster that this machine belongs to, or HOST:PORT.
        needs: the needs of each run.
        jobs: the jobs to carry out; similar jobs may follow.
        storage: keeps the runs' folders; None where all machines share the folders.

    Raises:
        ArrnError: where there is no such cluster, or one of its machines lacks something.
        RunError: when the cluster no longer answers.
    """
    with connected(address) as ray:
        machines = machines_of(ray)
        needed = needs.resources([machine.has for machine in machines])
        suited = [machine for machine in machines if count_slots(needed, [machine.has])]
        if not suited:
            raise ArrnError(_too_much(needed, [machine.has for machine in machines], address))
        check_machines(ray, suited, jobs, storage)
        try:
            yield RayCluster(needs, storage)
        except (ray.exceptions.RayError, ClusterLostError) as error:
            raise RunError(
                f"{named(address)} was lost ({in_words(error)}); the runs keep their checkpoints: repeat the command "
                "when the cluster is back"
            ) from error


def _too_much(needed: dict[str, float], machines: Sequence[dict[str, float]], address: str) -> str:
    wanted = " and ".join(f"{amount:g} {name}" for name, amount in needed.items())
    there = "; ".join(" and ".join(f"{has.get(name, 0):g} {name}" for name in needed) for has in machines[:LAST_LINES])
    if "GPU" in needed and not any(has.get("GPU", 0) for has in machines):
        return f"no machine of {named(address)} has a GPU; --device cpu runs without"
    return f"each run needs {wanted}, but the machines of {named(address)} have {there or 'nothing'}"
