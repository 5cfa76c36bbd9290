"""Signals on cell-centred grids: smoothing kernels, resampling and Laplacian pyramids."""

from arrn.signal.kernels import KaiserSinc, Kernel, TruncatedGaussian, WhittakerShannon, kernel, kernel_options
from arrn.signal.pyramid import LaplacianPyramid
from arrn.signal.quality import KernelQuality, kernel_quality
from arrn.signal.resample import resample
from arrn.signal.spectral import resample_spectral

__all__ = [
    "KaiserSinc",
    "Kernel",
    "KernelQuality",
    "LaplacianPyramid",
    "TruncatedGaussian",
    "WhittakerShannon",
    "kernel",
    "kernel_options",
    "kernel_quality",
    "resample",
    "resample_spectral",
]
