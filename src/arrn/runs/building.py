"""From a run's settings and its data to the network, with what a user should know about how they fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from arrn.creating import create_model as pretrained_model
from arrn.data import Examined, Form, frame, word_for
from arrn.data.epochs import derive_seed
from arrn.errors import ArrnError, unknown_name
from arrn.model_folder import shipped_weights
from arrn.models import create_model, model_options
from arrn.models.registry import is_builtin, is_of_library, takes_option
from arrn.models.rivals import SwitchableNetwork
from arrn.models.transplanting import source_network
from arrn.nn.arrn import ARRN
from arrn.nn.backbone import Backbone
from arrn.nn.dropout import LaplacianDropout
from arrn.nn.network import Network, as_network, note_option, signal_axes
from arrn.runs.settings import RunSettings
from arrn.runtime.aspect import Aspect
from arrn.signal.grid import Grid, covers, format_grid
from arrn.training.recipe import Recipe
from arrn.training.step import dropout_for

USUAL_DROPOUT = 0.4
"""Laplacian dropout's p of a run, for networks that are built without: the generic ladder and transplants.

Measured on small networks of three and four levels (docs/choosing.md).
"""

_SUITED = {1: "arrn_audio_small", 2: "arrn_small", 3: "arrn_volume_small"}


def aspect_for(model: nn.Module, mode: str, ndim: int) -> Aspect:
    """What a network of the mode `mode` does with samples of other proportions than its grids.

    Raises:
        ArrnError: for sound, which has none, unless it is "stretch", which does nothing.
    """
    if ndim == 1 and mode != "stretch":
        raise ArrnError(f"aspect is for images and volumes, and sound has one axis: leave out aspect={mode!r}")
    grids = as_network(model).grids
    return Aspect(mode, grids[0] if grids else (1,) * ndim)


def build_network(
    settings: RunSettings, train: Examined, say: Callable[[str], None], fresh: bool = True
) -> tuple[nn.Module, Recipe]:
    """The network of a run, with as many classes and channels as the data have, and the recipe that suits it.

    A fixed-resolution network is made for the size that most of the training samples have, unless its
    options say otherwise; a switchable one is trained at all of its sizes. Sound is never mirrored.

    Args:
        settings: of the run.
        train: the samples.
        say: told, in a line, of what a user should know.
        fresh: whether the run begins: then an ARRN has Laplacian dropout unless its options say otherwise. One that
            goes on has what it began with.
    """
    form, options = train.source.form, _complete_options(settings, train)
    torch.manual_seed(derive_seed(settings.seed, "weights"))
    model = _create(settings.model, options, settings.pretrained)
    check_fit(model, settings.model, form, train.source.name)
    if form.ndim != 1 and (settings.window != 1.0 or settings.sample_rate is not None):
        raise ArrnError(f"--window and --sample-rate are for sound, but {train.source.name!r} holds {form.words}")
    recipe = settings.recipe
    if form.ndim == 1 and recipe.flip:
        recipe = recipe.with_options({"flip": False})
        say("flip = false: training does not reverse sound")
    if isinstance(model, Network) and model.adapts:
        if "policy" in options:
            recipe = recipe.with_options({"policy": model.policy})
        model.policy = recipe.policy
        framed = frame(train, aspect_for(model, settings.aspect, form.ndim), settings.skip_bad)
        _compare_sizes(model.grids, framed, word_for(form.ndim), say)
    if recipe.shares:
        recipe = _with_shares(model, recipe, settings, say)
    elif isinstance(model, ARRN) and fresh:
        _see_to_dropout(model, "dropout" in settings.options, say)
    if isinstance(model, SwitchableNetwork) and not recipe.resolutions:
        sizes = [max(grid) for grid in model.grids]
        recipe = recipe.with_options({"resolutions": sizes})
        say(f"a switchable network learns at each of its sizes: resolutions = {sizes}")
    return model, recipe


def _with_shares(model: nn.Module, recipe: Recipe, settings: RunSettings, say: Callable[[str], None]) -> Recipe:
    """Gives an ARRN the dropout that its recipe's shares ask for, and the recipe of others their resolutions."""
    every = [shares for shares in (recipe.shares, recipe.final_shares) if shares]
    named = sorted({n for shares in every for n, share in shares if share > 0}, reverse=True)
    if isinstance(model, ARRN):
        if "dropout" in settings.options:
            raise ArrnError(
                f"the recipe's shares decide how often levels are dropped: leave out dropout="
                f"{settings.options['dropout']!r}, or the shares"
            )
        if recipe.resolutions:
            raise ArrnError(
                "the recipe has shares and resolutions, but an ARRN takes its resolutions from the shares: leave out "
                "one of them"
            )
        rates = [dropout_for(model, shares) for shares in every]
        model.dropout.p = rates[0]
        note_option(model, "dropout", rates[0])
        say(f"the shares {dict(recipe.shares)} give a dropout of {', '.join(f'{p:.3g}' for p in rates[0])}")
        return recipe
    if not recipe.resolutions:
        recipe = recipe.with_options({"resolutions": named})
        say(f"resolutions = {named}, from the shares")
    if unknown := sorted(set(named) - set(recipe.resolutions), reverse=True):
        raise ArrnError(
            f"the recipe's shares name {unknown}, but its resolutions are {list(recipe.resolutions)}: leave out "
            "resolutions"
        )
    if isinstance(model, SwitchableNetwork):
        trained = {model.entry_grid((n,) * model.ndim) for n in named}
        idle = [format_grid(grid) for grid in model.grids if grid not in trained]
        if idle:
            raise ArrnError(f"a switchable network learns at each of its sizes, but the shares leave out {idle}")
    return recipe


def _see_to_dropout(model: ARRN, chosen: bool, say: Callable[[str], None]) -> None:
    """Gives a network that has no Laplacian dropout the usual one, or says what training without it costs."""
    levels = len(model.droppable())
    if levels == 0 or any(model.dropout.rates(levels)):
        return
    if chosen:
        say(
            "training without Laplacian dropout (p = 0): the network will be best at its full resolution, and far less "
            f"accurate at lower resolutions; --dropout {USUAL_DROPOUT} is usual (docs/choosing.md)"
        )
        return
    model.dropout = LaplacianDropout(USUAL_DROPOUT, model.dropout.draw)
    note_option(model, "dropout", USUAL_DROPOUT)
    say(
        f"Laplacian dropout p = {USUAL_DROPOUT}, so that the network learns lower resolutions too; --dropout sets "
        "another p, and p = 0 turns dropout off"
    )


def check_names(settings: RunSettings) -> None:
    """Refuses a model, or an option of it, by a name that there is not: before any sample is read, which takes long."""
    known = model_options(settings.model)
    for name in settings.options:
        if not takes_option(settings.model, name):
            raise unknown_name(f"option of model {settings.model!r}:", name, known)


def check_values(settings: RunSettings) -> None:
    """Refuses options that no network can be built with, and weights that there are not, before samples are read.

    How many axes the samples have is not known yet, so a ladder is refused if it can be built for none of 1 to 3.
    """
    if settings.pretrained and is_of_library(settings.model):
        library, _, network = settings.model.partition(":")
        source_network(library, network, 1, pretrained=True)
    elif settings.pretrained:
        shipped_weights(settings.model)
    if is_of_library(settings.model) or not is_builtin(settings.model):
        return
    options, refused = dict(settings.options), list[ArrnError]()
    axes: list[dict[str, int]] = [{}]
    if "ndim" in model_options(settings.model) and "ndim" not in options:
        sizes = options.get("sizes")
        named = len(sizes[0]) if isinstance(sizes, list | tuple) and sizes and isinstance(sizes[0], list | tuple) else 2
        axes = [{"ndim": ndim} for ndim in sorted((2, 1, 3), key=lambda ndim: ndim != named)]
    for chosen in axes:
        try:
            with torch.device("meta"):  # where parameters take no memory
                create_model(settings.model, **options, **chosen)
        except ArrnError as error:
            refused.append(error)
        except (TypeError, ValueError, RuntimeError, OverflowError):  # told when the network is built for the data
            return
        else:
            return
    raise refused[0]


def _complete_options(settings: RunSettings, train: Examined) -> dict[str, Any]:
    """The run's options of its model, with what the data decide."""
    known = model_options(settings.model)
    options = dict(settings.options)
    classes = len(train.source.class_names)
    if options.setdefault("num_classes", classes) != classes:
        raise ArrnError(f"num_classes is {options['num_classes']!r}, but the data set has {classes} classes")
    form = train.source.form
    for name, right, word in (("in_channels", form.channels, "channels"), ("ndim", form.ndim, "axes")):
        if name in known and options.setdefault(name, right) != right:
            raise ArrnError(f"{name} is {options[name]!r}, but {form.words} have {right} {word}")
    if "size" in known:
        square = Aspect(settings.aspect, (1,) * form.ndim)
        counts = Counter(map(square.frame, train.sizes))
        usual = max(counts, key=lambda size: (counts[size], size))  # of equally frequent ones the largest
        options.setdefault("size", max(usual))
    return options


def _create(name: str, options: Mapping[str, Any], pretrained: bool) -> nn.Module:
    try:
        return pretrained_model(name, True, **options) if pretrained else create_model(name, **options)
    except ArrnError:
        raise
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:  # from torch, for values it cannot use
        raise ArrnError(f"{name!r} cannot be built with the options {dict(options)}: {error}") from error


def _compare_sizes(ladder: tuple[Grid, ...], train: Examined, word: str, say: Callable[[str], None]) -> None:
    sizes = set(train.sizes)
    above = [size for size in sizes if not covers(ladder[0], size)]
    if above:
        many = f"all {word}s are" if len(above) == len(sizes) else f"some {word}s are"
        say(
            f"{many} larger than the network's top grid of {format_grid(ladder[0])} (the largest is "
            f"{format_grid(max(above))}), and are smoothed down to this grid"
        )
    if len(ladder) > 1 and all(covers(ladder[1], size) for size in sizes):
        say(
            f"no {word} is larger than {format_grid(ladder[1])}, so the levels above this grid are not trained: a "
            "ladder with a lower top is enough"
        )


def check_fit(model: nn.Module, name: str, form: Form, dataset: str) -> None:
    """Refuses a volume where an image is expected, and the like.

    Args:
        model: the network.
        name: what errors call it.
        form: what the samples of the data set are.
        dataset: what errors call that.

    Raises:
        ArrnError: for other axes or channels than the network's, and for a backbone, which returns no classes.
    """
    if isinstance(model, Backbone):
        raise ArrnError(
            f"{name!r} is a backbone here, which returns feature maps instead of classes: take the whole network"
        )
    axes = signal_axes(model)
    if axes is not None and axes != form.ndim:
        raise ArrnError(
            f"{name!r} takes {_kind(axes)}, but {dataset!r} holds {_kind(form.ndim)}: take "
            f"{_SUITED[form.ndim]!r}, or 'arrn' with a ladder of your own"
        )
    channels = getattr(model, "in_channels", form.channels)
    if channels != form.channels:
        raise ArrnError(
            f"{name!r} takes {channels} channel{'s' * (channels != 1)}, but the {form.words} of {dataset!r} have "
            f"{form.channels}"
        )


def _kind(axes: int) -> str:
    return f"{word_for(axes)}s of {axes} ax{'is' if axes == 1 else 'es'}"
