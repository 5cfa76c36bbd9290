"""The worked examples run, and show what they say they show."""

import runpy
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(name: str, **options: Any) -> dict[int, Any]:
    return runpy.run_path(str(EXAMPLES / name))["main"](**options)


def test_every_example_is_run_here() -> None:
    names = {path.name for path in EXAMPLES.glob("*.py")}
    assert names == {"adapt_resnet50.py", "finetune_transplant.py", "segmentation.py"}


def test_adapting_a_resnet50(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torchvision")
    costs = run("adapt_resnet50.py", size=32)
    assert list(costs) == [32, 16, 8, 4, 2]
    assert list(costs.values()) == sorted(set(costs.values()), reverse=True)
    assert "error of skipping" in capsys.readouterr().out


def test_finetuning_a_transplant(capsys: pytest.CaptureFixture[str]) -> None:
    accuracies = run("finetune_transplant.py")
    assert min(accuracies.values()) > 0.7
    source_at_8 = capsys.readouterr().out.splitlines()[-1].split()[1]
    assert float(source_at_8.rstrip("%")) < 50


def test_segmenting_scenes_of_photographs() -> None:
    pytest.importorskip("torchvision")
    shares = run("segmentation.py", steps=3, tested=20)
    assert list(shares) == ["with Laplacian dropout", "without"]
    for by_size in shares.values():
        assert list(by_size) == [32, 16, 8]
        assert all(0 < share < 1 for share in by_size.values())
