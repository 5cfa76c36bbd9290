"""Launching on the GPU where the input is: Triton launches on the current one, whatever it is given."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

import torch

__all__ = ["on_the_gpu_of_its_input"]

Rest = ParamSpec("Rest")
Result = TypeVar("Result")
Launch = Callable[Concatenate[torch.Tensor, Rest], Result]


def on_the_gpu_of_its_input(launch: Launch[Rest, Result]) -> Launch[Rest, Result]:
    """`launch`, run with the GPU of its first argument as the current one."""

    @wraps(launch)
    def placed(x: torch.Tensor, /, *args: Rest.args, **kwargs: Rest.kwargs) -> Result:
        # Changing it takes the host longer than asking; on a CPU kernels are interpreted.
        if not x.is_cuda or x.get_device() == torch.cuda.current_device():
            return launch(x, *args, **kwargs)
        with torch.cuda.device(x.device):
            return launch(x, *args, **kwargs)

    return placed
