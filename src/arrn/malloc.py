"""The memory allocator of the C library: large blocks that were freed are kept for the next ones."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Iterator
from contextlib import contextmanager

_M_TRIM_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -4, -8  # glibc's malloc.h
_KEEPING = {_M_MMAP_MAX: 0, _M_TRIM_THRESHOLD: 2**31 - 1}
_DEFAULTS = {_M_TRIM_THRESHOLD: 128 * 1024, _M_MMAP_MAX: 65536}


def keep_freed_memory() -> None:
    """Lets glibc keep what is freed, for the next tensor and for all threads; for a program of ours, until it ends.

    By default every large tensor is fresh from the system, page by page: on a CPU that took more than half of the
    time of an evaluation (docs/performance.md). Each thread would keep its own: 0.1 GB more where threads read samples
    that another thread drops (docs/large_data.md). Other C libraries are left alone.
    """
    _tell_malloc(_KEEPING | {_M_ARENA_MAX: 1})


@contextmanager
def freed_memory_kept() -> Iterator[None]:
    """Large blocks are kept within it; after it, what was kept goes back to the system."""
    _tell_malloc(_KEEPING)
    try:
        yield
    finally:
        _tell_malloc(_DEFAULTS)
        if platform.libc_ver()[0] == "glibc":
            ctypes.CDLL(None).malloc_trim(0)


def _tell_malloc(options: dict[int, int]) -> None:
    if platform.libc_ver()[0] == "glibc":
        library = ctypes.CDLL(None)
        for option, value in options.items():
            library.mallopt(option, value)
