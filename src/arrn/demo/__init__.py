"""The demonstration: three small networks trained on the shipped sample, judged at many resolutions."""

from arrn.demo.page import Showing, show_answers, write_report
from arrn.demo.trial import CONTENDERS, COST_COLUMNS, RESOLUTIONS, Contender, Cost, measure_costs, train_and_evaluate

__all__ = [
    "CONTENDERS",
    "COST_COLUMNS",
    "RESOLUTIONS",
    "Contender",
    "Cost",
    "Showing",
    "measure_costs",
    "show_answers",
    "train_and_evaluate",
    "write_report",
]
