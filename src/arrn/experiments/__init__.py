"""The paper's experiments: which networks, trained how, with which results; and a search for better designs."""

from arrn.experiments.results import EXPERIMENTS, Result, read_results, write_result

__all__ = ["EXPERIMENTS", "Result", "read_results", "write_result"]
