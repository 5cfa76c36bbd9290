"""Training: the recipe as data, the step, the loop, and checkpoints that survive anything."""

from arrn.training.checkpoints import Checkpoint, Checkpoints
from arrn.training.interruption import StopRequest, stop_on_signals
from arrn.training.log import Log, read_log
from arrn.training.loop import Watcher, resume_from, train
from arrn.training.recipe import PAPER_CIFAR, PAPER_LARGER_IMAGES, RECIPES, Recipe, read_recipe
from arrn.training.step import TrainingStep, learning_rate, make_optimizer

__all__ = [
    "PAPER_CIFAR",
    "PAPER_LARGER_IMAGES",
    "RECIPES",
    "Checkpoint",
    "Checkpoints",
    "Log",
    "Recipe",
    "StopRequest",
    "TrainingStep",
    "Watcher",
    "learning_rate",
    "make_optimizer",
    "read_log",
    "read_recipe",
    "resume_from",
    "stop_on_signals",
    "train",
]
