"""`sample`: 5,000 + 1,000 images of CIFAR-10 inside the package, so that everything runs offline.

The first 500 training and the first 100 test images of each class, in the original order, as lossy WebP.
`tools/make_sample.py` made the files. CIFAR-10 is by Alex Krizhevsky, Vinod Nair and Geoffrey Hinton: Alex
Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009, https://www.cs.toronto.edu/~kriz/cifar.html
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["SAMPLE_FOLDER"]

SAMPLE_FOLDER = Path(__file__).parent / "sample"
