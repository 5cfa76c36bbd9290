"""Pictures of signals, kernels and networks, drawn by matplotlib in one style."""

from arrn.plots.accuracy import accuracy_lines, plot_accuracy
from arrn.plots.efficiency import EfficiencyLine, plot_efficiency
from arrn.plots.kernel_quality import plot_kernel_quality
from arrn.plots.pyramid import plot_pyramid

__all__ = [
    "EfficiencyLine",
    "accuracy_lines",
    "plot_accuracy",
    "plot_efficiency",
    "plot_kernel_quality",
    "plot_pyramid",
]
