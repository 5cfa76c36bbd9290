"""Training: the recipe as data, the step, the loop, and checkpoints that survive anything."""

from arrn.training.best import METRICS, BestEpoch, put_weights
from arrn.training.checkpoints import Checkpoint, Checkpoints, result_tensors
from arrn.training.log import Log, read_log
from arrn.training.loop import StopRequest, Watcher, resume_from, stop_on_signals, train
from arrn.training.optimisation import learning_rate, make_optimizer
from arrn.training.recipe import FRONTIER, PAPER_CIFAR, PAPER_LARGER_IMAGES, RECIPES, Recipe, read_recipe, recipe_for
from arrn.training.step import TrainingStep

__all__ = [
    "METRICS",
    "PAPER_CIFAR",
    "PAPER_LARGER_IMAGES",
    "RECIPES",
    "BestEpoch",
    "Checkpoint",
    "Checkpoints",
    "FRONTIER",
    "Log",
    "Recipe",
    "StopRequest",
    "TrainingStep",
    "Watcher",
    "learning_rate",
    "make_optimizer",
    "put_weights",
    "read_log",
    "read_recipe",
    "recipe_for",
    "result_tensors",
    "resume_from",
    "stop_on_signals",
    "train",
]
