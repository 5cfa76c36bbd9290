"""Training: the recipe as data, the step, the loop, and checkpoints that survive anything."""

from arrn.training.checkpoints import Checkpoint, Checkpoints
from arrn.training.log import Log, read_log
from arrn.training.loop import StopRequest, Watcher, resume_from, stop_on_signals, train
from arrn.training.optimisation import learning_rate, make_optimizer
from arrn.training.recipe import FRONTIER, PAPER_CIFAR, PAPER_LARGER_IMAGES, RECIPES, Recipe, read_recipe, recipe_for
from arrn.training.step import TrainingStep

__all__ = [
    "PAPER_CIFAR",
    "PAPER_LARGER_IMAGES",
    "RECIPES",
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
    "read_log",
    "read_recipe",
    "recipe_for",
    "resume_from",
    "stop_on_signals",
    "train",
]
