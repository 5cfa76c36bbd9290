"""The tree of decisions in an ablation, with the factor of each (the paper's dual-effect section)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from arrn.evaluation.decisions import Decision, Verdict, check_dual_effect, effect_grows
from arrn.plots.looks import ablation_look
from arrn.plots.style import styled

__all__ = ["draw_decision_tree"]

_DEPTHS = ("all combinations", "smoothing kernel", "trained with dropout", "run with adaptation")
_RULE = (
    "A number is the average accuracy below its node, divided by that of the node above. Black: used, white: not.\n"
    "On the last two levels theory wants factors above 1 where the colours of both nodes agree (solid edges), below 1 "
    "where not (dotted)."
)
_MARKS = {True: "agrees", False: "disagrees", None: "equal"}


def draw_decision_tree(tree: Decision, title: str = "") -> Figure:
    """Draws kernels, dropout and adaptation from top to bottom; below the leaves, the line of the ablation graph."""
    verdicts = check_dual_effect(tree)
    leaves = 4 * len(tree.children)
    with styled():
        figure = Figure(figsize=(1.8 + 0.9 * leaves, 5.6), layout="constrained")
        axes = figure.subplots()
        axes.axis("off")
        axes.set_xlim(-2.1, leaves - 0.5)
        axes.set_ylim(-4.25, 0.4)
        for depth, name in enumerate(_DEPTHS):
            axes.text(-2.05, -depth, name.replace(" ", "\n", 1), va="center", fontsize=9, color="0.35")
        places = iter(range(leaves))
        _draw_node(axes, tree, (), places, iter(verdicts))
        axes.set_title(title)
        figure.supxlabel(f"{_RULE}\n{_findings(tree, verdicts)}", fontsize=9)
        return figure


def _findings(tree: Decision, verdicts: Sequence[Verdict]) -> str:
    decided = [verdict.holds for verdict in verdicts if verdict.holds is not None]
    grows = {True: "grows", False: "does not grow", None: "is too small to tell"}
    with_dropout, without = (grows[effect_grows(tree, dropout)] for dropout in (True, False))
    return (
        f"This holds at {sum(decided)} of the {len(decided)} leaves that differ from 1 in three decimals. From kernel "
        f"to kernel, the effect of adaptation {with_dropout} (with dropout) and {without} (without)."
    )


def _draw_node(
    axes: Axes, node: Decision, path: tuple[str | bool, ...], places: Iterator[int], verdicts: Iterator[Verdict]
) -> float:
    """Draws what is below the node, then the node above the middle of it; returns where it is."""
    depth = len(path)
    if not node.children:
        x = float(next(places))
        _draw_leaf_notes(axes, x, node, next(verdicts))
    else:
        xs = [_draw_node(axes, child, (*path, child.choice), places, verdicts) for child in node.children]
        x = sum(xs) / len(xs)
        for below, child in zip(xs, node.children, strict=True):
            opposed = depth == 2 and child.choice != node.choice
            line = ":" if opposed else "-"
            axes.plot([x, below], [-depth, -depth - 1], linestyle=line, linewidth=1.4, color="0.3", zorder=1)
    _draw_factor(axes, x, node, depth)
    return x


def _draw_factor(axes: Axes, x: float, node: Decision, depth: int) -> None:
    if depth == 0:
        text, fill, ink = f"{node.mean:.1%}", "0.85", "black"
    elif depth == 1:
        kernel = str(node.choice)
        text, fill, ink = f"{kernel}\n{node.factor:.3f}", ablation_look(kernel, True, True).colour, "white"
    else:
        text, fill, ink = f"{node.factor:.3f}", *(("black", "white") if node.choice else ("white", "black"))
    box = {"boxstyle": "round,pad=0.45,rounding_size=0.6", "facecolor": fill, "edgecolor": "black"}
    axes.text(x, -depth, text, ha="center", va="center", color=ink, fontsize=9.5, bbox=box, zorder=2)


def _draw_leaf_notes(axes: Axes, x: float, leaf: Decision, verdict: Verdict) -> None:
    combination = verdict.combination
    look = ablation_look(combination.kernel, combination.dropout, combination.adapt)
    axes.plot([x - 0.3, x, x + 0.3], [-3.42] * 3, markevery=[1], **look.options())
    text = f"{leaf.mean:.1%}\n{_MARKS[verdict.holds]}"
    weight = "bold" if verdict.holds is False else "normal"
    axes.text(x, -3.62, text, ha="center", va="top", fontsize=8.5, fontweight=weight)
