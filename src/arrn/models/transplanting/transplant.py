"""`transplant`: from a fixed-resolution network to an ARRN."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import fx, nn

from arrn.errors import ArrnError, ConstancyError, unknown_name
from arrn.models.fixed import FixedResolution
from arrn.models.limits import check_matrices
from arrn.models.registry import as_whole
from arrn.models.transplanting.cutting import Pieces, cut, discard, find_ladder
from arrn.models.transplanting.fitting import Origin, Transplant, add_offset
from arrn.models.transplanting.layout import find_layout, runs_bare, trace_resolutions
from arrn.models.transplanting.replacements import (
    Convolution,
    SourceHead,
    drop_whole_channels,
    dropout_as_layers,
    replicate_padding,
)
from arrn.models.transplanting.tracing import describe, norms_samples
from arrn.nn.blocks import Head
from arrn.nn.constancy import TOLERANCE, made_like, probe_of, variation
from arrn.nn.difference import FORMS, Form
from arrn.nn.dropout import Draw, LaplacianDropout
from arrn.nn.introspection import copy_unwrapped, unwrap
from arrn.nn.layers import Projection
from arrn.nn.network import Policy, as_network
from arrn.nn.residual import LaplacianResidual
from arrn.signal.grid import Grid, Size, as_grid, format_grid
from arrn.signal.kernels import Kernel, KernelLike
from arrn.signal.kernels import kernel as as_kernel


def transplant(
    model: nn.Module,
    size: Size,
    *,
    in_channels: int | None = None,
    num_classes: int | None = None,
    skip_first: int = 0,
    form: Form | None = None,
    kernel: KernelLike = "perfect",
    dropout: float | Sequence[float] = 0.0,
    draw: Draw = "stratified",
    policy: Policy = "exact",
    check: bool = True,
) -> Transplant:
    """An ARRN from the layers and weights of a convolutional network, such as a pretrained backbone.

    The network is traced and cut before each layer that lowers the resolution, at a place where only one signal is
    passed on. Each run of layers becomes the block of a Laplacian residual, on the grid of the signal that reaches it;
    the last run becomes the base, and the layers after it (pooling, classifier) the head. In the paper's form zero
    padding becomes replicate padding; in the difference form every layer stays as it is. Two kinds of parameters are
    new: the stem A_0, which is an identity unless `in_channels` or `skip_first` change the input of the first run, and
    one projection for each residual, drawn at random. So the result computes another function than the source: use
    `Transplant.fit_projections`, fine-tuning, or both. The source itself is not changed.

    Args:
        model: the network, called as ``model(x)``. `torch.fx` must be able to trace it, except for modules that may
            stay whole. `DataParallel`, `torch.compile` and `FixedResolution` around the network are taken off.
        size: the top of the ladder: the resolution at which the source would have run.
        in_channels: channels of the input, by default those of the source.
        num_classes: gives the network a new classifier for this many classes (0: no classifier); by default the
            classifier of the source stays.
        skip_first: how many residuals to discard, from the first on; the input then enters the next residual at `size`
            through A_0. Each discarded stride makes all later grids twice as large; the paper discards two residuals
            of MobileNetV3, whose last grids would otherwise be very small.
        form: the form of the residuals, see `LaplacianResidual`. ``"paper"`` needs layers that return a constant for an
            all-zero input; ``"difference"`` takes layers that pad with zeros, add positions, or normalise single
            samples, and runs these layers twice. The default is the paper's form, or the difference form where the
            runs hold norms of single samples, for which the paper's form is exact in float64 only. The attribute
            `form` of the result holds the form that was chosen.
        kernel: the smoothing kernel or its name.
        dropout: the p of Laplacian dropout, one number or one per residual.
        draw: the draw of Laplacian dropout, see `LaplacianDropout`.
        policy: the entry level of inputs between two grids, ``"exact"`` or ``"cheap"``.
        check: refuse blocks that could not be skipped exactly.

    Raises:
        ArrnError: for a network that cannot be cut; the message says where and why.

    >>> source = nn.Sequential(
    ...     nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
    ...     nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
    ...     nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
    ...     nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
    ... )
    >>> adaptive = transplant(source, size=32).eval()
    >>> adaptive.sizes
    (32, 16, 8)
    >>> adaptive(torch.rand(2, 3, 11, 15)).shape
    torch.Size([2, 10])
    """
    if not isinstance(model, nn.Module):
        raise ArrnError(f"expected a network (an nn.Module) to transplant, got a {type(model).__name__}")
    source = unwrap(model)
    if isinstance(source, FixedResolution):  # resampling is what the ARRN does itself
        source = unwrap(source.network)
    if as_network(source).adapts:
        raise ArrnError("this network is an ARRN already: there is nothing to transplant")
    first = _first_convolution(source)
    if form is not None and form not in FORMS:
        raise unknown_name("form", form, FORMS)
    if num_classes is not None:
        num_classes = as_whole("num_classes", num_classes, least=0)
    grid, smoothing = as_grid(size, first.weight.ndim - 2), as_kernel(kernel)
    channels = _own_channels(source, grid)

    def cut_up(form: Form) -> Pieces:
        return _cut_up(source, channels, grid, skip_first, form)

    pieces = cut_up(form or "paper")
    if form is None:
        form = "difference" if any(map(norms_samples, pieces.runs)) else "paper"
        pieces = pieces if form == "paper" else cut_up(form)
    ladder = find_ladder(pieces, grid, smoothing)
    check_matrices(list(itertools.pairwise(ladder)), smoothing)
    try:
        residuals = _residuals(pieces, ladder, smoothing, form, check=check)
    except ArrnError as error:
        other: Form = "paper" if form == "difference" else "difference"
        try:
            _residuals(cut_up(other), ladder, smoothing, other, check=True)
        except ArrnError:
            raise error from error.__cause__
        advised = f"{error}; form={other!r} takes it"
        if isinstance(error, ConstancyError):
            raise ConstancyError(advised, error.submodule, error.deviation) from error
        raise ArrnError(advised) from error
    entering = channels if in_channels is None else as_whole("in_channels", in_channels, least=1)
    as_it_was = not skip_first and entering == pieces.features[0]
    result = Transplant(
        stem=Projection(entering, pieces.features[0], torch.eye(entering) if as_it_was else None),
        residuals=residuals,
        base=pieces.base,
        head=_head(pieces, num_classes),
        dropout=LaplacianDropout(dropout, draw),
        policy=policy,
        form=form,
    )
    told = getattr(source, "default_cfg", None)
    architecture = told.get("architecture") if isinstance(told, dict) else None
    result.origin = Origin(type(source).__module__, architecture, skip_first)
    # What was added goes where the source's weights are; these stay as they are.
    added = [result.stem, result.head]
    added += [part for residual in residuals for part in (residual.projection, residual.down, residual.up)]
    for module in added:
        module.to(device=first.weight.device, dtype=first.weight.dtype)
    return result.train(source.training)


def _first_convolution(source: nn.Module) -> Convolution:
    for module in source.modules():
        if isinstance(module, Convolution):
            return module
    raise ArrnError(f"only convolutional networks can be transplanted, but this {type(source).__name__} has none")


def _own_channels(source: nn.Module, grid: Grid) -> int:
    """The channels that the network takes: those of a convolution, mostly the first, or what images have.

    Convolutions need not be registered in the order in which they run, and a stem may rearrange the input first.
    """
    bare = copy_unwrapped(source).to("meta").eval()
    own = [module.in_channels for module in source.modules() if isinstance(module, Convolution)]
    return next((count for count in dict.fromkeys([*own, 3, 1]) if runs_bare(bare, count, grid)), own[0])


def _cut_up(source: nn.Module, channels: int, grid: Grid, skip_first: int, form: Form) -> Pieces:
    """The network in pieces, on modules of their own, with what the form asks of them."""
    traced, kept_whole = trace_resolutions(copy_unwrapped(source), channels, grid)
    if form == "paper":
        replicate_padding(traced, len(grid))
    dropout_as_layers(traced)
    pieces = discard(cut(traced, find_layout(traced, channels, grid), kept_whole), skip_first)
    if form == "paper":
        for run in pieces.runs:
            drop_whole_channels(run)
    else:
        for piece, features in zip([*pieces.runs[1:], pieces.base], pieces.features[1:-1], strict=True):
            add_offset(piece, features)
    return pieces


def _head(pieces: Pieces, num_classes: int | None) -> nn.Module:
    head = SourceHead(pieces.head, pieces.features[-1])
    if num_classes is None or num_classes == head.num_classes:
        return head
    if len(pieces.head.graph.nodes) == 2:  # the source ends in a signal
        return Head(pieces.features[-1], num_classes)
    head.reset_classifier(num_classes)
    return head


def _residuals(
    pieces: Pieces, ladder: Sequence[Grid], kernel: Kernel, form: Form, *, check: bool
) -> list[LaplacianResidual]:
    widths, steps = itertools.pairwise(pieces.features[:-1]), itertools.pairwise(ladder)
    return [
        _residual(run, features, grids, kernel=kernel, form=form, check=check)
        for run, features, grids in zip(pieces.runs, widths, steps, strict=True)
    ]


def _residual(
    run: fx.GraphModule, features: tuple[int, int], grids: tuple[Grid, Grid], *, kernel: Kernel, form: Form, check: bool
) -> LaplacianResidual:
    place = f"the run of layers from {format_grid(grids[0])} to {format_grid(grids[1])}"
    try:
        return LaplacianResidual(run, *features, *grids, kernel, form=form, check=check)
    except ConstancyError as error:
        culprit = f"layer {error.submodule!r}" if error.submodule else _find_varying_node(run, features[0], grids[0])
        flaw = "depends on the position"
        if math.isinf(error.deviation):
            flaw = "returns NaN or infinity for an all-zero input"
        text = f"{place} {flaw}, because of {culprit}: {error}"
        raise ConstancyError(text, error.submodule, error.deviation) from error
    except ArrnError as error:
        raise ArrnError(f"{place} cannot become a residual in form {form!r}: {error}") from error


def _find_varying_node(run: fx.GraphModule, features: int, grid: Grid) -> str:
    """The first node, in words, that turns constant inputs into an output that varies over space.

    The constancy check names submodules; a traced network also calls functions, such as the addition
    of a position embedding.
    """
    for training in (True, False):
        probe, x, _ = probe_of(run, features, grid, seed=0, training=training)
        watch = _VariationWatch(cast(fx.GraphModule, probe))
        with torch.no_grad(), torch.random.fork_rng(devices=[]), made_like(x):
            watch.run(x)
        if watch.culprit is not None:
            return describe(watch.culprit)
    return "several layers together"


class _VariationWatch(fx.Interpreter):
    """Runs a graph and remembers the first node that made something vary; weights may vary as they like."""

    def __init__(self, probe: fx.GraphModule) -> None:
        super().__init__(probe)
        self.signals: set[fx.Node] = set()
        self.varying: set[fx.Node] = set()
        self.culprit: fx.Node | None = None

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        if n.op == "placeholder" or any(source in self.signals for source in n.all_input_nodes):
            self.signals.add(n)
            tensor = isinstance(value, torch.Tensor) and value.is_floating_point()
            if tensor and variation(value) > TOLERANCE:
                self.varying.add(n)
                if self.culprit is None and not any(source in self.varying for source in n.all_input_nodes):
                    self.culprit = n
        return value
