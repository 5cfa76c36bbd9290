"""The model card of a network on the hub: README.md, with metadata in YAML, written from what its folder holds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from arrn import __version__
from arrn.datasets import DATASETS
from arrn.deploy.evaluated import Evaluated
from arrn.errors import ArrnError, needs, plain
from arrn.metadata import Metadata
from arrn.provenance import machine_of
from arrn.runtime.levels import format_grid, level_of
from arrn.signal.grid import Grid

UNKNOWN = "unknown"
"""The license that the hub's metadata names where the owner named none."""

_LICENSE = re.compile(r"[a-z0-9][a-z0-9.+-]{0,63}", re.ASCII)
_MARKUP = re.compile(r"([!\"#$&'()*+:<=>@\[\\\]^_`{|}~]|(?<=www)\.)", re.ASCII | re.IGNORECASE)
_MOST_CLASSES, _LONGEST = 100, 200
_TASKS = {1: "audio-classification", 2: "image-classification"}
_KINDS = {1: "sounds and other signals of one axis", 2: "images", 3: "volumes"}


@dataclass(frozen=True)
class CardFacts:
    """What a card tells of a network.

    Attributes:
        address: the repository, as OWNER/NAME.
        model: the network's name.
        license: as the hub names licenses.
        metadata: what the network expects of its inputs, and its class names.
        grids: of its levels, highest first; none for a network that does not tell.
        costs: multiply-adds of one input on each of the grids; None where they are not known.
        parameters: of the network, in all.
        adapts: whether smaller inputs skip levels.
        dataset: what it was trained on, a name or a path; None where nothing tells.
        seed: of the run; None where nothing tells.
        recipe: how it was trained.
        evaluated: its accuracies.
        figure: name of the figure's file.
    """

    address: str
    model: str
    license: str
    metadata: Metadata
    grids: Sequence[Grid]
    costs: Sequence[int | None]
    parameters: int
    adapts: bool
    dataset: str | None = None
    seed: int | None = None
    recipe: Mapping[str, Any] = field(default_factory=dict)
    evaluated: Evaluated | None = None
    figure: str | None = None

    @property
    def ndim(self) -> int:
        """Axes of space of the inputs; 0 where they are not known."""
        return len(self.grids[0]) if self.grids else 0


def as_license(name: str) -> str:
    """A license as the hub names it.

    Raises:
        ArrnError: for what cannot be such a name.

    >>> as_license("mit")
    'mit'
    """
    if not _LICENSE.fullmatch(name):
        raise ArrnError(
            f"{name!r:.80} is not the hub's name of a license: names are lower-case, such as mit, apache-2.0 or "
            "cc-by-4.0"
        )
    return name


def markdown(text: object) -> str:
    r"""Text that others may have written, for one line of Markdown: nothing in it is markup, a link or HTML.

    >>> print(markdown("<b>[cat](http://x)|"))
    \<b\>\[cat\]\(http\://x\)\|
    """
    return _MARKUP.sub(r"\\\1", _short(text))


def dataset_name(dataset: str) -> str:
    """A data set's name; of a path, which may tell whose machine it is on, the last part alone.

    >>> dataset_name("cifar10"), dataset_name("/home/me/birds")
    ('cifar10', 'birds')
    """
    return dataset if dataset in DATASETS else PurePath(dataset.replace("\\", "/")).name or "a data set without a name"


def write_card(facts: CardFacts) -> str:
    """The card, as the text of README.md."""
    sections = [
        f"# {markdown(facts.address.partition('/')[2])}",
        _introduction(facts),
        _use(facts),
        f"## Data\n\n{_data(facts)}",
        f"## Recipe\n\n{_recipe(facts)}",
        f"## Accuracy and cost\n\n{_accuracy(facts)}",
        f"## Limits\n\n{_limits(facts)}",
        f"## License\n\n{_license(facts)}",
    ]
    return f"---\n{_front_matter(facts)}---\n\n" + "\n\n".join(sections) + "\n"


def _front_matter(facts: CardFacts) -> str:
    with needs("pyyaml", "a model card", "hub"):
        import yaml  # type: ignore[import-untyped]

    found: dict[str, Any] = {
        "license": facts.license,
        "library_name": "arrn",
        "tags": ["arrn", "adaptive-resolution", "pytorch", "safetensors"],
    }
    if facts.ndim in _TASKS:
        found["pipeline_tag"] = _TASKS[facts.ndim]
    if facts.dataset in DATASETS:  # the hub takes names there, and no text of the user's
        found["datasets"] = [facts.dataset]
    if facts.evaluated is not None and facts.evaluated.results:
        found["metrics"] = ["accuracy"]
        found["model-index"] = [{"name": facts.address.partition("/")[2], "results": [_best(facts, facts.evaluated)]}]
    text: str = yaml.safe_dump(found, sort_keys=False, allow_unicode=False, width=1000)
    return text


def _best(facts: CardFacts, evaluated: Evaluated) -> dict[str, Any]:
    """The accuracy at the highest resolution, as the hub's index of results has it."""
    top = max(evaluated.results, key=lambda result: (result["resolution"], result["policy"] == "exact"))
    name = _short(dataset_name(evaluated.dataset))
    return {
        "task": {"type": _TASKS.get(facts.ndim, "other")},
        "dataset": {"type": evaluated.dataset if evaluated.dataset in DATASETS else "other", "name": name},
        "metrics": [
            {"type": "accuracy", "value": top["accuracy"], "name": f"accuracy at resolution {top['resolution']}"}
        ],
    }


def _introduction(facts: CardFacts) -> str:
    kind = _KINDS.get(facts.ndim, "inputs")
    adapting = (
        " It is an Adaptive Resolution Residual Network: smaller inputs skip levels and cost less "
        "([arXiv 2412.06195](https://arxiv.org/abs/2412.06195))."
        if facts.adapts
        else ""
    )
    sizes = ", ".join(format_grid(grid) for grid in facts.grids)
    levels = f" on grids of {sizes}" if sizes else ""
    classes = facts.metadata.class_names
    shown = ", ".join(map(markdown, classes[:_MOST_CLASSES])) if classes else ""
    more = f", and {len(classes) - _MOST_CLASSES} more" if classes and len(classes) > _MOST_CLASSES else ""
    named = f"\n\nIts {len(classes)} classes: {shown}{more}." if classes else "\n\nIts classes have no names."
    return (
        f"A network of the design `{_code(facts.model)}` with {facts.parameters:,} parameters, which sorts {kind} into "
        f"classes{levels}.{adapting}{named}"
    )


def _use(facts: CardFacts) -> str:
    given = {1: '"sound.wav"', 3: '"volume.npy"'}.get(facts.ndim, '"picture.png"')
    return (
        "```python\nimport arrn\n\n"
        f'predictor = arrn.Predictor("hf://{facts.address}")\n'
        f"print(predictor({given}).top)\n```\n\n"
        "The package arrn needs its extra `hub` for this. A commit after `@` pins the network."
    )


def _data(facts: CardFacts) -> str:
    if facts.dataset is None:
        return "The published folder does not say what the network was trained on."
    seed = "" if facts.seed is None else f", with seed {facts.seed}"
    normalised = (
        f"Inputs have mean {_numbers(facts.metadata.mean)} and standard deviation {_numbers(facts.metadata.std)} in "
        "each channel, where 1 is full scale; the predictor normalises by them."
    )
    return f"Trained on {markdown(dataset_name(facts.dataset))}{seed}. {normalised}"


def _recipe(facts: CardFacts) -> str:
    if not facts.recipe:
        return "The published folder holds no recipe."
    rows = [(markdown(name), markdown(value)) for name, value in facts.recipe.items()]
    return f"{_table(('setting', 'value'), rows)}\n\n`recipe.toml` holds the same settings."


def _accuracy(facts: CardFacts) -> str:
    if facts.evaluated is None or not facts.evaluated.results:
        return f"No accuracy was measured.{_costs_alone(facts)}"
    found: dict[int, dict[Any, Mapping[str, Any]]] = {}
    for result in facts.evaluated.results:
        found.setdefault(result["resolution"], {})[result["policy"]] = result
    policies = list(dict.fromkeys(result["policy"] for result in facts.evaluated.results))
    head = ["resolution"]
    for policy in policies:
        name = "accuracy" if policy is None else f"accuracy, {markdown(policy)}"
        head += [f"{name} (%)", "multiply-adds (millions)"]
    rows = []
    for resolution in sorted(found, reverse=True):
        row = [str(resolution)]
        for policy in policies:
            measured = found[resolution].get(policy)
            shown = "" if measured is None else f"{100 * measured['accuracy']:.2f}"
            row += [shown, _cost(facts, resolution, policy)]
        rows.append(tuple(row))
    totals = {result["total"] for result in facts.evaluated.results}
    origin = facts.evaluated.provenance
    where = f", on {markdown(machine_of(origin))}" if origin else ""
    told = (
        f"Measured on {markdown(dataset_name(facts.evaluated.dataset))} ({max(totals):,} samples at each "
        f"resolution){where}. With the policy exact, an input between two grids enters at the higher level and loses "
        "nothing; with the policy cheap, it enters at the lower level."
    )
    figure = "" if facts.figure is None else f"\n\n![Accuracy over resolution]({facts.figure})"
    return f"{told}\n\n{_table(head, rows)}{figure}"


def _costs_alone(facts: CardFacts) -> str:
    known = [
        (format_grid(grid), f"{cost / 1e6:.2f}") for grid, cost in zip(facts.grids, facts.costs, strict=True) if cost
    ]
    return "" if not known else f"\n\n{_table(('grid', 'multiply-adds (millions)'), known)}"


def _cost(facts: CardFacts, resolution: int, policy: Any) -> str:
    if not facts.grids:
        return ""
    level = level_of(facts.grids, (resolution,) * facts.ndim, "cheap" if policy == "cheap" else "exact")
    cost = facts.costs[level]
    return "" if cost is None else f"{cost / 1e6:.2f}"


def _limits(facts: CardFacts) -> str:
    limits = [
        "The network assigns one of its classes to every input, including inputs that show none of these classes.",
        "Accuracy on other data than the table's is not known. The network was not tested for decisions about people.",
    ]
    if facts.grids:
        limits.append(
            f"Inputs above {format_grid(facts.grids[0])} are resampled to that grid: finer detail has no effect."
        )
    if facts.evaluated is not None and facts.evaluated.results:
        least = min(result["resolution"] for result in facts.evaluated.results)
        limits.append(f"Below a resolution of {least} no accuracy was measured.")
    return "\n".join(f"- {limit}" for limit in limits)


def _license(facts: CardFacts) -> str:
    if facts.license == UNKNOWN:
        return "The owner named no license for these weights. Ask before you use them."
    return f"{markdown(facts.license)}. The data that the network was trained on may have other terms."


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _numbers(values: Sequence[float] | None) -> str:
    return "unknown" if values is None else ", ".join(f"{value:.4g}" for value in values)


def _code(text: object) -> str:
    return _short(text).replace("`", "'")


def _short(text: object) -> str:
    shown = plain(text)
    return shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}..."


MADE_BY = f"arrn {__version__}"
"""Who writes cards, for commit messages."""
