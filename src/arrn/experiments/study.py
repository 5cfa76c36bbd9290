"""A search by Optuna: designs drawn from choices and ranges, more of the kind that did well; kept in a journal."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arrn.errors import ArrnError, first_line, needs, plain
from arrn.experiments.objectives import Objective
from arrn.experiments.sweep import Axes, Range, Standing, design_name, make_design
from arrn.runs.run_folder import locked
from arrn.writing import writing_to

if TYPE_CHECKING:
    import optuna

_STUDY = "sweep"
_DESIGN, _SPACE = "design", "space"
_MOST_DRAWS = 200  # for one new design: where all these were there before, there are no more
_DRAWS_BY_THE_SAMPLER = 20  # of these; then designs are drawn evenly, since a sampler insists on what it likes

logger = logging.getLogger(__name__)


def space_of(axes: Axes) -> dict[str, dict[str, Any] | Range]:
    """The axes that a search draws from: ranges, and axes with several choices, each choice with a label.

    >>> axes = Axes([[8, 4], [8, 6, 4]], [[4, 8]], [[2]], [[1, 2]], Range(0.2, 0.8))
    >>> space_of(axes)
    {'sizes': {'8-4': [8, 4], '8-6-4': [8, 6, 4]}, 'p': Range(low=0.2, high=0.8, step=0.01)}
    """
    space: dict[str, dict[str, Any] | Range] = {}
    for name, choices in vars(axes).items():
        if isinstance(choices, Range):
            space[name] = choices
        elif len(labelled := {_label(choice): choice for choice in choices}) > 1:
            space[name] = labelled
    return space


def _label(choice: Any) -> str:
    if isinstance(choice, str):
        return choice
    return "-".join(f"{value:g}" for value in choice) or "none" if isinstance(choice, Sequence) else f"{choice:g}"


class StudiedDesigns:
    """Designs that Optuna draws, learning from those that have ended; `open_study` gives one.

    Args:
        study: a study of Optuna.
        axes: the choices and ranges that designs are drawn from.
        trials: the number of designs at the end, designs of earlier commands included.
        objectives: the objectives that designs are judged by.
        seed: the seed of the draws.
        check: refuses a design that cannot be built, by an `ArrnError`.
    """

    def __init__(
        self,
        study: optuna.Study,
        axes: Axes,
        trials: int,
        objectives: Sequence[Objective],
        seed: int,
        check: Callable[[Mapping[str, Any]], None],
    ) -> None:
        from optuna.trial import TrialState

        self._study, self._axes, self._objectives = study, axes, objectives
        self._trials, self._seed, self._check = trials, seed, check
        self._states = TrialState
        self._space = space_of(axes)
        known = [trial for trial in study.get_trials(deepcopy=False) if _DESIGN in trial.user_attrs]
        designs = {trial.number: json.loads(trial.user_attrs[_DESIGN]) for trial in known}
        self._numbers = {design_name(design): number for number, design in designs.items()}
        self._told = {trial.number for trial in known if trial.state != TrialState.RUNNING}
        # Those of earlier commands come first: finished ones cost nothing, interrupted ones go on.
        self._before = list(designs.values())
        self._refused = ""

    def ask(self, room: int) -> list[Mapping[str, Any]]:
        """The designs of earlier commands first, then as many new ones as there is room for."""
        if self._before:
            before, self._before = self._before, []
            return before
        new: list[Mapping[str, Any]] = []
        while len(new) < room and len(self._numbers) < self._trials:
            options = self._draw()
            if options is None:
                break
            new.append(options)
        if not self._numbers:
            raise ArrnError(f"no design of this search can be built: {self._refused}")
        return new

    def tell(self, name: str, standing: Standing | None) -> None:
        """Tells Optuna; a design that failed is left open, so that the next command tries it again."""
        number = self._numbers[name]
        if standing is not None and number not in self._told:
            self._study.tell(number, [objective.value(standing) for objective in self._objectives])
            self._told.add(number)

    def _draw(self) -> Mapping[str, Any] | None:
        """A design that was not there before, None where there seem to be no more."""
        from optuna.samplers import RandomSampler

        by_the_study = self._study.sampler
        try:
            for attempt in range(_MOST_DRAWS):
                if attempt == _DRAWS_BY_THE_SAMPLER:
                    self._study.sampler = RandomSampler(self._seed + len(self._numbers))
                trial = self._study.ask()
                options = make_design(self._choose(trial))
                if design_name(options) not in self._numbers and self._can_be_built(options):
                    trial.set_user_attr(_DESIGN, json.dumps(options))
                    self._numbers[design_name(options)] = trial.number
                    return options
                self._study.tell(trial, state=self._states.FAIL)
        finally:
            self._study.sampler = by_the_study
        self._trials = len(self._numbers)
        told = "%d draws brought no new design: the search ends with %d designs"
        logger.warning(told, _MOST_DRAWS, self._trials)
        return None

    def _choose(self, trial: optuna.Trial) -> dict[str, Any]:
        """One value for each axis."""
        chosen = {name: choices[0] for name, choices in vars(self._axes).items() if not isinstance(choices, Range)}
        for name, choices in self._space.items():
            if isinstance(choices, Range):
                chosen[name] = trial.suggest_float(name, choices.low, choices.high, step=choices.step)
            else:
                chosen[name] = choices[trial.suggest_categorical(name, list(choices))]
        return chosen

    def _can_be_built(self, options: Mapping[str, Any]) -> bool:
        try:
            self._check(options)
        except ArrnError as error:
            self._refused = str(error)
            return False
        return True


@contextmanager
def open_study(
    file: Path,
    axes: Axes,
    trials: int,
    objectives: Sequence[Objective],
    *,
    seed: int = 0,
    check: Callable[[Mapping[str, Any]], None] = lambda options: None,
) -> Iterator[StudiedDesigns]:
    """A context in which the search that is kept in the file continues. It locks the file for other processes.

    Args:
        file: the journal, a line of JSON for each event; new, or from an earlier command.
        axes: the choices and ranges that designs are drawn from.
        trials: the number of designs at the end, designs of earlier commands included.
        objectives: the objectives that designs are judged by.
        seed: the seed of the draws.
        check: refuses a design that cannot be built, by an `ArrnError`.

    Raises:
        ArrnError: for the journal of another search, or a damaged one.
        RunError: when another process uses the journal.
    """
    with needs("optuna", "--trials", extra="search"):
        import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    space = {
        name: [choice.low, choice.high] if isinstance(choice, Range) else list(choice)
        for name, choice in space_of(axes).items()
    }
    told = {"choices": space, "objectives": [objective.name for objective in objectives]}
    with locked(file.with_name(f"{file.name}.lock")):
        _remove_torn_line(file)
        lock: Any = _HeldAlready()
        try:
            with writing_to(file):
                storage = JournalStorage(JournalFileBackend(str(file), lock_obj=lock))
            study = optuna.create_study(
                storage=storage,
                study_name=_STUDY,
                directions=["maximize" if objective.highest else "minimize" for objective in objectives],
                load_if_exists=True,
            )
            before = study.user_attrs.get(_SPACE)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ArrnError(plain(f"{file} is not the journal of a search: {first_line(error)}")) from None
        if before is None:
            study.set_user_attr(_SPACE, told)
        elif before != told:
            raise ArrnError(
                f"{file} holds a search over {before}, but this one is over {told}; another --out starts a new search"
            )
        drawn = len(study.get_trials(deepcopy=False))
        study.sampler = optuna.samplers.TPESampler(seed=seed + drawn)
        yield StudiedDesigns(study, axes, trials, objectives, seed, check)


def _remove_torn_line(file: Path) -> None:
    """Removes the end of a line that a crash cut off: Optuna would append to it."""
    if not file.exists():
        return
    content = file.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        os.truncate(file, whole)


class _HeldAlready:
    """A lock of nothing, for the journal: the lock beside it is held, and one that a crash left is no hindrance."""

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        pass
