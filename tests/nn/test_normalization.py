"""`BatchRMSNorm`: batch norm without its centring."""

import pytest
import torch

from arrn.nn import BatchRMSNorm


@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_agrees_with_batch_norm_on_centred_data(ndim: int) -> None:
    x = torch.randn(6, 3, *[5] * ndim, dtype=torch.float64)
    space = (0, *range(2, x.ndim))
    x = x - x.mean(dim=space, keepdim=True)
    norm = BatchRMSNorm(3).double()
    expected = torch.nn.functional.batch_norm(x, None, None, training=True)
    assert torch.allclose(norm(x), expected)
    assert torch.allclose(norm.running_mean_square, 0.9 + 0.1 * x.square().mean(dim=space))


def test_evaluation_uses_the_running_value_and_keeps_zero() -> None:
    norm = BatchRMSNorm(2).eval()
    norm.running_mean_square.copy_(torch.tensor([4.0, 9.0]))
    y = norm(torch.ones(1, 2, 3))
    assert torch.allclose(y[0, :, 0], torch.tensor([0.5, 1 / 3]), atol=1e-5)
    assert not norm(torch.zeros(1, 2, 3)).any()


def test_half_precision_does_not_overflow() -> None:
    x = torch.full((4, 1, 64, 64), 300.0, dtype=torch.float16)
    assert torch.allclose(BatchRMSNorm(1)(x).float(), torch.ones(()), atol=1e-2)
