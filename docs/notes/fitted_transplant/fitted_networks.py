"""A network that was trained at one resolution, transplanted and fitted: a builder for `arrn train --import`.

measure.sh says how it is used.
"""

import io
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import torch
from PIL import Image
from torch import nn

import arrn
from arrn.signal import resample


def build(run: str, images: str, count: int = 1024, form: str = "difference", fit: bool = True, dropout: float = 0.3,
          num_classes: int = 10, in_channels: int = 3) -> nn.Module:
    """The network of a run, as an ARRN.

    Args:
        run: the folder of the finished run of a fixed network.
        images: a parquet file of training images, of which the first are fitted to.
        count: how many.
        form: of the levels.
        fit: whether the projections are fitted.
        dropout: Laplacian dropout of the training that follows.
        num_classes: of the source, which are kept.
        in_channels: of the source.
    """
    source = arrn.load(run)
    size = source.grids[0]
    model = arrn.transplant(source.network, size=size[0], form=form, dropout=dropout).eval()
    if fit:
        x = source.metadata.normalise(first_images(Path(images), count))
        with torch.no_grad():
            left = model.fit_projections([x, x, *(resample(x, tuple(n // part for n in size)) for part in (2, 4))])
        print("relative errors of the fits:", [round(error, 3) for error in left])
    return model


def first_images(path: Path, count: int) -> torch.Tensor:
    """The first images of a parquet file, from 0 to 1, of shape (count, 3, height, width)."""
    column = next(pq.ParquetFile(path).iter_batches(count)).to_pydict()
    name = "img" if "img" in column else "image"
    decoded = [np.asarray(Image.open(io.BytesIO(entry["bytes"])).convert("RGB")) for entry in column[name]]
    return torch.from_numpy(np.stack(decoded)).permute(0, 3, 1, 2).float() / 255


if __name__ == "__main__":  # fitted_networks.py RUN IMAGES FORM FOLDER: saves the network as it is before any training
    run, images, form, folder = sys.argv[1:]
    import fitted_networks

    model = fitted_networks.build(run, images, form=form)
    model.metadata = arrn.load(run).metadata
    options = {"run": run, "images": images, "form": form}
    arrn.save(model, folder, builder="fitted_networks:build", options=options)
