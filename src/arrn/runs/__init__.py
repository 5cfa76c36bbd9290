"""Runs: from a data set and a model's name to a trained, resumable, evaluated network."""

from arrn.runs.advising import Advice, advise
from arrn.runs.device import DEVICES, pick_device
from arrn.runs.evaluating import evaluate_run, load_network, open_samples
from arrn.runs.requests import Request, settle
from arrn.runs.run_folder import is_finished
from arrn.runs.settings import Machine, RunSettings, read_settings
from arrn.runs.splits import SPLITS, open_split
from arrn.runs.stopped import Stopped, finish_run, read_stopped
from arrn.runs.train_in_python import Trained, TrainingReport, train
from arrn.runs.training import run_training

__all__ = [
    "Advice",
    "advise",
    "DEVICES",
    "Machine",
    "Request",
    "RunSettings",
    "SPLITS",
    "Stopped",
    "Trained",
    "TrainingReport",
    "finish_run",
    "is_finished",
    "evaluate_run",
    "load_network",
    "open_samples",
    "open_split",
    "pick_device",
    "read_settings",
    "read_stopped",
    "run_training",
    "settle",
    "train",
]
