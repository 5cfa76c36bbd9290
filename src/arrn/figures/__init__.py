"""The paper's figures, drawn from results and from pictures of real things; `arrn figures` saves them."""

from arrn.figures.catalog import FIGURES, choose_figures, draw_figures
from arrn.figures.style import Drawing
from arrn.figures.subject import Subject, open_subject

__all__ = ["FIGURES", "Drawing", "Subject", "choose_figures", "draw_figures", "open_subject"]
