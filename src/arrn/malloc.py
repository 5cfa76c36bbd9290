"""The memory allocator of the C library: large blocks that were freed are kept for the next ones."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Iterator
from contextlib import contextmanager

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # glibc's malloc.h
_DEFAULTS = {_M_TRIM_THRESHOLD: 128 * 1024, _M_MMAP_MAX: 65536}


def keep_freed_memory() -> None:
    """Lets glibc keep what torch frees, for the next tensor.

    By default every large tensor is fresh from the system, page by page: on a CPU that took more than half of the
    time of an evaluation (docs/performance.md). Other C libraries are left alone.
    """
    _tell_malloc({_M_MMAP_MAX: 0, _M_TRIM_THRESHOLD: 2**31 - 1})


@contextmanager
def freed_memory_kept() -> Iterator[None]:
    """`keep_freed_memory` within it; after it, what was kept goes back to the system."""
    keep_freed_memory()
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
