"""`Replay`: a function recorded as a CUDA graph."""

import pytest
import torch

import arrn
from arrn.gpu import Replay
from arrn.nn import Frozen

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


def test_each_shape_has_a_recording_of_its_own_up_to_the_limit() -> None:
    seen = torch.zeros((), device="cuda")

    def add(x: torch.Tensor) -> None:
        seen.add_(x.sum() + torch.rand((), device="cuda") * 0)

    replay = Replay(add, torch.device("cuda"), warmup=1, limit=2)
    for _ in range(4):
        for length in (1, 2, 3):
            replay(torch.ones(length, device="cuda"))
    assert replay.recordings == 2
    assert float(seen) == 4 * (1 + 2 + 3)


def test_what_is_forgotten_is_recorded_anew() -> None:
    seen, factor = torch.zeros((), device="cuda"), 1.0

    def add(x: torch.Tensor) -> None:
        seen.add_(x.sum() * factor)

    replay = Replay(add, torch.device("cuda"), warmup=1)
    for _ in range(3):
        replay(torch.ones(2, device="cuda"))
    factor = 10.0
    replay.forget()
    assert replay.recordings == 0
    for _ in range(3):
        replay(torch.ones(2, device="cuda"))
    assert replay.recordings == 1
    assert float(seen) == 3 * 2 + 3 * 20


def test_random_numbers_are_those_of_the_seed() -> None:
    drawn = torch.zeros(3, device="cuda")

    def draw(x: torch.Tensor) -> None:
        drawn.copy_(torch.rand(3, device="cuda") + x)

    replay = Replay(draw, torch.device("cuda"), warmup=0)
    for seed in (1, 2, 1):
        torch.manual_seed(seed)
        expected = torch.rand(3, device="cuda")
        torch.manual_seed(seed)
        replay(torch.zeros(1, device="cuda"))
        assert torch.equal(drawn, expected)


def test_what_cannot_be_recorded_runs_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    seen = []

    def wait(x: torch.Tensor) -> None:
        seen.append(float(x))

    replay = Replay(wait, torch.device("cuda"), warmup=1)
    for n in range(4):
        replay(torch.tensor(float(n), device="cuda"))
    assert seen == [0.0, 1.0, 2.0, 3.0]
    assert replay.recordings == 0
    assert caplog.text.count("cannot be recorded") == 1


@torch.no_grad()
def test_answers_are_the_functions_own_and_outlive_the_next_call() -> None:
    torch.manual_seed(0)
    network = arrn.create_model("arrn_small").eval().cuda().at_resolution(16).fuse()
    fast = Replay(network, torch.device("cuda"), warmup=1)
    inputs = [torch.randn(4, 3, 16, 16, device="cuda") for _ in range(5)]
    answers = [fast(x) for x in inputs]
    for x, answer in zip(inputs, answers, strict=True):
        torch.testing.assert_close(answer, network(x), rtol=1e-4, atol=1e-4)


def test_calls_from_several_streams_follow_one_another() -> None:
    total = torch.zeros(2**22, device="cuda")

    def double_and_add(x: torch.Tensor) -> None:
        total.mul_(2).add_(x)

    replay = Replay(double_and_add, torch.device("cuda"), warmup=1)
    streams = [torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()]
    one = torch.ones(1, device="cuda")
    torch.cuda.synchronize()
    for n in range(12):
        with torch.cuda.stream(streams[n % 3]):
            replay(one)
    torch.cuda.synchronize()
    assert torch.equal(total, torch.full_like(total, 2**12 - 1))


@torch.no_grad()
def test_a_recording_outlives_the_autocast_in_which_it_was_made() -> None:
    torch.manual_seed(0)
    layer = torch.nn.Linear(64, 64, device="cuda")
    x = torch.randn(8, 64, device="cuda")
    fast = Replay(layer, torch.device("cuda"), warmup=1)
    with torch.autocast("cuda", torch.bfloat16):
        expected, *_ = (fast(x) for _ in range(3))
    assert fast.recordings == 1
    for _ in range(4):  # whatever was freed is written to
        torch.full((64, 64), torch.nan, dtype=torch.bfloat16, device="cuda")
    torch.testing.assert_close(fast(x), expected)


@pytest.mark.parametrize("cast", [False, True])
@pytest.mark.filterwarnings("ignore")  # a compiler warns of its own insides
@torch.no_grad()
def test_what_is_compiled_is_not_compiled_again_while_it_is_recorded(cast: bool) -> None:
    x = torch.randn(4, 3, 16, 16, device="cuda")
    network = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.SiLU()).eval().cuda()
    frozen = Frozen(network)
    fast = Replay(frozen, torch.device("cuda"), warmup=1)
    with torch.autocast("cuda", torch.bfloat16, enabled=cast):
        expected = frozen(x).float()
        fast(x)
        with torch._dynamo.config.patch(error_on_recompile=True):
            answer = fast(x)
    assert fast.recordings == 1
    network[0].weight.zero_()  # it is still the frozen network
    for found in (answer, fast(x)):
        torch.testing.assert_close(found.float(), expected, rtol=2e-2, atol=2e-2)


@torch.no_grad()
def test_a_recording_keeps_the_matrices_that_it_reads() -> None:
    kernel = arrn.signal.kernel("perfect")
    fast = Replay(lambda x: arrn.signal.resample(x, 8, kernel), torch.device("cuda"), warmup=1)
    x = torch.randn(4, 3, 16, 16, device="cuda")
    expected, *_ = (fast(x) for _ in range(3))
    for size in range(17, 90):  # more sizes than are remembered
        arrn.signal.resample(torch.randn(1, 1, size, size, device="cuda"), 8, kernel)
        torch.full((8, 16), torch.nan, device="cuda")
    torch.testing.assert_close(fast(x), expected)
