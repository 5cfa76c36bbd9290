"""Memory: how much of it is free, how much a process has, and how much a piece of work takes at its peak."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_PART_OF_ALL = 0.6  # of a machine's memory, where the system does not tell how much is free
_UNKNOWN = 2.0**31  # a system that tells nothing: two gigabytes are safe almost everywhere
_UNLIMITED = 2.0**60


def free_memory(device: torch.device) -> float:
    """The bytes that this process may still take on a device.

    On a CPU that is the least of what the system has left, what the process's control group (a container's limit) has
    left, and what the process's own limits (`ulimit -v`, `ulimit -d`) have left.
    """
    if device.type == "cuda":
        # What the allocator holds without using is free for this process, though not for others.
        held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return float(torch.cuda.mem_get_info(device)[0] + held)
    return max(0.0, min(_left_on_the_system(), _left_in_the_group(), _left_within_limits()))


def in_gigabytes(size: float) -> str:
    """A number of bytes in words.

    >>> in_gigabytes(29_840_000_000), in_gigabytes(31_000_000)
    ('29.8 GB', '0.03 GB')
    """
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e9:.1g} GB"


def _left_on_the_system() -> float:
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return float(line.split()[1]) * 1024
    with suppress(AttributeError, OSError, ValueError):
        return _PART_OF_ALL * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return _UNKNOWN


def _left_in_the_group() -> float:
    """Of a control group of Linux, of either version, and of the groups above it."""
    left = _UNLIMITED
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, group = line.split(":", 2)
            if not controllers:
                root, limit, used, cached = Path("/sys/fs/cgroup"), "memory.max", "memory.current", "inactive_file"
            elif "memory" in controllers.split(","):
                root = Path("/sys/fs/cgroup/memory")
                limit, used, cached = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
            else:
                continue
            place = root / group.lstrip("/")
            for folder in (place, *place.parents):
                left = min(left, _left_in(folder, limit, used, cached))
                if folder == root:
                    break
    return left


def _left_in(folder: Path, limit: str, used: str, cached: str) -> float:
    try:
        most, now = (folder / limit).read_text().strip(), float((folder / used).read_text())
        told = dict(line.split(" ", 1) for line in (folder / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):  # another group's, or one without limits
        return _UNLIMITED
    # Files that were read are counted too, and given back where memory is needed.
    return _UNLIMITED if most == "max" else float(most) - now + float(told.get(cached, 0))


def _left_within_limits() -> float:
    try:
        import resource
    except ImportError:  # on Windows
        return _UNLIMITED
    left = _UNLIMITED
    with suppress(OSError, ValueError, IndexError):
        pages = [int(number) for number in Path("/proc/self/statm").read_text().split()]
        for limit, taken in ((resource.RLIMIT_AS, pages[0]), (resource.RLIMIT_DATA, pages[5])):
            most = resource.getrlimit(limit)[0]
            if most != resource.RLIM_INFINITY:
                left = min(left, float(most - taken * resource.getpagesize()))
    return left


@dataclass(frozen=True)
class ProcessMemory:
    """The memory of a process, in bytes.

    Attributes:
        resident: what it has in memory now, with what it shares with other processes, such as libraries.
        peak: the most that was ever resident.
        proportional: what is resident, where a page that N processes share counts as an N-th of one.
    """

    resident: int
    peak: int
    proportional: int


def process_memory(process: int) -> ProcessMemory | None:
    """The memory of a process, by its number; None where there is none, or where the system is not Linux.

    >>> mine = process_memory(os.getpid())
    >>> mine is None or mine.proportional <= mine.resident <= mine.peak
    True
    """
    try:
        status, shares = (Path(f"/proc/{process}/{name}").read_text() for name in ("status", "smaps_rollup"))
        return ProcessMemory(_kilobytes(status, "VmRSS:"), _kilobytes(status, "VmHWM:"), _kilobytes(shares, "Pss:"))
    except (OSError, KeyError, ValueError):
        return None


def children_of(process: int) -> list[int]:
    """The numbers of the processes that a process has started; none on systems other than Linux."""
    with suppress(OSError, ValueError):
        found = [file.read_text().split() for file in Path(f"/proc/{process}/task").glob("*/children")]
        return [int(number) for part in found for number in part]
    return []


def _kilobytes(text: str, name: str) -> int:
    """The bytes in a line such as `VmRSS:  1234 kB`."""
    found = {line.split()[0]: line.split()[1] for line in text.splitlines() if line.endswith(" kB")}
    return int(found[name]) * 1024


class PeakMemory:
    """Measures the most memory that tensors take at once within it, beyond what was there before.

    On a GPU the allocator counts. On a CPU there is no such counter, and what the system says of a process hardly
    falls when tensors are freed, so every tensor that an operation makes is counted from its making to its end.

    Args:
        device: where the tensors are.
        known: tensors that were there before and may be changed in place.
        limit: bytes at which a `MemoryError` ends the work on a CPU; before the system would end the process.

    >>> with PeakMemory(torch.device("cpu")) as measured:
    ...     x = torch.zeros(1000)
    ...     for _ in range(3):
    ...         y = x + 1
    >>> 8000 <= measured.peak <= 12000
    True
    """

    def __init__(self, device: torch.device, known: Iterable[torch.Tensor] = (), limit: float = _UNLIMITED) -> None:
        self.device = device
        self.peak = 0
        self._counter = _Counter(known, limit) if device.type != "cuda" else None

    def __enter__(self) -> PeakMemory:
        if self._counter is not None:
            self._counter.__enter__()  # type: ignore[no-untyped-call]
        else:
            torch.cuda.synchronize(self.device)
            torch.cuda.reset_peak_memory_stats(self.device)
            self._before = torch.cuda.memory_allocated(self.device)
        return self

    def restart(self) -> int:
        """The peak so far; from now on that of what follows is measured, of all that is still there."""
        if self._counter is not None:
            peak, self._counter.peak = self._counter.peak, self._counter.live
        else:
            torch.cuda.synchronize(self.device)
            peak = torch.cuda.max_memory_allocated(self.device) - self._before
            torch.cuda.reset_peak_memory_stats(self.device)
        return peak

    def __exit__(self, *error: Any) -> None:
        self.peak = self.restart()
        if self._counter is not None:
            self._counter.__exit__(*error)  # type: ignore[no-untyped-call]


class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the storage of every tensor that an operation returns, until nothing refers to it."""

    def __init__(self, known: Iterable[torch.Tensor], limit: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live = self.peak = 0
        self._limit = limit
        self._seen: weakref.WeakSet[torch.UntypedStorage] = weakref.WeakSet(x.untyped_storage() for x in known)

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, torch.Tensor):
                self._count(tensor.untyped_storage())
        return made

    def _count(self, storage: torch.UntypedStorage) -> None:
        if storage in self._seen:
            return
        self._seen.add(storage)
        size = storage.nbytes()
        self.live += size
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._forget, size)
        if self.live > self._limit:
            raise MemoryError(f"tensors take more than {in_gigabytes(self._limit)}")

    def _forget(self, size: int) -> None:
        self.live -= size
