"""Runs: from a data set and a model's name to a trained, resumable, evaluated network."""

from arrn.experiments.device import DEVICES, pick_device
from arrn.experiments.folder import is_finished
from arrn.experiments.judging import judge, load_network
from arrn.experiments.machine import Machine
from arrn.experiments.results import EXPERIMENTS, Result, read_results, write_result
from arrn.experiments.run import run_training
from arrn.experiments.settings import RunSettings, read_settings
from arrn.experiments.splits import SPLITS, open_split

__all__ = [
    "DEVICES",
    "EXPERIMENTS",
    "SPLITS",
    "Machine",
    "Result",
    "RunSettings",
    "is_finished",
    "judge",
    "load_network",
    "open_split",
    "pick_device",
    "read_results",
    "read_settings",
    "run_training",
    "write_result",
]
