"""Working through many samples in order, by threads where they pay."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

__all__ = ["in_chunks"]

Result = TypeVar("Result")

CHUNK = 64
# Seconds a sample. Threads gain on slow disks and large images; on small ones they lose half to Python's lock.
THREADS_PAY_FROM = 1e-3


def in_chunks(work: Callable[[range], Result], count: int) -> Iterator[Result]:
    """``work`` on each chunk of ``range(count)``, in order; closing the iterator drops what is still to do.

    The first two chunks are done here; how long the second takes tells whether the others are worth threads (the
    first one also loads decoders and opens files).

    >>> list(in_chunks(len, 150))
    [64, 64, 22]
    """
    chunks = [range(start, min(start + CHUNK, count)) for start in range(0, count, CHUNK)]
    yield from map(work, chunks[:1])
    begin = time.perf_counter()
    timed = [work(chunk) for chunk in chunks[1:2]]
    taken = time.perf_counter() - begin
    yield from timed
    if taken < THREADS_PAY_FROM * CHUNK:
        yield from map(work, chunks[2:])
        return
    pool = ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1))
    try:
        yield from pool.map(work, chunks[2:])
    finally:
        pool.shutdown(cancel_futures=True)
