"""The depthwise convolutions as operators: what PyTorch demands of one, and which path is taken when."""

import pytest
import torch
import torch.nn.functional as F

import arrn
from arrn.gpu import (
    fast_path,
    kernels_serve,
    reference_depthwise,
    reference_path,
    replicate_depthwise,
    silu_depthwise_silu,
)
from arrn.nn import ReplicateConv2d
from strategies import relative_error


def test_it_is_what_padding_and_convolution_are(device: torch.device) -> None:
    x = torch.randn(2, 6, 5, 7, device=device, requires_grad=True)
    weight = torch.randn(6, 1, 3, 3, device=device, requires_grad=True)
    bias = torch.randn(6, device=device, requires_grad=True)
    y, expected = replicate_depthwise(x, weight, bias), reference_depthwise(x, weight, bias)
    torch.testing.assert_close(y, expected)
    assert y.is_contiguous(memory_format=torch.channels_last)
    gradient = torch.randn_like(y)
    torch.testing.assert_close(
        torch.autograd.grad(y, (x, weight, bias), gradient), torch.autograd.grad(expected, (x, weight, bias), gradient)
    )


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # opcheck's own
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("form", [torch.contiguous_format, torch.channels_last])
def test_pytorch_finds_it_well_made(device: torch.device, with_bias: bool, form: torch.memory_format) -> None:
    x = torch.randn(2, 4, 3, 5, device=device).contiguous(memory_format=form).requires_grad_()
    weight = torch.randn(4, 1, 3, 3, device=device, requires_grad=True)
    bias = torch.randn(4, device=device, requires_grad=True) if with_bias else None
    torch.library.opcheck(replicate_depthwise, (x, weight, bias))


def test_a_compiled_function_takes_it_whole(device: torch.device) -> None:
    x, weight = torch.randn(2, 4, 3, 5, device=device), torch.randn(4, 1, 3, 3, device=device)
    compiled = torch.compile(lambda x, w: replicate_depthwise(x, w, None) + 1, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, weight), reference_depthwise(x, weight) + 1)


@pytest.mark.parametrize("form", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_with_silu_around_it_it_is_what_three_layers_are(
    device: torch.device, form: torch.memory_format, precision: torch.dtype
) -> None:
    x = torch.randn(2, 6, 5, 7, device=device).to(precision).contiguous(memory_format=form)
    weight, bias = torch.randn(6, 1, 3, 3, device=device).to(precision), torch.randn(6, device=device).to(precision)
    exact = F.silu(reference_depthwise(F.silu(x.double()), weight.double(), bias.double()))
    y = silu_depthwise_silu(x, weight, bias)
    assert y.is_contiguous(memory_format=torch.channels_last)
    assert relative_error(y.double(), exact) < (1e-6 if precision == torch.float32 else 1e-2)
    torch.library.opcheck(silu_depthwise_silu, (x, weight, bias))


@pytest.mark.parametrize(
    ("options", "fits"),
    [
        ({"padding": 1, "groups": 8}, True),
        ({"padding": 1, "groups": 4}, False),
        ({"padding": 0, "groups": 8}, False),
        ({"padding": 1, "groups": 8, "stride": 2}, False),
        ({"padding": 2, "groups": 8, "dilation": 2}, False),
    ],
)
def test_only_the_convolution_it_computes_goes_to_it(options: dict[str, int], fits: bool) -> None:
    assert ReplicateConv2d(8, 8, 3, **options).fits_kernel is fits


def test_a_cpu_keeps_to_pytorchs_own() -> None:
    with fast_path():
        assert not kernels_serve(torch.zeros(1, 2, 3, 4))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_on_a_gpu_the_path_is_a_choice_and_types_it_does_not_know_fall_back() -> None:
    x = torch.zeros(1, 2, 3, 4, device="cuda")
    with fast_path():
        assert kernels_serve(x)
        assert kernels_serve(x.bfloat16())
        assert not kernels_serve(x.double())
        with reference_path():
            assert not kernels_serve(x)


def test_what_is_exported_needs_only_pytorch(device: torch.device) -> None:
    torch.manual_seed(0)
    model = arrn.create_model("arrn_small").eval().to(device).at_resolution(16)
    with fast_path():
        exported = torch.export.export(model, (torch.randn(2, 3, 16, 16, device=device),))
    operators = {str(node.target) for node in exported.graph.nodes if node.op == "call_function"}
    assert not [name for name in operators if "arrn" in name]


def test_autocast_leaves_its_precision_alone(device: torch.device) -> None:
    x, weight = torch.randn(2, 4, 3, 5, device=device), torch.randn(4, 1, 3, 3, device=device)
    for operator in (replicate_depthwise, silu_depthwise_silu):
        with torch.autocast(device.type, torch.bfloat16):
            cast = operator(x, weight, None)
        torch.testing.assert_close(cast, operator(x, weight, None))
