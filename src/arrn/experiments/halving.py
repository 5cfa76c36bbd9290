"""Successive halving: many designs are trained for a few epochs, then the best of them again for more epochs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from arrn.errors import ArrnError
from arrn.experiments.jobs import Job
from arrn.experiments.objectives import USUAL, Objective, choose_best
from arrn.experiments.supervising import JobProgress
from arrn.experiments.sweep import Standing, design_name, rank
from arrn.training import Recipe

FACTOR = 3
"""Each round keeps one design of three, and trains it for three times the epochs."""


class Designs(Protocol):
    """Where designs come from."""

    def ask(self, room: int) -> list[Mapping[str, Any]]:
        """The designs to try next, as options of the generic model. None come while results are awaited, or at the end.

        Args:
            room: the number of runs that could start now.
        """

    def tell(self, name: str, standing: Standing | None) -> None:
        """Takes the standing of a design after the first round; None where its runs failed."""


class EveryDesign:
    """Designs that are known from the start."""

    def __init__(self, designs: Sequence[Mapping[str, Any]]) -> None:
        self._left = list(designs)

    def ask(self, room: int) -> list[Mapping[str, Any]]:
        """All of them, the first time."""
        asked, self._left = self._left, []
        return asked

    def tell(self, name: str, standing: Standing | None) -> None:
        """Does nothing: the designs are fixed."""


def round_epochs(epochs: int, rounds: int) -> list[int]:
    """The epochs of each round, the last one's being `epochs`.

    >>> round_epochs(16, 3)
    [2, 5, 16]

    Raises:
        ArrnError: where there are too few epochs for so many rounds.
    """
    found = [max(1, round(epochs / FACTOR**left)) for left in reversed(range(rounds))]
    if len(set(found)) < rounds:
        raise ArrnError(f"{rounds} rounds need at least {FACTOR ** (rounds - 1)} epochs in the last one, got {epochs}")
    return found


def kept_of(count: int) -> int:
    """The number of designs, of `count`, that reach the next round.

    >>> kept_of(40), kept_of(3), kept_of(1)
    (14, 1, 1)
    """
    return math.ceil(count / FACTOR)


def shortened(recipe: Recipe, epochs: int) -> Recipe:
    """The recipe for another number of epochs: the whole schedule, with the same share of epochs that warm up."""
    return recipe.with_options({"warm_up": recipe.warm_up * epochs / recipe.epochs, "epochs": epochs})


@dataclass
class Round:
    """A round of the search.

    Attributes:
        epochs: the number of epochs that each design is trained for.
        standings: the standings of the designs that have ended, best first.
    """

    epochs: int
    standings: list[Standing] = field(default_factory=list)


class Halving:
    """The jobs of a search, round by round. `supervise` takes the method `more`.

    A design is trained from the start in each round, with the whole schedule of the learning rate, so that finished
    networks are compared. With one round, every design is trained for all epochs.

    Args:
        designs: gives the designs.
        epochs: the epochs of each round (`round_epochs`).
        jobs_of: makes the jobs of a design from its name, its options and its epochs, one job for each seed.
        objectives: the objectives that designs are judged by.
    """

    def __init__(
        self,
        designs: Designs,
        epochs: Sequence[int],
        jobs_of: Callable[[str, Mapping[str, Any], int], list[Job]],
        objectives: Sequence[Objective] = USUAL,
    ) -> None:
        self.rounds = [Round(each) for each in epochs]
        self._designs, self._jobs_of, self._objectives = designs, jobs_of, objectives
        self._number = 0
        self._options: dict[str, Mapping[str, Any]] = {}  # of every design, by its name
        self._jobs: dict[str, list[Job]] = {}  # of the designs of this round that have not ended
        self._open: set[str] = set()  # titles of jobs that have not ended
        self.skipped = 0
        """How many jobs were finished by an earlier command."""

    def more(self, ended: Sequence[JobProgress], room: int) -> list[Job]:
        """The jobs to carry out next, now that these have ended."""
        self._open -= {each.job.title for each in ended}
        found: list[Job] = []
        while True:
            self._settle()
            asked = self._designs.ask(room - len(found)) if self._number == 0 and room > len(found) else []
            if asked:
                for options in asked:
                    found += self._begin(design_name(options), options)
            elif self._jobs or self._number + 1 == len(self.rounds):
                return found
            else:
                best = self._promoted()
                self._number += 1
                for standing in best:
                    found += self._begin(standing.name, self._options[standing.name])
                if not best:
                    return found

    def _promoted(self) -> list[Standing]:
        standings = self.rounds[self._number].standings
        return choose_best(standings, kept_of(len(standings)), self._objectives)

    def _begin(self, name: str, options: Mapping[str, Any]) -> list[Job]:
        """The jobs of a design in this round that are not finished yet."""
        self._options[name] = options
        jobs = self._all_jobs(name, options)
        to_do = [job for job in jobs if job.read_result() is None]
        self.skipped += len(jobs) - len(to_do)
        self._jobs[name] = jobs
        self._open |= {job.title for job in to_do}
        return to_do

    def _all_jobs(self, name: str, options: Mapping[str, Any]) -> list[Job]:
        """The jobs of a design in this round; those of earlier rounds than the last have names of their own."""
        epochs = self.rounds[self._number].epochs
        last = self._number + 1 == len(self.rounds)
        return self._jobs_of(name if last else f"{name}_ep{epochs}", options, epochs)

    def first_round(self) -> list[Job]:
        """The jobs of the first round, finished or not, of a search that is not carried out."""
        return [job for options in self._designs.ask(1) for job in self._all_jobs(design_name(options), options)]

    def _settle(self) -> None:
        """Takes the designs all of whose jobs have ended into the round's standings."""
        for name, jobs in list(self._jobs.items()):
            if self._open & {job.title for job in jobs}:
                continue
            results = [result for job in jobs if (result := job.read_result()) is not None]
            del self._jobs[name]
            standing = None
            if len(results) == len(jobs):
                standing = dataclasses.replace(rank(results)[0], name=name)
                self.rounds[self._number].standings.append(standing)
                self.rounds[self._number].standings.sort(key=lambda each: (-each.mean_accuracy, each.multiply_adds))
            if self._number == 0:
                self._designs.tell(name, standing)

    def gone(self) -> Iterator[tuple[Standing, int]]:
        """The designs that did not come to the last round, and for how many epochs they were trained at most."""
        later: set[str] = set()
        for each in reversed(self.rounds):
            if each is not self.rounds[-1]:
                yield from ((standing, each.epochs) for standing in each.standings if standing.name not in later)
            later |= {standing.name for standing in each.standings}
