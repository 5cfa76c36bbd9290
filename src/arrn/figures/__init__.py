"""The paper's figures, each from results or from a picture to its axes; `arrn figures` saves them.

What is named `draw_...` takes plain data and gives a figure, for `save_figure` to write; what is named `plot_...`
writes it itself; what is named `..._figure` makes a `Drawing` from results, or of a subject.
"""

from arrn.figures.ablation import draw_ablation, draw_decision_tree
from arrn.figures.accuracy import accuracy_lines, as_they_come, plot_accuracy
from arrn.figures.cascade import plot_cascade
from arrn.figures.catalog import FIGURES, choose_figures, draw_figures
from arrn.figures.curves import ARCHITECTURES, Curve, Point
from arrn.figures.efficiency import Saving, draw_efficiency
from arrn.figures.features import draw_features
from arrn.figures.kernels import draw_bandwidth, plot_kernel_quality
from arrn.figures.pareto import ParetoPoint, plot_pareto
from arrn.figures.pyramid import draw_pyramid
from arrn.figures.robustness import draw_generalization, draw_robustness
from arrn.figures.style import Drawing, save_figure
from arrn.figures.subject import Subject, open_subject

__all__ = [
    "ARCHITECTURES",
    "FIGURES",
    "Curve",
    "Drawing",
    "ParetoPoint",
    "Point",
    "Saving",
    "Subject",
    "accuracy_lines",
    "as_they_come",
    "choose_figures",
    "draw_ablation",
    "draw_bandwidth",
    "draw_decision_tree",
    "draw_efficiency",
    "draw_features",
    "draw_figures",
    "draw_generalization",
    "draw_pyramid",
    "draw_robustness",
    "open_subject",
    "plot_accuracy",
    "plot_cascade",
    "plot_kernel_quality",
    "plot_pareto",
    "save_figure",
]
