"""`arrn.train`: what the command `arrn train` does, as one call that returns the network and its report."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn

from arrn.data import suggesting_skip_bad
from arrn.errors import ArrnError, needs
from arrn.evaluation import Report
from arrn.models.registry import importing
from arrn.nn.network import as_network
from arrn.runs.evaluating import evaluate_run
from arrn.runs.requests import Request, settle
from arrn.runs.run_folder import LOG
from arrn.runs.settings import Machine, RunSettings, read_run_file, read_settings
from arrn.runs.training import run_training
from arrn.runtime.elements import Markup, element, join, notebook_table
from arrn.saving import load
from arrn.training import Recipe
from arrn.training.log import read_log

if TYPE_CHECKING:
    from arrn.watching import Teller

_FLAG = re.compile(r"--([a-z]+(?:-[a-z]+)*)(?: ([A-Z]+\b|\d+(?:\.\d+)?|auto|best|cpu|crop|pad))?")
_SWITCHES = ("resume", "skip-bad", "pretrained", "sync-batch-norm")


@dataclass(frozen=True, repr=False)
class TrainingReport:
    """The result of a run. `print` shows a report as lines, a notebook as tables.

    Attributes:
        folder: the run's folder, with the network, its log and its checkpoints.
        settings: all settings that decided the result, including those that `train` chose.
        epochs: the log's entry for each epoch: loss, accuracy, validation_accuracy, seconds and more.
        evaluation: the accuracy on the validation samples, at several resolutions; None without validation samples.
    """

    folder: Path
    settings: RunSettings
    epochs: Sequence[Mapping[str, Any]]
    evaluation: Report | None = None

    @property
    def accuracies(self) -> dict[int | None, float]:
        """The accuracy on the validation samples at each resolution; the key None is for samples at their own size."""
        results = [] if self.evaluation is None else self.evaluation.results
        return {result["resolution"]: result["accuracy"] for result in results}

    def evaluate(self, resolutions: Sequence[int] = (), **options: Any) -> Report:
        """Evaluates the network on the test split, as `arrn evaluate` does.

        Args:
            resolutions: the resolutions to measure; if empty, a range that suits the samples.
            options: options of `arrn.runs.evaluate_run`, such as ``split="validation"`` or ``dataset="folder"``.
        """
        with _in_words_of_python():
            return evaluate_run(self.folder, resolutions, **options)

    def __repr__(self) -> str:
        validated = [f"  {name:>12}: {accuracy}" for name, accuracy in self._rows()]
        title = ["accuracy on the validation samples, by resolution:"] if validated else []
        return "\n".join([self._trained(), *title, *validated, f"folder: {self.folder}"])

    def _repr_html_(self) -> str:
        parts: list[Markup] = [element("div", self._trained(), style="margin: .3em .8em")]
        if rows := self._rows():
            parts.append(notebook_table(("resolution", "accuracy"), rows, "On the validation samples", right=(0, 1)))
        folder = element("div", "folder: ", element("code", str(self.folder)), style="margin: .3em .8em")
        return element("div", join([*parts, folder]))

    def _trained(self) -> str:
        last = f", at the end loss {self.epochs[-1]['loss']:.3f}" if self.epochs else ""
        count = f"{len(self.epochs)} epoch{'s' * (len(self.epochs) != 1)}"
        return f"{self.settings.model} on {Path(self.settings.dataset).name}, {count}{last}"

    def _rows(self) -> list[tuple[str, str]]:
        return [("as they come" if n is None else str(n), f"{share:.1%}") for n, share in self.accuracies.items()]


class Trained(NamedTuple):
    """What `arrn.train` returns.

    Attributes:
        model: the network, as `arrn.load` returns it: with its metadata, in evaluation mode, in float32, on the CPU.
        report: the report of the run.
    """

    model: nn.Module
    report: TrainingReport


def train(
    dataset: str | os.PathLike[str] | None = None,
    *,
    model: str | None = None,
    epochs: int | None = None,
    out: str | os.PathLike[str] | None = None,
    pretrained: bool = False,
    options: Mapping[str, Any] | None = None,
    dropout: float | Sequence[float] | None = None,
    batch_size: int | str | None = None,
    learning_rate: float | None = None,
    recipe: Recipe | Mapping[str, Any] | str | os.PathLike[str] | None = None,
    holdout: int | None = None,
    keep: str | None = None,
    seed: int | None = None,
    data: str | os.PathLike[str] | None = None,
    aspect: str | None = None,
    window: float | None = None,
    sample_rate: int | None = None,
    skip_bad: bool = False,
    resume: bool = False,
    device: str = "auto",
    machine: Machine | None = None,
    imports: Sequence[str] = (),
    evaluate: bool = True,
    progress: bool = True,
) -> Trained:
    """Trains a network and returns the network and a report: the command `arrn train`, with its defaults, as one call.

    The run's folder is the same as after the command: `arrn evaluate`, `arrn predict` and `arrn train --resume` take
    it. If there are validation samples, the network is evaluated on these samples at several resolutions in the end.

    Args:
        dataset: a name such as "sample" or "cifar10"; the path of a folder with a folder for each class, of parquet or
            tar files, or of an npz file; or an address such as "s3://bucket/folder". With `resume` the data set may be
            left out.
        model: a model's name, as for `create_model`. By default the design for the data set; for a path of your own,
            the network that `arrn advise` proposes for the samples.
        epochs: the number of passes over the training set.
        out: the run's folder; by default runs/DATASET-MODEL-seedS.
        pretrained: whether to start from the weights that belong to the model's name.
        options: options of the model, such as ``{"sizes": (64, 32, 16)}``.
        dropout: the probability p of Laplacian dropout, one number for all levels or one for each level.
        batch_size: the number of samples in a step, or "auto" for a number that suits the data set and the memory.
        learning_rate: the learning rate at the start; it falls along half a cosine.
        recipe: a `Recipe`; options that differ from the default recipe, such as ``{"label_smoothing": 0.1}``; a
            recipe's name; or the path of a TOML file with options.
        holdout: the number of samples to keep out of the training set, for validation.
        keep: the epoch whose weights are saved: the "last" epoch, or the "best" epoch on the validation samples.
        seed: the seed of all random numbers, 0 by default.
        data: the folder that holds a data set that is given by its name.
        aspect: how to fit images of other proportions than the grids: "stretch", "pad" or "crop".
        window: the length of a sample of sound, in seconds.
        sample_rate: the sample rate of sound, in samples a second; by default the data set's own rate.
        skip_bad: whether to leave out samples that cannot be read, instead of raising an error.
        resume: whether to continue the run in `out`. For a finished run, its network and report are returned.
        device: "auto", "cpu", "cuda" or "mps".
        machine: more settings of how the run is carried out. `device` replaces its device, unless `device` is "auto".
        imports: modules of your own that build networks, for a model "package.module:function".
        evaluate: whether to evaluate the network on the validation samples.
        progress: whether to show the progress: a bar on a terminal, a table in a notebook, lines elsewhere.

    Raises:
        ArrnError: for a wrong argument or a wrong file; the message says what would be right.
        RunError: for a run that had to stop, such as by Ctrl-C; the same call with ``resume=True`` continues it.

    >>> import tempfile
    >>> options = {"sizes": (32, 16, 8), "features": (4, 8, 8), "depth": 1}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model, report = train(
    ...         "sample", model="arrn", options=options, epochs=1, holdout=4900, out=f"{folder}/run", progress=False
    ...     )
    >>> model.sizes, len(report.epochs), sorted(report.accuracies, reverse=True)[:3]
    ((32, 16, 8), 1, [32, 28, 24])
    """
    whole = recipe if isinstance(recipe, Recipe) else None if isinstance(recipe, Mapping | None) else Path(recipe)
    flags = {"epochs": epochs, "learning_rate": learning_rate, "batch_size": batch_size}
    changes = dict(recipe) if isinstance(recipe, Mapping) else {}
    given: dict[str, Any] = {"seed": seed, "holdout": holdout, "keep": keep, "aspect": aspect, "window": window}
    given |= {"sample_rate": sample_rate, "data": None if data is None else os.fspath(data)}
    given |= {"skip_bad": skip_bad or None, "pretrained": pretrained or None}
    machine = machine or Machine()
    machine = replace(machine, device=machine.device if device == "auto" else device)
    _check_kinds(dataset, model)
    request = Request(
        dataset=None if dataset is None else os.fspath(dataset),
        model=model,
        out=None if out is None else Path(out).expanduser(),
        recipe=whole,
        recipe_options=changes | {name: value for name, value in flags.items() if value is not None},
        options=dict(options or {}) | ({} if dropout is None else {"dropout": dropout}),
        settings=given,
        resume=resume,
    )
    with _showing(progress) as teller, _in_words_of_python(), importing(imports):

        def say(text: str) -> None:
            if teller is not None:
                teller.say(in_python(text))

        with suggesting_skip_bad("--skip-bad", skip_bad or resume):
            settings, folder = settle(request, device=machine.device, max_pixels=machine.max_pixels, say=say)
            run_training(settings, folder, machine, resume, teller, say)
        network = load(folder, torch.float32, imports=imports)
        evaluation = _evaluated(network, folder, machine, teller) if evaluate else None
    return Trained(
        network, TrainingReport(folder, read_settings(folder) or settings, read_log(folder / LOG), evaluation)
    )


def _evaluated(network: nn.Module, folder: Path, machine: Machine, teller: Teller | None) -> Report | None:
    """On the validation split, if there is one and this process is alone: by the network's own policy, skipping."""
    if "validation" not in read_run_file(folder).get("splits", []) or os.environ.get("WORLD_SIZE", "1") != "1":
        return None
    policy = as_network(network).policy
    return evaluate_run(
        folder,
        policies=("exact",) if policy is None else (policy,),
        adapt=(True,),
        split="validation",
        device=machine.device,
        stream=machine.stream,
        workers=machine.workers,
        max_pixels=machine.max_pixels,
        progress=None if teller is None else lambda done, total: teller.samples_seen("evaluating", done, total),
    )


@contextmanager
def _showing(wanted: bool) -> Iterator[Teller | None]:
    if not wanted:
        yield None
        return
    with needs("rich", "showing progress"):
        from arrn.watching import telling
    with telling() as teller:
        yield teller


def _check_kinds(dataset: object, model: object) -> None:
    """Refuses what other libraries take, with what this one takes instead."""
    if not isinstance(dataset, str | os.PathLike | None):
        raise ArrnError(
            f"the data set should be a name or the path of a folder or a file, got {_kind_of(dataset)}; write images "
            "in memory to a file first: numpy.savez('images.npz', train_images=IMAGES, train_labels=LABELS)"
        )
    if not isinstance(model, str | None):
        raise ArrnError(
            f"the model should be a name, so that the run can go on from its folder, got {_kind_of(model)}; for a "
            "network of your own, give the function that builds it: model='package.module:function', "
            "imports=['package.module']"
        )


def _kind_of(value: object) -> str:
    return f"{type(value).__name__} {value!r:.60}" if isinstance(value, int | float) else f"a {type(value).__name__}"


@contextmanager
def _in_words_of_python() -> Iterator[None]:
    """Within it, errors name arguments as a call has them, and not as flags of a command."""
    try:
        yield
    except ArrnError as error:
        error.args = (in_python(str(error)), *error.args[1:])
        raise


def in_python(text: str) -> str:
    """A message with arguments of a call for the flags of a command.

    >>> in_python("take --batch-size 32, or --batch-size auto; go on with --resume; give --data ROOT, or --holdout N")
    "take batch_size=32, or batch_size='auto'; go on with resume=True; give data=ROOT, or holdout=N"
    """

    def spell(found: re.Match[str]) -> str:
        flag, value = found.groups()
        name = flag.replace("-", "_")
        if value is None:
            return f"{name}=True" if flag in _SWITCHES else name
        return f"{name}={value!r}" if value.islower() else f"{name}={value}"

    return _FLAG.sub(spell, re.sub("`?arrn train --resume --out ([^`;]+)`?", r"arrn.train(resume=True, out=\1)", text))
