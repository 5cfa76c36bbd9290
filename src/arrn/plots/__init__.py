"""Pictures of signals, kernels and networks, drawn by matplotlib in one style.

What is named `draw_...` gives a figure, for `save_figure` to write; what is named `plot_...` writes it itself.
"""

from arrn.plots.ablation import draw_ablation
from arrn.plots.accuracy import accuracy_lines, plot_accuracy
from arrn.plots.architectures import ARCHITECTURES
from arrn.plots.bandwidth import draw_bandwidth
from arrn.plots.curves import Curve, Point
from arrn.plots.decision_tree import draw_decision_tree
from arrn.plots.efficiency import Saving, draw_efficiency
from arrn.plots.features import draw_features
from arrn.plots.generalization import draw_generalization
from arrn.plots.kernel_quality import plot_kernel_quality
from arrn.plots.pareto import ParetoPoint, plot_pareto
from arrn.plots.pyramid import draw_pyramid
from arrn.plots.robustness import draw_robustness
from arrn.plots.style import save_figure

__all__ = [
    "ARCHITECTURES",
    "Curve",
    "ParetoPoint",
    "Point",
    "Saving",
    "accuracy_lines",
    "draw_ablation",
    "draw_bandwidth",
    "draw_decision_tree",
    "draw_efficiency",
    "draw_features",
    "draw_generalization",
    "draw_pyramid",
    "draw_robustness",
    "plot_accuracy",
    "plot_kernel_quality",
    "plot_pareto",
    "save_figure",
]
