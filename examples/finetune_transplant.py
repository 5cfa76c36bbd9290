"""Fine-tuning a transplant: a small network, trained at 32x32, becomes adaptive and keeps its weights.

This program makes the images: a fine and a coarse grating of one orientation, under noise. The source, trained at full
resolution, relies on the fine grating, which lower resolutions do not have. Transplanted, and fine-tuned with
Laplacian dropout, the network learns to rely on the coarse grating there.

python examples/finetune_transplant.py
"""
# ruff: noqa: T201

from __future__ import annotations

import math

import torch
from torch import nn

import arrn
from arrn.signal import resample

SIZES = (32, 16, 8)
CLASSES = 6


def gratings(count: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Images of shape (count, 1, 32, 32) and their classes, the orientation of the gratings."""
    classes = torch.randint(CLASSES, (count,), generator=generator)
    angle = classes * math.pi / CLASSES
    axis = (torch.arange(32) + 0.5) / 32
    along = angle.cos().view(-1, 1, 1) * axis + angle.sin().view(-1, 1, 1) * axis[:, None]
    image = torch.randn(count, 32, 32, generator=generator)
    for frequency, amplitude in ((3, 0.4), (10, 1.0)):
        phase = 2 * math.pi * torch.rand(count, 1, 1, generator=generator)
        image += amplitude * torch.sin(2 * math.pi * frequency * along + phase)
    return image.unsqueeze(1), classes


def convolution(features: int, out: int) -> nn.Sequential:
    """A layer that halves the resolution."""
    return nn.Sequential(nn.Conv2d(features, out, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(out), nn.ReLU())


def train(model: nn.Module, groups: list[dict[str, object]], steps: int, generator: torch.Generator) -> None:
    """Trains on fresh gratings; `groups` are the optimiser's."""
    optimizer = torch.optim.AdamW(groups)
    model.train()
    for _ in range(steps):
        x, classes = gratings(64, generator)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), classes).backward()
        optimizer.step()
    model.eval()


@torch.no_grad()
def accuracy(model: nn.Module, size: int, fixed: bool) -> float:
    """How often the class is right at `size`; a fixed network is given the image interpolated back to 32x32."""
    x, classes = gratings(512, torch.Generator().manual_seed(1))
    x = resample(x, size)
    return float((model(resample(x, 32) if fixed else x).argmax(1) == classes).float().mean())


def main(steps: int = 60) -> dict[int, float]:
    """Trains, transplants, fine-tunes.

    Returns:
        The transplant's accuracy at each size.
    """
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    source = nn.Sequential(
        convolution(1, 16), convolution(16, 32), convolution(32, 64),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, CLASSES),
    )  # fmt: skip
    train(source, [{"params": list(source.parameters()), "lr": 3e-3}], steps, generator)

    model = arrn.transplant(source, size=32, dropout=0.5)
    print(model)
    added = [model.stem.weight, *(residual.projection.weight for residual in model.levels)]
    kept = [parameter for parameter in model.parameters() if all(parameter is not new for new in added)]
    # What is new learns fast, what was learned before slowly.
    train(model, [{"params": added, "lr": 1e-2}, {"params": kept, "lr": 3e-3}], steps, generator)

    print("size   source   transplant")
    results = {}
    for size in SIZES:
        results[size] = accuracy(model, size, fixed=False)
        print(f"{size:4}   {accuracy(source, size, fixed=True):6.1%}   {results[size]:6.1%}")
    return results


if __name__ == "__main__":
    main()
