"""What stands in the levels, the base and the head of a network: norms, blocks, and the classifier."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import nn

from arrn.errors import ArrnError
from arrn.nn.constancy import preserves_zero, takes_context
from arrn.nn.fast import can_fuse, fused_forward
from arrn.nn.layers import BATCH_NORMS, CONVOLUTIONS, REPLICATE_CONVOLUTIONS
from arrn.signal.operators import is_channels_last

_MEANS = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
_CHANNEL_DROPOUTS = {1: nn.Dropout1d, 2: nn.Dropout2d, 3: nn.Dropout3d}


class BatchRMSNorm(nn.Module):
    """Divides each channel by its root mean square over batch and space; no centring, no bias.

    In training mode the norm uses the mean square of the batch, and averages it into `running_mean_square`; in
    evaluation mode it uses the running value.

    Shape: (batch, features, *space), unchanged; any number of axes.
    """

    running_mean_square: torch.Tensor

    def __init__(self, features: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__()
        self.features, self.eps, self.momentum = features, eps, momentum
        self.weight = nn.Parameter(torch.ones(features))
        self.register_buffer("running_mean_square", torch.ones(features))

    def scale(self, mean_square: torch.Tensor) -> torch.Tensor:
        """The factor of each channel for the given mean square."""
        return self.weight * torch.rsqrt(mean_square + self.eps)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean_square = self.running_mean_square
        if self.training:
            # Sums of squares overflow half precision and lose bf16's few digits.
            wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
            mean_square = wide.square().mean(dim=[0, *range(2, x.ndim)])
            with torch.no_grad():
                self.running_mean_square.lerp_(mean_square.to(self.running_mean_square.dtype), self.momentum)
        factor = self.scale(mean_square).to(x.dtype)
        return x * factor.view(1, -1, *[1] * (x.ndim - 2))

    def extra_repr(self) -> str:
        return f"{self.features}, eps={self.eps}, momentum={self.momentum}"


def _check_shape(features: int, expansion: float, depth: int, ndim: int, dropout: float) -> int:
    if features < 1:
        raise ArrnError(f"a block needs at least 1 feature, got {features}")
    if not expansion > 0:
        raise ArrnError(f"expansion must be above 0, got {expansion}")
    if depth < 1:
        raise ArrnError(f"depth counts convolutions of 3 samples an axis and must be at least 1, got {depth}")
    if not 0 <= dropout < 1:
        raise ArrnError(f"a block's dropout must be in [0, 1), got {dropout}")
    if ndim not in CONVOLUTIONS:
        raise ArrnError(f"signals have 1, 2 or 3 axes, got ndim={ndim}")
    return max(1, round(features * expansion))


class InvertedBlock(nn.Sequential):
    """The paper's block: pointwise expansion, depthwise 3x3 and pointwise in alternation, contraction.

    Batch norm and SiLU stand between each two convolutions. Depthwise convolutions pad with the edge
    samples, so the answer to a zero input is constant over space. No convolution has a bias: batch
    norm or the constant rejection after the block would remove it (in a base, the classifier's own
    bias makes up for it).

    Args:
        features: channels in and out.
        expansion: hidden channels per feature.
        depth: the number of depthwise convolutions.
        ndim: axes of space, 1 to 3.
        dropout: in training, the share of hidden channels that are zeroed after each depthwise convolution, drawn for
            each sample; whole channels, so the answer to a zero input stays constant over space.

    Shape: (batch, features, *space), unchanged.

    >>> InvertedBlock(8, expansion=2, depth=1)(torch.rand(1, 8, 5, 7)).shape
    torch.Size([1, 8, 5, 7])
    """

    def __init__(
        self, features: int, expansion: float = 4, depth: int = 2, ndim: int = 2, dropout: float = 0.0
    ) -> None:
        hidden = _check_shape(features, expansion, depth, ndim, dropout)
        convolution, depthwise, norm = CONVOLUTIONS[ndim], REPLICATE_CONVOLUTIONS[ndim], BATCH_NORMS[ndim]
        layers: OrderedDict[str, nn.Module] = OrderedDict()
        layers["expand"] = convolution(features, hidden, 1, bias=False)
        layers["expand_norm"] = norm(hidden)
        layers["expand_act"] = nn.SiLU()
        for n in range(1, depth + 1):
            layers[f"depthwise{n}"] = depthwise(hidden, hidden, 3, padding=1, groups=hidden, bias=False)
            layers[f"depthwise{n}_norm"] = norm(hidden)
            layers[f"depthwise{n}_act"] = nn.SiLU()
            if dropout:
                layers[f"depthwise{n}_dropout"] = _CHANNEL_DROPOUTS[ndim](dropout)
            if n < depth:
                layers[f"pointwise{n}"] = convolution(hidden, hidden, 1, bias=False)
                layers[f"pointwise{n}_norm"] = norm(hidden)
                layers[f"pointwise{n}_act"] = nn.SiLU()
        layers["contract"] = convolution(hidden, features, 1, bias=False)
        super().__init__(layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if can_fuse(self, x):
            return fused_forward(self, x)
        y: torch.Tensor = super().forward(x)  # type: ignore[no-untyped-call]
        return y


class ResidualStack(nn.Sequential):
    """Blocks that each add to the signal: x + b(x), one after the other, so that deep levels train easily.

    The stack preserves zero if each block does. Context goes to every block, if the blocks take context. A block must
    not change its input in place, as an in-place activation at its beginning would.

    Shape: whatever the blocks keep, unchanged.

    >>> ResidualStack(InvertedBlock(8, depth=1), InvertedBlock(8, depth=1))(torch.rand(1, 8, 5, 7)).shape
    torch.Size([1, 8, 5, 7])
    """

    def __init__(self, *blocks: nn.Module) -> None:
        super().__init__(*blocks)
        self.preserves_zero = all(preserves_zero(block) for block in blocks)
        self.takes_context = all(takes_context(block) for block in blocks)

    def forward(self, x: torch.Tensor, *context: torch.Tensor) -> torch.Tensor:
        for block in self:
            x = x + block(x, *context)
        return x


class ZeroPreservingBlock(nn.Module):
    """A block with b(0) = 0 exactly, whatever the low band is. It needs no constant rejection, so texture energy stays.

    No biases, activations that fix 0, norms that only scale (`BatchRMSNorm`), zero padding. The
    hidden channels are multiplied by ``2 sigmoid(W context + c)``, where the context is the low band
    on the block's own grid: a factor, so zero stays zero and skipping stays exact. Beyond the paper.
    Arguments are those of `InvertedBlock`.

    Shape: (batch, features, *space) and the context of the same shape -> (batch, features, *space).
    """

    preserves_zero = True
    takes_context = True

    def __init__(
        self, features: int, expansion: float = 4, depth: int = 2, ndim: int = 2, dropout: float = 0.0
    ) -> None:
        super().__init__()
        hidden = _check_shape(features, expansion, depth, ndim, dropout)
        convolution = CONVOLUTIONS[ndim]
        self.expand = nn.Sequential(convolution(features, hidden, 1, bias=False), BatchRMSNorm(hidden), nn.SiLU())
        self.context = convolution(features, hidden, 1)
        nn.init.zeros_(self.context.get_parameter("bias"))
        layers: list[nn.Module] = []
        for n in range(1, depth + 1):
            layers += [
                convolution(hidden, hidden, 3, padding=1, groups=hidden, bias=False),
                BatchRMSNorm(hidden),
                nn.SiLU(),
                *([_CHANNEL_DROPOUTS[ndim](dropout)] if dropout else []),
            ]
            if n < depth:
                layers += [convolution(hidden, hidden, 1, bias=False), BatchRMSNorm(hidden), nn.SiLU()]
        self.body = nn.Sequential(*layers, convolution(hidden, features, 1, bias=False))

    def forward(self, x: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self.expand(x) * (2 * torch.sigmoid(self.context(context)))
        answer: torch.Tensor = self.body(hidden)
        return answer


class DenseBlock(nn.Sequential):
    """The branch of a pre-activation residual block: norm, activation and dense 3x3 convolution, twice.

    For bases, and for levels in the difference form or the gated form, where `ResidualStack` adds the branch to the
    signal. The convolutions pad with zeros, which is the fastest padding on CPUs and GPUs. So the answer to a zero
    input is not constant over space, and the paper's form refuses this block.

    Args:
        features: channels in and out.
        expansion: hidden channels per feature.
        depth: the number of convolutions; all but the last give hidden channels.
        ndim: axes of space, 1 to 3.
        dropout: in training, the share of hidden channels that are zeroed before each convolution but the first.
        activation: makes one, such as `nn.SiLU`.

    Shape: (batch, features, *space), unchanged.

    >>> DenseBlock(8, expansion=0.5)(torch.rand(2, 8, 5, 7)).shape
    torch.Size([2, 8, 5, 7])
    """

    def __init__(
        self,
        features: int,
        expansion: float = 1,
        depth: int = 2,
        ndim: int = 2,
        dropout: float = 0.0,
        activation: Callable[[], nn.Module] = nn.ReLU,
    ) -> None:
        hidden = _check_shape(features, expansion, depth, ndim, dropout)
        widths = [features, *[hidden] * (depth - 1), features]
        layers: OrderedDict[str, nn.Module] = OrderedDict()
        for n in range(depth):
            layers[f"norm{n + 1}"] = BATCH_NORMS[ndim](widths[n])
            layers[f"act{n + 1}"] = activation()
            if dropout and n:
                layers[f"dropout{n + 1}"] = _CHANNEL_DROPOUTS[ndim](dropout)
            layers[f"conv{n + 1}"] = CONVOLUTIONS[ndim](widths[n], widths[n + 1], 3, padding=1, bias=False)
        super().__init__(layers)


class StridedBlock(nn.Module):
    """A pre-activation residual block that changes the number of channels, and may take every `stride`-th sample.

    Norm and activation, then two dense convolutions of 3 samples an axis with norm and activation between them; beside
    them a shortcut, a convolution whose kernel is as long as its stride. Zeros are padded.

    Args:
        in_features: channels in.
        out_features: channels out.
        stride: of the first convolution; each axis must be a multiple of it.
        ndim: axes of space, 1 to 3.
        activation: makes one, such as `nn.SiLU`.

    Shape: (batch, in_features, *space) -> (batch, out_features, *space / stride).

    >>> StridedBlock(4, 8, stride=2)(torch.rand(2, 4, 6, 10)).shape
    torch.Size([2, 8, 3, 5])
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        stride: int | Sequence[int] = 1,
        ndim: int = 2,
        activation: Callable[[], nn.Module] = nn.SiLU,
    ) -> None:
        super().__init__()
        convolution: Callable[..., nn.Module] = CONVOLUTIONS[ndim]
        norm = BATCH_NORMS[ndim]
        step = (stride,) * ndim if isinstance(stride, int) else tuple(stride)
        self.enter = nn.Sequential(norm(in_features), activation())
        self.body = nn.Sequential(
            convolution(in_features, out_features, 3, stride=step, padding=1, bias=False),
            norm(out_features),
            activation(),
            convolution(out_features, out_features, 3, padding=1, bias=False),
        )
        self.shortcut = convolution(in_features, out_features, step, stride=step, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.enter(x)
        answer: torch.Tensor = self.shortcut(h) + self.body(h)
        return answer


class Means(nn.Module):
    """The mean of each `stride` samples of every axis; of fewer at its end."""

    def __init__(self, stride: int, ndim: int) -> None:
        super().__init__()
        self.stride, self.ndim = stride, ndim

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        steps = [min(self.stride, n) for n in x.shape[2:]]  # a kernel may not be larger than the grid
        means: Callable[..., torch.Tensor] = _MEANS[self.ndim]
        return means(x, steps, ceil_mode=True, count_include_pad=False)

    def extra_repr(self) -> str:
        return str(self.stride)


class BasicBlock(nn.Module):
    """A residual block of two dense convolutions of 3 samples an axis (He et al., 2016), each with batch norm and ReLU.

    Every norm follows a convolution and can be folded into it. Zeros are padded.

    Args:
        in_features: channels in.
        out_features: channels out.
        stride: of the first convolution.
        ndim: axes of space, 1 to 3.

    Shape: (batch, in_features, *space) -> (batch, out_features, *space / stride, rounded up).

    >>> BasicBlock(4, 8, stride=2)(torch.rand(2, 4, 6, 9)).shape
    torch.Size([2, 8, 3, 5])
    """

    def __init__(self, in_features: int, out_features: int, stride: int = 1, ndim: int = 2) -> None:
        super().__init__()
        convolution: Callable[..., nn.Module] = CONVOLUTIONS[ndim]
        norm = BATCH_NORMS[ndim]
        self.body = nn.Sequential(
            convolution(in_features, out_features, 3, stride=stride, padding=1, bias=False),
            norm(out_features),
            nn.ReLU(),
            convolution(out_features, out_features, 3, padding=1, bias=False),
            norm(out_features),
        )
        # Means instead of every other sample: no sample is lost (He et al., 2019). And a strided convolution of
        # one sample, 8 channels to 16, corrupts memory in its backward pass on CPUs (torch 2.14, channels last).
        layers: list[nn.Module] = [Means(stride, ndim)] if stride > 1 else []
        if in_features != out_features:
            layers += [convolution(in_features, out_features, 1, bias=False), norm(out_features)]
        self.shortcut = nn.Sequential(*layers)
        self.activation = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = self.activation(self.body(x) + self.shortcut(x))
        return answer


class ResidualBase(nn.Module):
    """r + b(r) on the last grid: always run, without constant rejection.

    The residuals above contribute signals of zero mean, which average pooling would remove; the base
    is what turns them into features that survive the pooling. The block must not change its input in
    place, as an in-place activation at its beginning would.

    Shape: (batch, features, *space), unchanged.
    """

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(self, r: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = r + self.block(r)
        return answer


class ClassifierHead(nn.Module, ABC):
    """A head that knows how many features reach it and how many classes it tells apart (0: it returns features)."""

    features: int
    num_classes: int

    @abstractmethod
    def reset_classifier(self, num_classes: int) -> None:
        """A new last layer for `num_classes` classes; with 0 features come out."""


class Head(ClassifierHead):
    """Global average pooling, dropout and a linear layer (the paper's common head).

    Shape: (batch, features, *space) -> (batch, num_classes), or (batch, features) with num_classes=0.
    """

    def __init__(self, features: int, num_classes: int, dropout: float = 0.2) -> None:
        super().__init__()
        if not 0 <= dropout <= 1:
            raise ArrnError(f"the head's dropout must be in [0, 1], got {dropout}")
        self.features = features
        self.dropout = nn.Dropout(dropout)
        self.reset_classifier(num_classes)

    def reset_classifier(self, num_classes: int) -> None:
        """Gives the head a new linear layer for `num_classes` classes; with 0 the head returns the pooled features."""
        if num_classes < 0:
            raise ArrnError(f"num_classes must be 0 (features) or more, got {num_classes}")
        self.num_classes = num_classes
        self.classifier: nn.Module = nn.Linear(self.features, num_classes) if num_classes else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        # Channels go last by name where they are last in memory: the gradient is then laid out as x is.
        if is_channels_last(x):
            pooled = x.movedim(1, -1).mean(dim=tuple(range(1, x.ndim - 1)))
        else:
            pooled = x.mean(dim=tuple(range(2, x.ndim)))
        if self.num_classes == 0:
            return pooled
        logits: torch.Tensor = self.classifier(self.dropout(pooled))
        return logits
