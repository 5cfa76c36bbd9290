"""The encoded samples of batches to come, from chunks that are read in the background, each about once."""

from __future__ import annotations

import threading
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import torch

from arrn.data.chunks import ChunkedSource, EncodedChunk
from arrn.data.storage import AT_ONCE, AT_ONCE_ON_DISK, is_remote

_AHEAD_BYTES, _AHEAD_BYTES_ON_DISK = 2**26, 2**24  # of chunks that were asked for and not yet needed


def read_ahead(
    source: ChunkedSource, batches: Sequence[torch.Tensor], memory: int, threads: int | None = None
) -> Generator[list[bytes | None]]:
    """The encoded samples of each batch, in its order.

    A chunk is read when the first of its samples is needed soon, and what later batches need of it is kept. Where that
    takes more than `memory` bytes, the samples that are needed last are dropped, and their chunk is read again in time.
    Ending the iterator early leaves no thread at work.

    Args:
        source: of the samples.
        batches: the samples of each, none of them twice.
        memory: bytes of encoded samples that are kept at most, beside a batch and the chunks that come in.
        threads: that read; by default as many as suit where the files lie.
    """
    due = torch.full((len(source),), -1, dtype=torch.int32)
    for number, batch in enumerate(batches):
        due[batch] = number
    starts = torch.tensor(source.starts)
    given_up = threading.Event()
    kept: dict[int, tuple[int, bytes | None]] = {}
    coming: dict[int, Future[EncodedChunk]] = {}
    held = looked_at = 0
    remote = is_remote(source.files[0].address)
    ahead = _AHEAD_BYTES if remote else _AHEAD_BYTES_ON_DISK
    if threads is None:
        threads = AT_ONCE if remote else AT_ONCE_ON_DISK
    pool = ThreadPoolExecutor(threads, thread_name_prefix="read-ahead")

    def ask_for(batch: torch.Tensor) -> list[int]:
        """Has the chunks read that are needed for a batch, and neither here nor on their way; names all."""
        numbers = torch.searchsorted(starts, batch, right=True) - 1
        of_samples = zip(batch.tolist(), numbers.tolist(), strict=True)
        chunks = sorted({chunk for sample, chunk in of_samples if sample not in kept})
        for chunk in chunks:
            if chunk not in coming:
                coming[chunk] = pool.submit(source.read_chunk, chunk, given_up)
        return chunks

    try:
        for number, batch in enumerate(batches):
            needed = ask_for(batch)
            looked_at = max(looked_at, number + 1)
            for chunk in needed:
                encoded = coming.pop(chunk).result()
                inside = source.samples_of(chunk)
                turns = due[inside.start : inside.stop].tolist()
                for sample, turn, content in zip(inside, turns, encoded, strict=True):
                    if turn >= number and sample not in kept:
                        kept[sample] = turn, content
                        held += len(content or b"")
            while looked_at < len(batches) and sum(source.weights[chunk] for chunk in coming) < ahead:
                ask_for(batches[looked_at])
                looked_at += 1
            taken = [kept.pop(sample)[1] for sample in batch.tolist()]
            held -= sum(len(content or b"") for content in taken)
            if held > memory:
                held = _drop_last_needed(kept, held, memory * 9 // 10)
            yield taken
    finally:
        given_up.set()
        pool.shutdown(wait=False, cancel_futures=True)


def _drop_last_needed(kept: dict[int, tuple[int, bytes | None]], held: int, least: int) -> int:
    """Drops the samples whose turn comes last until so many bytes are left; returns how many there are."""
    for sample in sorted(kept, key=lambda sample: kept[sample][0], reverse=True):
        if held <= least:
            break
        held -= len(kept.pop(sample)[1] or b"")
    return held
