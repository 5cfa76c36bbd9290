"""Backbones: as many maps on the same grids whatever the input's size, and skipping that is exact at each of them."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import arrn
from arrn.nn import ARRN, Backbone, InvertedBlock, LaplacianResidual, Projection, ResidualBase
from arrn.signal import resample
from arrn.testing import assert_exact_skipping, awaken_norms
from strategies import LARGEST, PERFECT, Case, cases, ladders, relative_error


def strided(features: int, out: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(features, out, 3, 2, padding=1, bias=False), nn.BatchNorm2d(out), nn.ReLU())


def transplanted(size: tuple[int, ...]) -> ARRN:
    source = nn.Sequential(strided(3, 4), strided(4, 6), strided(6, 8), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return arrn.transplant(nn.Sequential(*source, nn.Linear(8, 5)), size=size)


@st.composite
def networks(draw: st.DrawFn) -> Case:
    """A network of any design, and an input that usually skips some of its levels."""
    design = draw(st.sampled_from(["generic", "generic", "junctions", "transplant"]))
    if design == "generic":
        return draw(cases())
    seed = draw(st.integers(0, 2**16))
    torch.manual_seed(seed)
    if design == "junctions":
        ndim = draw(st.integers(1, 3))
        kernel = draw(st.sampled_from(PERFECT))
        channels = draw(st.integers(1, 3))
        model = arrn.create_model(
            "arrn_pyramid",
            sizes=draw(ladders(ndim)),
            width=8,
            ndim=ndim,
            kernel=kernel,
            in_channels=channels,
            repeats=1,
        )
    else:
        model = transplanted(draw(st.sampled_from([(16, 16), (21, 13), (17, 24)])))
    model.double()
    full = torch.randn(6, model.in_channels, *model.grids[0], dtype=torch.float64)
    awaken_norms(model, full, seed)
    bound = draw(st.sampled_from([*model.grids, tuple(n + 3 for n in model.grids[0])]))
    size = tuple(draw(st.integers(max(1, n // 2), n)) for n in bound)
    x = torch.randn(2, model.in_channels, *size, dtype=torch.float64)
    return Case(model, x, full, size, model.level(size))


def assert_same(maps: list[torch.Tensor], others: list[torch.Tensor], tolerance: float = 1e-10) -> None:
    for n, (mine, other) in enumerate(zip(maps, others, strict=True)):
        assert mine.shape == other.shape
        assert float((mine - other).norm()) <= tolerance * float(other.norm()), f"map {n}"


def test_skipping_is_exact_at_every_index() -> None:
    skipping = []

    @settings(max_examples=30)
    @given(networks())
    @torch.no_grad()
    def law(case: Case) -> None:
        skipping.append(case.level > 0)
        ran: list[int] = []
        for n, level in enumerate(case.model.levels):
            level.block.register_forward_hook(lambda *_, n=n: ran.append(n))
        maps = case.model.forward_levels(case.x)
        assert ran == list(range(case.level, len(case.model.levels)))
        assert_same(maps, case.model.forward_levels(case.x, adapt=False))

    law()
    assert sum(skipping) >= len(skipping) / 2


@settings(max_examples=15)
@given(networks())
@torch.no_grad()
def test_the_block_of_a_level_shows_in_its_own_map(case: Case) -> None:
    full = case.model.forward_levels(case.full)
    r = case.model.stem(case.full)
    for level, features in zip(case.model.levels, full, strict=False):
        if not level.strided or level.tells_map:
            assert relative_error(level.map_without_block(r), features) > 1e-2
        r = level(r)


@settings(max_examples=15)
@given(st.data(), networks())
@torch.no_grad()
def test_maps_do_not_depend_on_the_sampling_of_the_input(data: st.DataObject, case: Case) -> None:
    larger = tuple(n + data.draw(st.integers(1, 9)) for n in case.size)
    finer = resample(case.x, larger, case.model.kernel)
    assert_same(case.model.forward_levels(finer), case.model.forward_levels(case.x))


@settings(max_examples=15)
@given(st.data(), networks())
@torch.no_grad()
def test_the_list_has_one_length_and_every_map_one_shape(data: st.DataObject, case: Case) -> None:
    backbone = Backbone(case.model)
    info = backbone.feature_info
    ndim = case.model.ndim
    size = tuple(data.draw(st.integers(1, LARGEST[ndim] + 3)) for _ in range(ndim))
    maps = backbone(torch.randn(1, case.model.in_channels, *size, dtype=torch.float64))
    assert [features.shape[1] for features in maps] == info.channels() == backbone.out_channels
    assert [tuple(features.shape[2:]) for features in maps] == info.grid()
    assert info.grid()[: len(case.model.grids)] == list(case.model.grids)
    assert len(set(info.grid())) == len(info) == len(maps)


@settings(max_examples=15)
@given(st.data(), networks())
@torch.no_grad()
def test_the_cheap_policy_gives_the_maps_of_the_smoothed_input(data: st.DataObject, case: Case) -> None:
    top = case.model.grids[0]
    x = resample(case.full, tuple(data.draw(st.integers(1, n)) for n in top), case.model.kernel)
    grid = case.model.grids[case.model.level(tuple(x.shape[2:]), "cheap")]
    smoothed = resample(x, tuple(map(min, x.shape[2:], grid)), case.model.kernel)
    assert_same(case.model.forward_levels(x, policy="cheap"), case.model.forward_levels(smoothed, adapt=False))


KINDS = {
    "paper": {"name": "arrn"},
    "difference": {"name": "arrn", "form": "difference", "block": "dense"},
    "gated": {"name": "arrn", "form": "gated", "block": "dense"},
    "zero_preserving": {"name": "arrn", "block": "zero_preserving"},
    "junctions": {"name": "arrn_pyramid"},
}


def small(kind: str, **options: object) -> ARRN:
    torch.manual_seed(0)
    own = {"width": 8} if kind == "junctions" else {"features": (4, 6, 8), "expansion": 2, "depth": 1}
    model = arrn.create_model(**KINDS[kind], **own, **{"sizes": (12, 8, 5), "blockless": ()} | options).double()
    awaken_norms(model, torch.randn(6, 3, 12, 12, dtype=torch.float64))
    return model


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_dropping_levels_in_training_gives_the_maps_of_a_lower_input(kind: str) -> None:
    """In training mode too, draw "sample": batch norms see the same signals."""
    x = torch.randn(8, 3, 12, 12, dtype=torch.float64)
    for dropped, left in (((1.0, 0.0), 8), ((1.0, 1.0), 5)):
        model = small(kind, dropout=dropped, draw="sample").train()
        lower = resample(x, left)
        expected = copy.deepcopy(model)
        expected.dropout.eval()
        # In training, norms divide the rounding noise of an empty band by little.
        assert_same(model.forward_levels(x), expected.forward_levels(lower, adapt=False), 1e-6)


@pytest.mark.parametrize("draw", ["sample", "stratified", "batch"])
@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_each_sample_gets_the_maps_of_its_own_resolution(kind: str, draw: str) -> None:
    model = small(kind, dropout=(0.7, 0.7, 0.7), draw=draw, blockless=(6,))
    x = torch.randn(8, 3, 12, 12, dtype=torch.float64)
    each = [model.forward_levels(x), *(model.forward_levels(resample(resample(x, n), 12)) for n in (8, 6, 5))]
    model.dropout.train()
    for seed in range(3):
        torch.manual_seed(seed)
        maps = model.forward_levels(x)
        found = set()
        for sample in range(len(x)):
            errors = [
                max(relative_error(m[sample], o[sample]) for m, o in zip(maps, other, strict=True)) for other in each
            ]
            assert min(errors) < 1e-10
            found.add(errors.index(min(errors)))
        assert len(found) > (draw != "batch")


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_maps_are_chosen_and_what_lies_below_the_last_does_not_run(kind: str) -> None:
    model = small(kind)
    x = torch.randn(2, 3, 12, 12, dtype=torch.float64)
    every = Backbone(model)(x)
    ran: list[object] = []
    for part in (*(level.block for level in model.levels), model.base):
        part.register_forward_hook(lambda part, *_: ran.append(part))
    for indices, parts in (((0,), 1), ((1,), 2), ((1, 0), 2), ((-1,), 3), ((0, -1), 3), (None, 3)):
        backbone = Backbone(model, indices)
        chosen = range(len(every)) if indices is None else indices
        ran.clear()
        assert_same(backbone(x), [every[n] for n in chosen], 0)
        assert len(ran) == parts
        assert backbone.feature_info.channels() == [every[n].shape[1] for n in chosen]
    ran.clear()
    assert_same(Backbone(model, (0,))(x[..., :5, :5]), [every[0]] and Backbone(model)(x[..., :5, :5])[:1], 0)


def test_a_network_gives_its_backbone_everything_but_the_head() -> None:
    model = small("paper")
    model.train()
    backbone = Backbone(model, (0, 1))
    assert backbone.training
    assert backbone.network.levels[0] is model.levels[0]
    assert {id(p) for p in backbone.parameters()} == {id(p) for p in model.parameters()} - {
        id(p) for p in model.head.parameters()
    }
    assert (backbone.sizes, backbone.in_channels, backbone.num_classes, backbone.ndim) == ((12, 8, 5), 3, 0, 2)
    assert backbone.entry_grid((7, 3)) == (8, 8)
    backbone.policy = "cheap"
    assert backbone.level(7) == 2
    assert model.policy == "exact"
    assert model(torch.randn(2, 3, 12, 12, dtype=torch.float64)).shape == (2, 10)


@pytest.mark.parametrize("kind", KINDS)
def test_every_parameter_learns_from_the_maps(kind: str) -> None:
    model = Backbone(small(kind, dropout=0.3)).train()
    maps = model(torch.randn(8, 3, 12, 12, dtype=torch.float64))
    sum((features.square() * torch.rand_like(features)).mean() for features in maps).backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters() if p.requires_grad)


def test_a_level_that_widens_before_it_hands_down_maps_the_wider_signal() -> None:
    torch.manual_seed(0)
    wide = nn.Sequential(InvertedBlock(4, 2, 1), nn.Conv2d(4, 6, 1, bias=False))
    odd = nn.Conv2d(4, 5, 3, padding=1, padding_mode="replicate", bias=False)
    hand_down = nn.Conv2d(5, 6, 3, stride=2, padding=1, bias=False)
    for block, options, channels in ((wide, {}, 6), (odd, {"hand_down": hand_down}, 4)):
        model = ARRN(
            stem=Projection(3, 4),
            residuals=[LaplacianResidual(block, 4, 6, 12, 6, **options)],
            base=ResidualBase(InvertedBlock(6, 2, 1)),
            head=nn.Identity(),
        ).double()
        awaken_norms(model, torch.randn(6, 3, 12, 12, dtype=torch.float64))
        x = torch.randn(2, 3, 5, 6, dtype=torch.float64)
        assert Backbone(model).out_channels == [channels, 6]
        with torch.no_grad():
            assert_same(model.forward_levels(x), model.forward_levels(x, adapt=False))


def test_reductions_are_numbers_where_they_can_be() -> None:
    model = arrn.create_model("arrn", sizes=((12, 16), (12, 8), (6, 4), (4, 4)), features=(4, 4, 4, 4), depth=1)
    info = Backbone(model).feature_info
    assert info.reduction() == [1, (1, 2), (2, 4), (3, 4)]
    assert Backbone(small("paper")).feature_info.reduction() == [1, 1.5, 2.4]
    assert info.get_dicts(["num_chs", "index"], [1]) == [{"num_chs": 4, "index": 1}]
    assert info.get_dicts(idx=2)["grid"] == info.grid(2) == info[2]["grid"] == (6, 4)
    assert info.module_name() == ["residuals.0", "residuals.1", "residuals.2", "base"]
    assert repr(info) == "FeatureInfo(0: 4 x 12x16, 1: 4 x 12x8, 2: 4 x 6x4, 3: 4 x 4)"


@pytest.mark.parametrize(
    ("indices", "problem"),
    [
        ((0, 3), r"from -3 to 2, got \(0, 3\)"),
        ((True,), "from -3 to 2"),
        ((0, -3), "each once"),
        ((), "at least one map"),
        ("01", "from -3 to 2, got '01'"),
        (1.5, "from -3 to 2, got 1.5"),
    ],
)
def test_indices_of_no_maps_are_refused(indices: object, problem: str) -> None:
    with pytest.raises(arrn.ArrnError, match=problem):
        Backbone(small("paper"), indices)


def test_what_does_not_adapt_is_no_backbone() -> None:
    with pytest.raises(arrn.ArrnError, match="a backbone is made of an adaptive network, and a Linear is none"):
        Backbone(nn.Linear(2, 2))


@pytest.mark.parametrize("kind", ["paper", "junctions"])
@torch.no_grad()
def test_a_backbone_is_exported_at_a_size(kind: str) -> None:
    backbone = Backbone(small(kind).float(), (0, -1)).eval()
    x = torch.randn(2, 3, 7, 8)
    exported = torch.export.export(backbone, (x,)).module()
    assert_same(exported(x), backbone(x), 1e-5)


def test_a_backbone_is_checked_as_a_whole_network_is() -> None:
    assert_exact_skipping(Backbone(small("junctions")))
    model = small("paper")
    assert_exact_skipping(model, policy="cheap")
    model.levels[1]._map = lambda r, y, inside: 2 * r
    with pytest.raises(AssertionError, match="with and without skipping the feature maps 1 differ by"):
        assert_exact_skipping(Backbone(model))
