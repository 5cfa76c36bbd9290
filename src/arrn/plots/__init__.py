"""Pictures of signals, kernels and networks, drawn by matplotlib in one style."""

from arrn.plots.accuracy import accuracy_lines, plot_accuracy
from arrn.plots.kernel_quality import plot_kernel_quality
from arrn.plots.pareto import ParetoPoint, plot_pareto
from arrn.plots.pyramid import plot_pyramid

__all__ = ["ParetoPoint", "accuracy_lines", "plot_accuracy", "plot_kernel_quality", "plot_pareto", "plot_pyramid"]
