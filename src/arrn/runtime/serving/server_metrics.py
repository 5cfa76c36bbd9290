"""What a server counts, in Prometheus's text format."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_COUNTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class ServerMetrics:
    """The counts of one server, in a registry of its own: a process may hold several.

    Args:
        levels: a name for each level of the network, such as `32x32`.
        held, held_bytes: tell the inputs that the server holds now, and the bytes of them.
    """

    def __init__(self, levels: Sequence[str], held: Callable[[], float], held_bytes: Callable[[], float]) -> None:
        self.registry = CollectorRegistry()
        self._levels = levels
        self._requests = Counter(
            "arrn_requests", "Requests by path and status.", ["path", "status"], registry=self.registry
        )
        self._inputs = Counter(
            "arrn_inputs", "Images, sounds or volumes by outcome.", ["outcome"], registry=self.registry
        )
        self._queued = self._histogram("arrn_queue_seconds", "Seconds that an input waited for the network.", _SECONDS)
        self._computed = self._histogram("arrn_compute_seconds", "Seconds of the network for one batch.", _SECONDS)
        self._together = self._histogram("arrn_batch_inputs", "Inputs that ran together.", _COUNTS)
        for level in levels:  # every series is there from the start
            for histogram in (self._queued, self._computed, self._together):
                histogram.labels(level)
        for outcome in ("answered", "refused", "failed", "left"):
            self._inputs.labels(outcome)
        Gauge("arrn_held_inputs", "Inputs that the server holds now.", registry=self.registry).set_function(held)
        Gauge("arrn_held_bytes", "Bytes of request bodies and decoded inputs.", registry=self.registry).set_function(
            held_bytes
        )
        ProcessCollector(registry=self.registry)

    def _histogram(self, name: str, words: str, bounds: Sequence[float]) -> Histogram:
        return Histogram(name, words, ["level"], registry=self.registry, buckets=bounds)

    def request(self, path: str, status: int) -> None:
        """Counts a request."""
        self._requests.labels(path, str(status)).inc()

    def outcome(self, outcome: str, queued: float | None = None, level: int = 0) -> None:
        """Counts an input, and where it was answered the time it waited."""
        self._inputs.labels(outcome).inc()
        if queued is not None:
            self._queued.labels(self._levels[level]).observe(queued)

    def batch(self, level: int, count: int, seconds: float) -> None:
        """Counts a run of the network."""
        self._computed.labels(self._levels[level]).observe(seconds)
        self._together.labels(self._levels[level]).observe(count)

    def text(self) -> bytes:
        """All of it, as Prometheus reads it."""
        return generate_latest(self.registry)
