"""Tied networks: one CNN at every level, with norms of its own; vectors that meet; weights that are held once."""

import copy

import pytest
import torch
from torch import nn

import arrn
from arrn.gpu import Replay
from arrn.nn import (
    BasicBlock,
    Borrowed,
    Shortcut,
    VectorJunction,
    count_parameters,
    multiply_adds,
    multiply_adds_of_noise,
)
from arrn.nn.inference import above_open_gates, fold_batch_norms
from arrn.signal import resample
from arrn.testing import assert_exact_skipping, awaken_norms
from strategies import relative_error

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
SMALL = {"sizes": (16, 8, 4), "width": 4, "repeats": (1, 1)}
LADDERS = [
    {"sizes": (96, 48, 24, 12)},
    {"sizes": (33, 20, 9), "lift": (1.25, 2)},
    {"sizes": ((24, 16), (12, 8), (6, 4)), "lift": 1.5},
    {"sizes": (64, 32, 10), "ndim": 1, "in_channels": 1, "own_repeats": (1, 0, 1)},
    {"sizes": (12, 6, 3), "ndim": 3, "in_channels": 2, "lift": 1},
    {"sizes": (16, 7), "own_repeats": (2,)},
    {"sizes": (16, 8, 4), "own_repeats": (1, 2), "own_stage": 2},
    {"sizes": (16, 8, 4), "width": (6, 4, 5), "own_repeats": (1,), "own_stage": 3},
    {"sizes": (16, 8, 4), "repeats": (2,), "own_repeats": ()},  # as files saved before `own_stage` may say
]


@pytest.mark.parametrize("ladder", LADDERS, ids=lambda ladder: str(ladder["sizes"]))
def test_designs_are_built_for_any_ladder_and_skip_exactly(ladder: dict[str, object]) -> None:
    model = arrn.create_model("arrn_mini", **{"width": 4, "repeats": (1, 1, 1), "num_classes": 4, **ladder})
    assert_exact_skipping(model, tolerance=1e-10)
    assert_exact_skipping(model, dtype=torch.float32, tolerance=1e-4)


@pytest.mark.parametrize(
    ("name", "parameters", "at_most", "with_details"),
    [("arrn_medium", 6.64, (611, 213, 78), (398, 135, 78)), ("arrn_mini", 0.74, (69, 24, 9), (45, 15, 9))],
)
def test_what_the_designs_cost(
    name: str, parameters: float, at_most: tuple[int, ...], with_details: tuple[int, ...]
) -> None:
    """Million parameters, and million multiply-adds at 32, 16 and 8, as the documents say."""
    model = arrn.create_model(name)
    assert round(count_parameters(model) / 1e6, 2) == parameters
    for count, expected in ((multiply_adds, at_most), (multiply_adds_of_noise, with_details)):
        assert tuple(round(count(model.at_resolution(n), (1, 3, n, n)) / 1e6) for n in (32, 16, 8)) == expected


@torch.no_grad()
def test_levels_below_the_details_do_not_run_and_flat_samples_still_get_theirs() -> None:
    model = arrn.create_model("arrn_mini", **SMALL).double().eval()
    awaken_norms(model, torch.randn(4, 3, 16, 16, dtype=torch.float64))
    x = torch.randn(5, 3, 16, 16, dtype=torch.float64)
    smooth = resample(resample(x, 8), 16)
    flat = resample(resample(x, 4), 16)
    few = smooth + 0.01 * x
    ran: list[list[int]] = [[], []]
    for n, junction in enumerate((model.residuals[1].block, model.base)):
        junction.network[0].register_forward_hook(lambda _, inputs, __, n=n: ran[n].append(len(inputs[0])))
    whole = torch.cat([x[:2], smooth[:2], few[:1], flat[2:]])
    together = model(whole)
    assert ran == [[6], [3]]  # not the first two; of these, what has details above the base's grid runs no base
    alone = torch.cat([model(sample[None]) for sample in whole])
    torch.testing.assert_close(together, alone)
    forced = [model.residuals[1].block, model.base]
    for junction in forced:
        junction._settled = lambda gate: None
    torch.testing.assert_close(model(whole), together)


def signals_with_and_without_details() -> tuple[torch.Tensor, list[bool]]:
    """Signals on 16x16, and whether all gates of a ladder 16, 8, 4 are open for them."""
    x = torch.randn(5, 3, 16, 16, dtype=torch.float64)
    smooth, flat = (resample(resample(x, size), 16) for size in (8, 4))
    few = smooth + 0.01 * x  # a gate between 0 and 1
    no_middle = flat + x - smooth  # the upper gate is open, the lower one is not
    return torch.cat([x[:2], few[:1], smooth[:1], flat[:1], no_middle[:1]]), [True, True, False, False, False, False]


@torch.no_grad()
def test_above_open_gates_the_answer_is_that_of_the_network_and_elsewhere_it_is_said_not_to_hold() -> None:
    model = arrn.create_model("arrn_mini", **SMALL).double().eval()
    awaken_norms(model, torch.randn(4, 3, 16, 16, dtype=torch.float64))
    x, opens = signals_with_and_without_details()
    for level in (model.at_resolution(16), model.at_resolution(16).fuse()):
        above = above_open_gates(level)
        assert above is not None
        found = above(x)
        assert (found[:, -1] == 1).tolist() == opens
        torch.testing.assert_close(found[:2, :-1], model(x[:2]), rtol=1e-12, atol=1e-12)
        assert relative_error(found[2:, :-1], model(x[2:])) > 1e-3  # what was left out matters there
        weights = {p.data_ptr() for p in level.parameters()}
        assert all(p.data_ptr() in weights for p in above.parameters())
        # Projections and vectors that the levels hand on are left out too.
        assert 0.98 < multiply_adds(above, (1, 3, 16, 16)) / multiply_adds_of_noise(level, (1, 3, 16, 16)) <= 1
        assert multiply_adds(above, (1, 3, 16, 16)) < 0.8 * multiply_adds(level, (1, 3, 16, 16))


@torch.no_grad()
@pytest.mark.parametrize("size", [16, 12, 8, 4])
def test_a_shortcut_answers_as_the_network_and_runs_it_only_where_a_gate_is_not_open(size: int) -> None:
    model = arrn.create_model("arrn_mini", **SMALL).double().eval()
    awaken_norms(model, torch.randn(4, 3, 16, 16, dtype=torch.float64))
    level, ran = model.at_resolution(size).fuse(), [0]
    level.register_forward_hook(lambda *_: ran.append(ran.pop() + 1))
    programs: list[nn.Module] = []

    def prepare(program: nn.Module) -> nn.Module:
        programs.append(program)
        return program

    fast = Shortcut.of(level, prepare)
    x = resample(signals_with_and_without_details()[0], size)
    torch.testing.assert_close(fast(x[:2]), model(x[:2]), rtol=1e-12, atol=1e-12)
    assert (len(programs), ran) == ((1, [1]) if size == 4 else (2, [0]))  # the base is all that there is on 4x4
    torch.testing.assert_close(fast(x), model(x), rtol=1e-12, atol=1e-12)
    assert ran == [2 if size == 4 else 1]


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_shortcut_in_half_precision(dtype: torch.dtype) -> None:
    model = arrn.create_model("arrn_mini", **SMALL).eval()
    awaken_norms(model, torch.randn(4, 3, 16, 16))
    level = model.to(dtype).at_resolution(16).fuse()
    fast = Shortcut.of(level, lambda program: program)
    x = signals_with_and_without_details()[0].to(dtype)
    assert fast(x).dtype == fast(x[:2]).dtype == dtype
    assert relative_error(fast(x[:2]), level(x[:2])) < 2e-2
    torch.testing.assert_close(fast(x), level(x))


@torch.no_grad()
def test_other_networks_have_no_shortcut() -> None:
    model = arrn.create_model("arrn", sizes=(8, 4), features=(4, 6)).eval()
    for network in (model, model.at_resolution(8), nn.Conv2d(3, 4, 1), arrn.create_model("arrn_pyramid").eval()):
        assert above_open_gates(network) is None


@needs_gpu
@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_recorded_shortcut_answers_as_the_network(dtype: torch.dtype) -> None:
    device = torch.device("cuda")
    model = arrn.create_model("arrn_mini", **SMALL).eval()
    awaken_norms(model, torch.randn(4, 3, 16, 16))
    level = model.to(device=device, dtype=dtype).at_resolution(16).fuse()
    fast = Shortcut.of(level, lambda program: Replay(torch.no_grad()(program), device, warmup=1))
    x = signals_with_and_without_details()[0].to(device=device, dtype=dtype)
    for batch in (x, x[:2], x, x[:2], x, x[:2]):
        assert relative_error(fast(batch), level(batch)) < (1e-5 if dtype == torch.float32 else 2e-2)


def test_in_training_a_level_runs_for_the_samples_that_enter_there() -> None:
    """With all gates open, the answers of each group are those of its level alone, in its own batch norms."""
    model = arrn.create_model("arrn_mini", **SMALL, blockless=()).double().train()
    model.dropout.p, model.dropout.shuffled = (0.5, 0.6), True  # of 10 samples, 5 keep both levels and 2 one
    x = torch.randn(10, 3, 16, 16, dtype=torch.float64)
    ran: list[int] = []
    for junction in (*(level.block for level in model.levels), model.base):
        junction.network[0].register_forward_hook(lambda _, inputs, __: ran.append(len(inputs[0])))
    groups = [x[:5], resample(x[5:7], 8), resample(x[7:], 4)]
    expected = torch.cat(
        [
            model.head(junction.network(group).mean(dim=(2, 3))[:, :, None, None])
            for junction, group in zip((*(level.block for level in model.levels), model.base), groups, strict=True)
        ]
    )
    assert ran == [5, 2, 3]
    torch.testing.assert_close(model(x), expected)
    assert ran[3:] == [5, 2, 3]
    model.dropout.draw = "sample"  # there the gates tell, whose values decide nothing about what runs
    model(x)
    assert ran[6:] == [10, 10, 10]


def test_in_training_no_weight_is_left_out_where_no_sample_enters_below() -> None:
    model = arrn.create_model("arrn_mini", **SMALL, blockless=(), dropout=(0.5, 0.0)).train()
    model(torch.randn(4, 3, 16, 16)).square().sum().backward()
    assert all(p.grad is not None for name, p in model.named_parameters() if p.requires_grad)


@torch.no_grad()
def test_a_level_alone_is_the_cnn_with_the_norms_of_that_level() -> None:
    model = arrn.create_model("arrn_mini", **SMALL).eval()
    awaken_norms(model, torch.randn(4, 3, 16, 16))
    x = resample(torch.randn(2, 3, 4, 4), 8) + 0.02 * torch.randn(2, 3, 8, 8)  # few details: a gate between 0 and 1
    level, base = model.residuals[1].block, model.base
    alone = level.network(x).mean(dim=(2, 3))
    details = x - resample(resample(x, 4), 8)
    energy = details.square().mean(dim=(1, 2, 3)).unsqueeze(1)
    gate = (energy**2 / 0.03**4).clamp(max=1)
    assert bool(((gate > 0) & (gate < 1)).all())
    expected = gate * alone + (1 - gate) * base.network(resample(x, 4)).mean(dim=(2, 3))
    torch.testing.assert_close(model(x), model.head(expected[:, :, None, None]))


@torch.no_grad()
def test_vectors_meet_by_the_gate_and_are_laid_out_over_the_next_grid() -> None:
    layer = nn.Conv2d(3, 7, 1)
    junction = VectorJunction(nn.Sequential(layer), channels=3, features=7, next_size=(2, 3))
    s, g, f = torch.randn(2, 3, 4, 4), torch.rand(2, 1), torch.randn(2, 7)
    own = layer(s).mean(dim=(2, 3))

    def numbers(answer: torch.Tensor) -> torch.Tensor:
        assert answer.shape == (2, 3 + 1 + 2, 2, 3)
        assert not answer[:, :3].any()
        assert bool((answer[:, 3] == 1).all())
        assert not answer[:, 4:].flatten(1)[:, 7:].any()
        return answer[:, 4:].flatten(1)[:, :7]

    torch.testing.assert_close(numbers(junction(s)), own)
    laid = nn.functional.pad(f, (0, 9)).view(2, 1, 4, 4)
    above = torch.cat([s, g.view(2, 1, 1, 1).expand(2, 1, 4, 4), laid], dim=1)
    torch.testing.assert_close(numbers(junction(above)), f + (1 - g) * own)
    base = VectorJunction(nn.Sequential(layer), channels=3, features=7)
    torch.testing.assert_close(base(above).flatten(1), f + (1 - g) * own)


def test_shared_convolutions_are_counted_saved_and_trained_once(tmp_path: object) -> None:
    model = arrn.create_model("arrn_mini", **SMALL, own_repeats=())
    owners = {id(part.owner) for part in model.modules() if isinstance(part, Borrowed)}
    kept = {id(part) for part in model.base.modules() if isinstance(part, nn.Conv2d)}
    assert owners == kept
    weights = [name for name in model.state_dict() if name.endswith("weight") and model.state_dict()[name].ndim == 4]
    assert all(name.startswith("base.") for name in weights)
    arrn.save(model, tmp_path)
    loaded = arrn.load(tmp_path)
    x = torch.randn(2, 3, 16, 16)
    torch.testing.assert_close(loaded.eval()(x), model.eval()(x))
    model.train()(torch.randn(8, 3, 16, 16)).square().sum().backward()
    assert all(
        p.grad is not None for name, p in model.named_parameters() if p.requires_grad and "projection" not in name
    )


@torch.no_grad()
def test_copies_keep_their_own_shared_convolutions() -> None:
    model = arrn.create_model("arrn_mini", **SMALL).eval()
    x = torch.randn(2, 3, 16, 16)
    before, copied = model(x), copy.deepcopy(model)
    for p in copied.parameters():
        p.mul_(2)
    torch.testing.assert_close(model(x), before)
    assert relative_error(copied(x), before) > 0.1
    owner = next(part.owner for part in copied.modules() if isinstance(part, Borrowed))
    assert any(part is owner for part in copied.base.modules())


@torch.no_grad()
@pytest.mark.parametrize("size", [16, 8, 4])
def test_fused_networks_fold_every_norm_and_answer_alike(size: int) -> None:
    model = arrn.create_model("arrn_mini", **SMALL).double().eval()
    awaken_norms(model, torch.randn(4, 3, 16, 16, dtype=torch.float64))
    x = torch.randn(2, 3, size, size, dtype=torch.float64)
    fused = model.at_resolution(size).fuse()
    assert not any(isinstance(part, nn.BatchNorm2d | Borrowed) for part in fused.modules())
    assert relative_error(fused(x), model(x)) < 1e-12


@torch.no_grad()
def test_folded_norms_may_leave_the_weights_that_levels_share() -> None:
    model = arrn.create_model("arrn_mini", **SMALL, own_repeats=(1,)).double().eval()
    awaken_norms(model, torch.randn(4, 3, 16, 16, dtype=torch.float64))
    x = torch.randn(2, 3, 16, 16, dtype=torch.float64)
    expected = model(x)
    weights = {part.weight.data_ptr() for part in model.base.modules() if isinstance(part, nn.Conv2d)}
    folded = fold_batch_norms(model.at_resolution(16), keep_shared=True)
    assert not any(isinstance(part, nn.BatchNorm2d | Borrowed) for part in folded.modules())
    assert relative_error(folded(x), expected) < 1e-12
    for level in folded.levels:
        shared = [part for part in level.modules() if isinstance(part, nn.Conv2d) and part.weight.data_ptr() in weights]
        assert len(shared) == len(weights)


@torch.no_grad()
@pytest.mark.parametrize(
    "options", [{"lift": n} for n in (1.0, 1.5, 2.0, (1.25, 2.0))] + [{"own_repeats": (1, 1), "own_stage": 2}]
)
def test_feature_maps_are_on_the_grids_of_the_ladder(options: dict[str, object]) -> None:
    model = arrn.create_model("arrn_mini", **SMALL, **options).eval()
    maps = model.forward_levels(torch.randn(2, 3, 16, 16))
    grids = [tuple(y.shape[2:]) for y in maps]
    assert grids == [(16, 16), (8, 8), (4, 4), (1, 1)]
    assert maps[0].shape[1] == maps[1].shape[1] == 3 + 1 + 4
    low = model.forward_levels(torch.randn(2, 3, 8, 8))
    assert [y.shape for y in low] == [y.shape for y in maps]
    assert not low[0][:, 3:].any()


def test_a_basic_block_halves_odd_grids_and_any_number_of_axes() -> None:
    for ndim, grid in ((1, (7,)), (2, (5, 8)), (3, (3, 4, 1))):
        y = BasicBlock(3, 6, stride=2, ndim=ndim)(torch.rand(2, 3, *grid))
        assert y.shape == (2, 6, *(-(-n // 2) for n in grid))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 0}, "width must be a whole number of at least 1, got 0"),
        ({"width": (4, 8)}, r"one number, or one for each of the 4 stages of repeats, got \(4, 8\)"),
        ({"width": (4, 8, -1, 8)}, "width must be a whole number of at least 1, got -1"),
        ({"width": (10**9, 8, 8, 8)}, "width of model 'arrn_mini' must be at most 4096, got 1000000000"),
        ({"repeats": ()}, r"repeats must be one number for each stage .* got \(\)"),
        ({"repeats": (2, 0)}, "repeats must be a whole number of at least 1, got 0"),
        ({"repeats": (1,) * 60}, "hidden channels on a grid of 32"),
        ({"own_repeats": (10**9,)}, "at most 1000"),
        ({"own_repeats": (1, 1, 1, 1)}, "one for each of the 3 sizes"),
        ({"own_stage": 5}, "own_stage must be one of the 4 stages of repeats, got 5"),
        ({"lift": 0.5}, "lift must be a number from 1 to 8, or a list of at most 3 .* last the base's, got 0.5"),
        ({"lift": float("nan")}, "last the base's, got nan"),
        ({"lift": (1, 1, 1, 2)}, r"got \(1, 1, 1, 2\)"),
        ({"lift": ()}, r"got \(\)"),
    ],
)
def test_wrong_options_of_a_design_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(arrn.ArrnError, match=message):
        arrn.create_model("arrn_mini", **options)
