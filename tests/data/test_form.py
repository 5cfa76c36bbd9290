"""Samples that are no images: stored compactly, normalised, moved between grids and loaded like the others."""

from pathlib import Path

import numpy as np
import pytest
import torch

from arrn.data import Augmentation, Normalisation, Placement, examine, measure_statistics, open_batches, open_dataset
from arrn.signal import kernel, resample
from sounds import write_npz, write_tones

CPU = torch.device("cpu")


def test_sound_is_normalised_on_its_own_scale() -> None:
    sound = torch.randint(-32768, 32768, (4, 1, 50), dtype=torch.int16)
    given = Normalisation([0.1], [0.3])(sound)
    np.testing.assert_allclose(given.numpy(), (sound.numpy() / 32768 - 0.1) / 0.3, rtol=1e-4, atol=1e-5)
    floats = torch.rand(4, 1, 50)
    torch.testing.assert_close(Normalisation([0.1], [0.3])(floats), (floats - 0.1) / 0.3)


def test_sound_is_shifted_and_stays_forwards() -> None:
    ramp = torch.arange(1, 65, dtype=torch.int16)[None, None].expand(30, 1, 64)
    shown = Augmentation(Normalisation([0.0], [1 / 32768]), flip=False)(ramp)
    inside = shown[:, 0] > 0
    steps = shown[:, 0, 1:] - shown[:, 0, :-1]
    assert torch.allclose(steps[inside[:, 1:] & inside[:, :-1]], torch.ones(()))
    assert len({int(row.argmax()) for row in shown[:, 0]}) > 3


def test_sound_moves_between_grids_in_16_bits() -> None:
    sound = torch.randint(-32768, 32768, (1, 40), dtype=torch.int16)
    placed = Placement({(40,): (30,)}, kernel("perfect"))(sound)
    exact = resample(sound[None].double(), 30)[0].clamp(-32768, 32767)
    assert (placed.dtype, placed.shape) == (torch.int16, (1, 30))
    assert float((placed - exact).abs().max()) <= 0.51


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", ["sound", "volumes"])
def test_batches_and_statistics_are_those_of_the_samples(tmp_path: Path, kind: str, stream: bool) -> None:
    root = write_tones(tmp_path / "set", per_class=4) if kind == "sound" else write_npz(tmp_path / "set.npz")
    examined = examine(open_dataset(str(root)).train)
    source, scale = examined.source, 32768 if kind == "sound" else 255
    placement = Placement.unchanged(examined.sizes)
    with open_batches(examined, placement, batch_size=5, device=CPU, stream=stream, workers=0) as batches:
        read = torch.cat([batch.images for batch in batches.in_order()])
        mean, std = measure_statistics(batches)
    assert torch.equal(read, torch.stack([source.read(index) for index in range(len(source))]))
    assert read.dtype == source.form.dtype
    assert mean[0] == pytest.approx(float((read / scale).mean()), abs=1e-5)
    assert std[0] == pytest.approx(float((read / scale).std(correction=0)), rel=1e-3)
