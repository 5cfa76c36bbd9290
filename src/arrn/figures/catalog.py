"""Every figure by name, and drawing those that there is something for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from arrn.errors import unknown_name
from arrn.experiments import Result
from arrn.figures.ablation import ablation_figure, ablation_figures_by_own_kernel, overall_tree_figure, tree_figure
from arrn.figures.claims import claims_page
from arrn.figures.efficiency import efficiency_figure
from arrn.figures.features import features_figure
from arrn.figures.frontier import frontier_figure
from arrn.figures.kernels import bandwidth_figure
from arrn.figures.pyramid import pyramid_figure
from arrn.figures.robustness import generalization_figure, robustness_figure
from arrn.figures.runs import Run, group_runs
from arrn.figures.skipping import skipping_figure
from arrn.figures.style import Drawing
from arrn.figures.subject import Subject
from arrn.figures.tables import tables_page

# By name: the experiment of `arrn reproduce` that it shows, and what draws it.
_FROM_RESULTS: dict[str, tuple[str, Callable[[str, Sequence[Run]], Drawing]]] = {
    "robustness": ("robustness", robustness_figure),
    "efficiency": ("efficiency", efficiency_figure),
    "generalization": ("generalization", generalization_figure),
    "ablation": ("ablation", ablation_figure),
    "tree": ("ablation", tree_figure),
    "frontier": ("frontier", frontier_figure),
    "tables": ("all", tables_page),
}
_PICTURES: dict[str, Callable[[Subject], Drawing]] = {
    "skipping": skipping_figure,
    "pyramid": pyramid_figure,
    "features": features_figure,
    "bandwidth": bandwidth_figure,
}
FIGURES = (*_FROM_RESULTS, "claims", *_PICTURES)
"""The names of all figures."""


def choose_figures(names: Iterable[str]) -> list[str]:
    """The figures of these names, each once; of no names, all.

    >>> choose_figures(["tree", "pyramid", "tree"])
    ['tree', 'pyramid']

    Raises:
        ArrnError: for a name that is none of `FIGURES`.
    """
    chosen = list(dict.fromkeys(names))
    for name in chosen:
        if name not in FIGURES:
            raise unknown_name("figure", name, FIGURES)
    return chosen or list(FIGURES)


def draw_figures(
    names: Sequence[str], results: Sequence[Result], open_subject: Callable[[], Subject]
) -> Iterator[Drawing]:
    """Draws one figure after the other: from results one for each data set, the pictures once.

    Where several data sets have a complete ablation, there is a tree over all of them too. Where test images were also
    lowered by the networks' own kernels, the figures of the ablation are drawn of these too.

    Args:
        names: of `FIGURES`.
        results: of finished runs; none is allowed.
        open_subject: gives the image and the network of pictures; called if there is one to draw.
    """
    datasets = group_runs(results)
    for name in names:
        if name == "claims":
            yield claims_page(datasets)
        if name not in _FROM_RESULTS:
            continue
        experiment, draw = _FROM_RESULTS[name]
        if not datasets:
            yield Drawing(name, None, (f"results of `arrn reproduce {experiment}`",))
        for dataset, runs in datasets.items():
            yield draw(dataset, runs)
            if experiment == "ablation":
                yield from ablation_figures_by_own_kernel(name, dataset, runs)
        if name == "tree" and (overall := overall_tree_figure(datasets)) is not None:
            yield overall
    pictures = [name for name in names if name in _PICTURES]
    if pictures:
        subject = open_subject()
        for name in pictures:
            yield _PICTURES[name](subject)
