"""From what a user asks for to the settings of a run and its folder, alike for `arrn train` and for `arrn.train`."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from arrn.data import data_root, set_or_path
from arrn.datasets import DATASETS, facts_of
from arrn.errors import ArrnError
from arrn.runs.advising import advise
from arrn.runs.settings import RunSettings, read_settings
from arrn.training import Recipe, read_recipe, recipe_for

_ADVISED_ON = ("dataset", "model", "recipe")  # settings that the advice has by other names


@dataclass(frozen=True)
class Request:
    """What a user asks for. None, and what is left out, is the choice of the data set, of the advice, or of the run.

    Attributes:
        dataset: a name, the path of a folder or a file, or an address.
        model: a name, as `arrn.create_model` takes it.
        out: the run's folder; by default runs/DATASET-MODEL-seedS.
        recipe: a whole one, its name, or a TOML file with options.
        recipe_options: changes to the recipe.
        options: of the model.
        settings: other attributes of `RunSettings`, such as seed and holdout; those that are None are left out.
        resume: go on with the run in `out`.
    """

    dataset: str | None = None
    model: str | None = None
    out: Path | None = None
    recipe: Recipe | Path | None = None
    recipe_options: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    resume: bool = False


def settle(
    request: Request,
    *,
    device: str = "auto",
    max_pixels: int | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> tuple[RunSettings, Path]:
    """The settings of the run that is asked for, and its folder.

    For a folder of the user's own and no model, the folder is looked at, and what suits it is proposed and taken.

    Args:
        request: what the user asks for.
        device: where it will be trained.
        max_pixels: of an image, or voxels of a volume; more are refused. None is 64 million.
        say: told, in a line, what was proposed.

    Raises:
        ArrnError: for a wrong argument.

    >>> settings, folder = settle(Request("sample", recipe_options={"epochs": 3}))
    >>> settings.model, settings.recipe.epochs, str(folder)
    ('arrn_small', 3, 'runs/sample-arrn_small-seed0')
    """
    if request.dataset is None and not (request.resume and request.out is not None):
        raise ArrnError(
            "name the data set to train on, such as sample, or give the path of a folder; a run continues without it: "
            "arrn train --resume --out DIR"
        )
    given = {name: value for name, value in request.settings.items() if value is not None}
    data = given.get("data")
    named = None if request.dataset is None else set_or_path(request.dataset, data)
    alone = os.environ.get("WORLD_SIZE", "1") == "1"
    advised = request.model is None and named not in DATASETS and request.recipe is None and alone
    model = request.model or ("arrn" if advised else facts_of(named or "").design)
    seed = given.get("seed", 0)
    folder = request.out or Path("runs") / f"{Path(named or '').name}-{model.replace(':', '-')}-seed{seed}"
    saved = read_settings(folder) if request.resume else None
    if request.resume and saved is None:
        raise ArrnError(f"there is no run in {folder} to resume; without --resume a new run starts there")
    start = saved or RunSettings(named or "", model, recipe=recipe_for(named or ""))
    chosen = request.recipe or start.recipe
    if not isinstance(chosen, Recipe):
        chosen = read_recipe(chosen, start.recipe)
    wanted = {"dataset": named, "model": request.model, "data": data_root(data)}
    given |= {name: value for name, value in wanted.items() if value is not None}
    given["recipe"] = chosen.with_options(request.recipe_options)
    options = dict(start.options) | dict(request.options)
    settings = dataclasses.replace(start, **given, options=options)
    if not advised or saved is not None:
        return settings, folder
    advice = advise(
        dataclasses.replace(start, recipe=chosen, seed=settings.seed, data=settings.data, skip_bad=settings.skip_bad),
        options=options,
        recipe=request.recipe_options,
        given={name: value for name, value in given.items() if name not in _ADVISED_ON},
        device=device,
        max_pixels=max_pixels,
    )
    say(str(advice))
    say(f"the reasons: arrn advise {named}; --model NAME takes another network")
    return advice.settings, folder
