"""Programs of torch.export and of ExecuTorch: they answer as the network does, and say what they cannot take."""

from pathlib import Path
from typing import Any

import pytest
import torch

import arrn
from arrn.deploy.export import export_network, noise
from arrn.deploy.parts import take_apart
from arrn.metadata import Metadata
from arrn.testing import awaken_norms


def saved(path: Path, **options: Any) -> Any:
    """A small network of two levels that behaves like a trained one, saved."""
    options = {"sizes": (9, 4), "features": (4, 6), "depth": 1, "expansion": 2, "num_classes": 4} | options
    model = arrn.create_model("arrn", **options)
    awaken_norms(model, torch.randn(6, model.in_channels, *model.grids[0]))
    channels = model.in_channels
    arrn.save(model, path, Metadata(mean=(0.45,) * channels, std=(0.2,) * channels))
    return arrn.load(path).eval()


def test_a_program_takes_any_batch_of_any_size_without_arrn(tmp_path: Path) -> None:
    model = saved(tmp_path / "saved")
    exported = export_network(tmp_path / "saved", tmp_path / "out", "pt2")
    assert exported.refused == ()
    assert exported.manifest.any_size
    parts = take_apart(model, model.metadata)
    for level, file in ((0, "level-9.pt2"), (1, "level-4.pt2")):
        program = torch.export.load(tmp_path / "out" / file).module()
        # Of a lower level: sizes that enter the network there.
        for batch, size in ((1, (3, 4)), (4, (2, 3)), *(((2, (9, 9)), (3, (20, 5))) if level == 0 else ())):
            stored = torch.from_numpy(noise(parts, batch, size))
            with torch.no_grad():
                found = program(stored)
                expected = parts.answer(parts.normalise(stored))
            assert (found - expected).abs().max() < 1e-5, (file, size)


@pytest.mark.parametrize(
    "options",
    [
        {"kernel": {"name": "perfect", "boundary": "periodic"}, "sizes": (8, 4)},  # the Nyquist bin goes
        {"kernel": "fair"},
        {"ndim": 3, "sizes": (6, 3), "in_channels": 1},
        {"form": "difference", "block": "dense"},
    ],
    ids=["periodic", "fair", "volume", "difference"],
)
def test_programs_of_other_networks(options: dict[str, Any], tmp_path: Path) -> None:
    saved(tmp_path / "saved", **options)
    exported = export_network(tmp_path / "saved", tmp_path / "out", "pt2")
    assert exported.refused == ()
    assert len(exported.manifest.levels) == 2


@pytest.mark.filterwarnings("ignore")  # of the package's own insides
def test_executorch_runs_its_programs(tmp_path: Path) -> None:
    pytest.importorskip("executorch.runtime")
    saved(tmp_path / "saved", block="dense", form="difference")
    exported = export_network(tmp_path / "saved", tmp_path / "out", "executorch")
    assert exported.refused == ()
    assert [level.exported.file for level in exported.manifest.levels] == ["level-9.pte", "level-4.pte"]


@pytest.mark.filterwarnings("ignore")
def test_executorch_takes_no_volumes(tmp_path: Path) -> None:
    pytest.importorskip("executorch.runtime")
    saved(tmp_path / "saved", ndim=3, sizes=(6, 3), in_channels=1)
    with pytest.raises(arrn.ArrnError, match="no convolutions over 3 axes: export networks for volumes with --to onnx"):
        export_network(tmp_path / "saved", tmp_path / "out", "executorch")
