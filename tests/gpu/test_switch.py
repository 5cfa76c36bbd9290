"""Which way is taken is decided while a compiler looks on."""

from types import SimpleNamespace

import pytest
import torch

from arrn.gpu.switch import fast_path, kernels_serve, reference_path

ON_A_GPU = SimpleNamespace(is_cuda=True, dtype=torch.bfloat16)  # the decision of a GPU, without one


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch 2.11's own, beside a GPU
def test_compilers_trace_the_decision_whole() -> None:
    def decide(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if kernels_serve(ON_A_GPU) else x

    torch.compiler.reset()
    compiled = torch.compile(decide, fullgraph=True, backend="eager")
    x = torch.zeros(2)
    with fast_path():
        assert torch.equal(compiled(x), decide(x))
    with reference_path():
        assert torch.equal(compiled(x), x)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_is_exported_decides_for_pytorchs_own(strict: bool) -> None:
    class Decides(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1 if kernels_serve(ON_A_GPU) else x - 1

    exported = torch.export.export(Decides(), (torch.zeros(2),), strict=strict)
    assert torch.equal(exported.module()(torch.zeros(2)), -torch.ones(2))


@pytest.mark.parametrize(
    ("is_cuda", "dtype", "served"),
    [(True, torch.float16, True), (True, torch.float64, False), (False, torch.float32, False)],
)
def test_kernels_serve_the_types_they_know_on_a_gpu(is_cuda: bool, dtype: torch.dtype, served: bool) -> None:
    pytest.importorskip("triton")
    with fast_path():
        assert kernels_serve(SimpleNamespace(is_cuda=is_cuda, dtype=dtype)) is served
