"""Work beside the main line: what nothing waits for until the backward pass ends runs on a stream of its own.

The gradient of a weight is such work. Its matrix product has few tiles and leaves half of a large GPU idle, while the
main line goes on with passes over memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

__all__ = ["aside"]


@dataclass
class _SideLine:
    """A stream, and what its unfinished work reads: it must not be freed before the main line has waited."""

    stream: torch.cuda.Stream
    reading: list[torch.Tensor] = field(default_factory=list)

    def join(self) -> None:
        """The current stream waits for all that was given to this one."""
        if self.reading:
            torch.cuda.current_stream(self.stream.device).wait_stream(self.stream)
            self.reading.clear()


_LINES: dict[int, _SideLine] = {}


def aside(work: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> torch.Tensor:
    """``work(*inputs)``, in a backward pass whose end is the first to need the answer.

    Only while a CUDA graph is recorded, which keeps the two lines as branches; elsewhere the work is done at once:
    hooks on parameters, such as those of DistributedDataParallel, look at gradients as soon as they are there.

    One piece of work is under way at a time: the next one, or the end of the backward pass, waits for it. So what it
    reads lives no longer than it would have, but for one step of the main line.

    Args:
        work: a function of tensors that gives a new one.
        inputs: all that it reads.
    """
    device = inputs[0].device
    if device.type != "cuda" or not torch.cuda.is_current_stream_capturing():
        return work(*inputs)
    main = torch.cuda.current_stream(device)
    line = _LINES.get(main.device_index)
    if line is None:
        line = _LINES[main.device_index] = _SideLine(torch.cuda.Stream(device))  # type: ignore[no-untyped-call]
    line.join()
    line.stream.wait_stream(main)
    with torch.cuda.stream(line.stream):
        answer = work(*inputs)
    line.reading.extend(inputs)
    # Called in the thread, and on the stream, that asked for the backward pass.
    torch.autograd.Variable._execution_engine.queue_callback(line.join)
    return answer
