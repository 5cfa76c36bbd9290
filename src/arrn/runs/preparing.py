"""From a run's settings and its samples to a training step and its batches, ready for the loop."""

from __future__ import annotations

import copy
import dataclasses
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from threading import Thread

import torch
from torch import nn

from arrn.data import (
    Augmentation,
    BadSample,
    Batch,
    Batches,
    Examined,
    Normalisation,
    Order,
    Placement,
    aspect_in_words,
    frame,
    measure_statistics,
    open_batches,
    stored_bytes,
)
from arrn.errors import ArrnError
from arrn.evaluation import affordable_batch, evaluate, is_uneven, settings_for
from arrn.metadata import Metadata
from arrn.models import model_options
from arrn.nn.arrn import ARRN
from arrn.nn.network import as_network, entry_grid, entry_kernel
from arrn.runs.batch_size import settle_batch
from arrn.runs.building import aspect_for, build_network
from arrn.runs.device import tune_device
from arrn.runs.settings import Machine, RunSettings
from arrn.runs.splits import RunData
from arrn.teamwork import Team
from arrn.training import Recipe, TrainingStep, Watcher
from arrn.training.step import order_memory

logger = logging.getLogger(__name__)

Validate = Callable[[nn.Module], Mapping[str, float]]


@dataclass(frozen=True)
class Prepared:
    """A run, ready to begin or to go on.

    Attributes:
        settings: of the run, with what was chosen as it began: the batch size, and Laplacian dropout.
        step: the network and its optimiser.
        recipe: the resolved one.
        batches: what is trained on.
        validate: what the loop calls after each epoch, where samples were held out.
        metadata: what is saved with the network.
        bad: samples that are left out although they could be read.
    """

    settings: RunSettings
    step: TrainingStep
    recipe: Recipe
    batches: Batches
    validate: Validate | None
    metadata: Metadata
    bad: tuple[BadSample, ...] = ()


def prepare(
    settings: RunSettings,
    data: RunData,
    *,
    machine: Machine,
    device: torch.device,
    team: Team,
    opened: ExitStack,
    order: Order | None = None,
    say: Callable[[str], None],
    watcher: Watcher | None = None,
    fresh: bool = True,
) -> Prepared:
    """Builds the network and opens the batches, of a size that fits the memory.

    Args:
        settings: what to train, how.
        data: on what.
        machine: how it is carried out.
        device: of this process.
        team: the processes of the run.
        opened: closes the batches when the run ends.
        order: how epochs are shuffled, in a run that goes on.
        say: told, in a line, of what a user should know.
        watcher: told how many samples are in memory.
        fresh: whether the run begins, and does not go on.

    Raises:
        ArrnError: for a batch that takes more memory than there is.
    """

    def batches_of(examined: Examined, placement: Placement, batch_size: int, order: Order | None = None) -> Batches:
        def tell(done: int) -> None:
            if watcher is not None:
                watcher.samples_seen("reading", done, len(examined.sizes))

        return opened.enter_context(
            open_batches(
                examined,
                placement,
                batch_size=batch_size,
                device=device,
                seed=settings.seed,
                stream=machine.stream,
                workers=machine.workers,
                progress=tell,
                team=team,
                memory=machine.shuffle_memory * 2**20,
                order=order,
            )
        )

    model, recipe = build_network(settings, data.train, say, fresh)
    form = data.train.source.form
    order_memory(share_norms(model, machine, team, device).to(device), form.ndim)
    aspect = aspect_for(model, settings.aspect, form.ndim)
    train, held_out = frame(data.train, aspect, settings.skip_bad), data.validation
    if held_out is not None:
        held_out = frame(held_out, aspect, settings.skip_bad)
    if form.ndim > 1 and (line := aspect_in_words(data.train, aspect)) is not None:
        say(line)
    placement = Placement.by(lambda size: entry_grid(model, size), train.sizes, entry_kernel(model))
    grids = set(placement.targets.values())
    tune_device(device, one_shape=len(grids) == 1 and not machine.deterministic)

    def make_step(network: nn.Module, normalisation: Normalisation, steps: int, least: int = 0) -> TrainingStep:
        trial = network is not model
        return TrainingStep(
            network,
            Augmentation(normalisation, recipe.flip, recipe.crop_padding, recipe.trivial_augment, recipe.cutout),
            recipe,
            steps,
            settings.seed,
            compiled=machine.compiled and not trial,
            captured=machine.captured and not trial,
            team=Team() if trial else team,
            least_share=least,
            grids=grids,
        )

    plain = Normalisation((0.5,) * form.channels, (0.5,) * form.channels)
    batch_size = settle_batch(
        model,
        lambda network: make_step(network, plain, 1),
        recipe,
        form,
        counts=Counter(placement.targets[size] for size in train.sizes),
        team=team,
        kept=0 if machine.stream else stored_bytes(train, placement),
        say=say,
    )
    recipe = recipe.with_options({"batch_size": batch_size})
    meanwhile: AbstractContextManager[None] = nullcontext()
    if device.type == "cuda" and len(grids) == 1 and team.size == 1 and not machine.compiled:
        shape = (min(batch_size, len(train.sizes)), form.channels, *next(iter(grids)))
        meanwhile = warming_up(model, lambda network: make_step(network, plain, 1), shape, form.dtype)
    with meanwhile:
        batches = batches_of(train, placement, batch_size, order)
    least = least_share(batches, team)
    mean, std = data.dataset.mean, data.dataset.std
    start = as_network(model).metadata
    if settings.pretrained and start.mean is not None and start.std is not None:  # what the weights are used to
        mean, std = start.mean, start.std
    if mean is None or std is None:
        mean, std = measure_statistics(batches)
    normalisation = Normalisation(mean, std).to(device)
    validate = None
    if held_out is not None:
        sizes = held_out.sizes
        few = affordable_batch(batch_size, sizes)
        validate = _validation(batches_of(held_out, Placement.unchanged(sizes), few), normalisation)
    step = make_step(model, normalisation, recipe.epochs * len(batches), least)
    window = settings.window if form.ndim == 1 else None
    metadata = Metadata(mean, std, "perfect", data.dataset.class_names, window, settings.aspect)
    known = {*data.bad, *data.train.bad}
    bad = [error for part in (train, held_out) if part is not None for error in part.bad if error not in known]
    return Prepared(_settled(settings, batch_size, model), step, recipe, batches, validate, metadata, tuple(bad))


def _settled(settings: RunSettings, batch_size: int, model: nn.Module) -> RunSettings:
    """The settings with what was chosen as the run began, so that it goes on with the same."""
    options = dict(settings.options)
    if isinstance(model, ARRN) and not settings.recipe.shares:
        usual = model_options(settings.model).get("dropout")
        if "dropout" not in options and usual != model.dropout.p:
            options["dropout"] = model.dropout.p
    return dataclasses.replace(
        settings, options=options, recipe=settings.recipe.with_options({"batch_size": batch_size})
    )


def _validation(batches: Batches, normalisation: Normalisation) -> Validate:
    """What is called after each epoch: the accuracy on what was held out, as it comes."""

    def validate(model: nn.Module) -> Mapping[str, float]:
        policy = as_network(model).policy
        settings = settings_for(model, [None], [] if policy is None else [policy], adapt=[True])
        (answers,) = evaluate(model, batches, settings, normalisation)
        found = {"validation_accuracy": answers.accuracy}
        if is_uneven(answers.labels.bincount().tolist()):
            found["validation_balanced_accuracy"] = answers.balanced_accuracy
        return found

    return validate


def share_norms(model: nn.Module, machine: Machine, team: Team, device: torch.device) -> nn.Module:
    """The network, with batch norms over all processes if the machine is to have them.

    Raises:
        ArrnError: on a device for which PyTorch has none.
    """
    if not machine.sync_batch_norm or team.size == 1:
        return model
    if device.type != "cuda":
        raise ArrnError(
            f"PyTorch has synchronised batch norms for GPUs only, and the device is {device.type}: leave out "
            "--sync-batch-norm"
        )
    shared: nn.Module = nn.SyncBatchNorm.convert_sync_batchnorm(model)  # type: ignore[no-untyped-call]
    return shared


def least_share(batches: Batches, team: Team) -> int:
    """The fewest samples that a process gets of a batch.

    Raises:
        ArrnError: where some process would get none.
    """
    least = min(len(planned.places) for planned in batches.plan(0))
    if least < team.size:
        raise ArrnError(
            f"a batch of {least} samples cannot be shared by {team.size} processes: take a larger batch_size"
        )
    return least // team.size


@contextmanager
def warming_up(
    model: nn.Module, make_step: Callable[[nn.Module], TrainingStep], shape: tuple[int, ...], dtype: torch.dtype
) -> Iterator[None]:
    """Takes a step in the background, on a copy of the network, while samples are still read; leaving waits for it.

    On a GPU the first step of all compiles kernels and tries out algorithms, a quarter of a minute in which the
    processor has little to do; reading samples takes as long and leaves the GPU idle. The network, its optimiser and
    what is drawn at random later stay as they are: every step draws from a seed of its own.

    Args:
        model: on its device; a copy of it is trained.
        make_step: how it will be trained, by steps that are not recorded.
        shape: of the batches to come, (batch, channels, *grid).
        dtype: that samples are stored in.
    """
    thread = Thread(target=_take_step, args=(copy.deepcopy(model), make_step, shape, dtype), name="warm-up")
    thread.start()
    try:
        yield
    finally:
        thread.join()


def _take_step(
    model: nn.Module, make_step: Callable[[nn.Module], TrainingStep], shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    try:
        device = next(model.parameters()).device
        labels = torch.zeros(shape[0], dtype=torch.int64, device=device)
        batch = Batch(torch.zeros(shape, dtype=dtype, device=device), labels)
        step = make_step(model.train())
        step(batch, 0)
        _ = step.totals  # waits for the device
    except Exception as error:  # what is wrong will be wrong again, and told, when it matters
        logger.debug("the warm-up failed: %s", error)
