"""What is judged is judged in float32, and what training had switched on comes back."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from arrn.runs import evaluate_run, evaluating
from arrn.runs.device import true_float32


def switches() -> tuple[bool, str]:
    return torch.backends.cudnn.allow_tf32, torch.get_float32_matmul_precision()


@pytest.fixture
def _as_training_leaves_it() -> Iterator[None]:
    before = switches()
    torch.backends.cudnn.allow_tf32 = True
    torch.set_float32_matmul_precision("high")
    yield
    torch.backends.cudnn.allow_tf32 = before[0]
    torch.set_float32_matmul_precision(before[1])


@pytest.mark.usefixtures("_as_training_leaves_it")
def test_tf32_is_off_within_and_as_before_afterwards() -> None:
    with true_float32():
        assert switches() == (False, "highest")
    assert switches() == (True, "high")
    with pytest.raises(KeyError), true_float32():
        raise KeyError
    assert switches() == (True, "high")


@pytest.mark.usefixtures("_as_training_leaves_it")
def test_networks_are_judged_without_tf32(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    evaluate = evaluating.evaluate

    def watched(*arguments: Any) -> Any:
        seen.append(switches())
        return evaluate(*arguments)

    monkeypatch.setattr(evaluating, "evaluate", watched)
    evaluate_run(finished, [8], device="cpu")
    assert seen == [(False, "highest")]
    assert switches() == (True, "high")
