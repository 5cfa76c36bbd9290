"""Makes torchvision's ResNet50 adaptive in five lines, and prints the multiply-adds at each resolution.

python examples/adapt_resnet50.py
"""
# ruff: noqa: T201

from __future__ import annotations

import torch
import torchvision

import arrn


def main(size: int = 64) -> dict[int, int]:
    """Transplants the network and evaluates it at every size of its ladder.

    Returns:
        The multiply-adds at each size.
    """
    # --- the five lines --------------------------------------------------------------------------
    source = torchvision.models.resnet50(weights=None)  # weights="DEFAULT" starts from ImageNet
    model = arrn.transplant(source, size=size, num_classes=10, dropout=0.3)
    model.eval()
    logits = model(torch.rand(2, 3, size // 2, size // 2))  # any size: here the first level is skipped
    small = model.at_resolution(size // 4)  # a plain module for one size: exports and compiles
    # ---------------------------------------------------------------------------------------------
    print(model)
    print(
        f"logits {tuple(logits.shape)}; cast to {small.size}: {arrn.nn.count_parameters(small) / 1e6:.1f} M parameters"
    )
    costs = {}
    for grid in model.grids:
        x = torch.rand(2, 3, *grid)
        costs[grid[0]] = arrn.nn.multiply_adds(model.at_resolution(grid), (1, 3, *grid))
        error = arrn.testing.adaptation_discrepancy(model, x)
        print(f"{grid[0]:4}x{grid[1]:<4} {costs[grid[0]] / 1e6:8.1f} M multiply-adds, error of skipping {error:.0e}")
    return costs


if __name__ == "__main__":
    main()
