"""Memory as a program that computes for minutes should have it; a library leaves that to the program."""

from __future__ import annotations

import ctypes
import platform

__all__ = ["keep_freed_memory"]

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # glibc's malloc.h


def keep_freed_memory() -> None:
    """Lets glibc keep what torch frees, for the next tensor.

    By default every large tensor is fresh from the system, page by page: on a CPU that took more than half of the
    time of an evaluation (docs/performance.md). Other C libraries are left alone.
    """
    if platform.libc_ver()[0] == "glibc":
        library = ctypes.CDLL(None)
        library.mallopt(_M_MMAP_MAX, 0)
        library.mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)
