"""A Fourier neural operator as a classifier: the adaptive-resolution rival that needs no resampling.

Li et al., "Fourier Neural Operator for Parametric Partial Differential Equations", ICLR 2021: each
layer mixes channels in the lowest Fourier modes of the signal and adds a pointwise map, so its
parameters do not depend on the grid.
"""

from __future__ import annotations

import torch
from torch import nn

from arrn.errors import ArrnError
from arrn.nn.config import note_option
from arrn.nn.head import Head
from arrn.signal.grid import Grid, Size, as_grid, check_signal, format_sizes

__all__ = ["FourierClassifier", "SpectralConv2d", "build_fourier_operator"]


class SpectralConv2d(nn.Module):
    """Multiplies the lowest `modes` Fourier coefficients along each axis by learned complex matrices.

    Periodic, cell-centred grid. A grid too small for some of the modes simply does not have them. Signals
    that both grids hold are treated alike at either resolution.

    Shape: (batch, in_features, height, width) -> (batch, out_features, height, width).
    """

    def __init__(self, in_features: int, out_features: int, modes: int) -> None:
        super().__init__()
        if modes < 1:
            raise ArrnError(f"a spectral convolution needs at least 1 mode, got {modes}")
        self.in_features, self.out_features, self.modes = in_features, out_features, modes
        # Rows hold the frequencies -(modes - 1) ... modes - 1, columns 0 ... modes - 1; the last axis is
        # the real and the imaginary part, since not every file format holds complex numbers.
        scale = (in_features * out_features) ** -0.5
        self.weight = nn.Parameter(scale * torch.randn(in_features, out_features, 2 * modes - 1, modes, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        height, width = x.shape[-2:]
        # Frequencies below half the grid: the Nyquist bin is ambiguous.
        rows, columns = min(self.modes, (height + 1) // 2), min(self.modes, (width + 1) // 2)
        wide = x if x.dtype == torch.float64 else x.float()  # there is no bf16 transform
        spectrum = torch.fft.rfft2(wide, norm="forward")
        kept = torch.cat([spectrum[..., height - rows + 1 :, :columns], spectrum[..., :rows, :columns]], dim=-2)
        middle = self.modes - 1
        weight = torch.view_as_complex(self.weight.to(wide.dtype))
        mixed = torch.einsum("bihw,iohw->bohw", kept, weight[:, :, middle - rows + 1 : middle + rows, :columns])
        whole = mixed.new_zeros(*mixed.shape[:2], height, width // 2 + 1)
        whole[..., height - rows + 1 :, :columns] = mixed[..., : rows - 1, :]
        whole[..., :rows, :columns] = mixed[..., rows - 1 :, :]
        answer: torch.Tensor = torch.fft.irfft2(whole, s=(height, width), norm="forward")
        return answer.to(x.dtype)

    def extra_repr(self) -> str:
        return f"{self.in_features} -> {self.out_features}, modes={self.modes}"


class FourierLayer(nn.Module):
    """Spectral plus pointwise convolution, batch norm, and a GELU, around a skip connection.

    Shape: (batch, features, height, width), unchanged.
    """

    def __init__(self, features: int, modes: int) -> None:
        super().__init__()
        self.spectral = SpectralConv2d(features, features, modes)
        self.pointwise = nn.Conv2d(features, features, 1, bias=False)
        self.norm = nn.BatchNorm2d(features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + nn.functional.gelu(self.norm(self.spectral(x) + self.pointwise(x)))


class FourierClassifier(nn.Module):
    """Lifts the channels, applies Fourier layers on the input's own grid, pools and classifies.

    Shape: (batch, in_channels, height, width), any size -> (batch, num_classes).
    """

    def __init__(
        self,
        size: Size,
        features: int,
        modes: int,
        depth: int,
        num_classes: int,
        in_channels: int,
        dropout: float = 0.2,
    ) -> None:
        super().__init__()
        self.grids: tuple[Grid, ...] = (as_grid(size, 2),)
        self.in_channels = in_channels
        self.lift = nn.Conv2d(in_channels, features, 1)
        self.layers = nn.Sequential(*(FourierLayer(features, modes) for _ in range(depth)))
        self.head = Head(features, num_classes, dropout)

    @property
    def sizes(self) -> tuple[Size, ...]:
        """The size of training; it runs at any."""
        return format_sizes(self.grids)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        check_signal(x, 2, self.in_channels)
        logits: torch.Tensor = self.head(self.layers(self.lift(x)))
        return logits

    def reset_classifier(self, num_classes: int) -> None:
        """A new classifier for `num_classes` classes; with 0 pooled features come out."""
        self.head.reset_classifier(num_classes)
        self.head.to(device=self.lift.weight.device, dtype=self.lift.weight.dtype)
        note_option(self, "num_classes", num_classes)


def build_fourier_operator(
    size: Size = 32,
    features: int = 64,
    modes: int = 8,
    depth: int = 4,
    num_classes: int = 10,
    in_channels: int = 3,
) -> FourierClassifier:
    """A Fourier neural operator classifier; `size` is the resolution it is trained at.

    Args:
        size: the resolution of training; it runs at any.
        features: channels of the hidden layers.
        modes: frequencies kept along each axis.
        depth: number of Fourier layers.
        num_classes: outputs; 0 returns features.
        in_channels: channels of the input.
    """
    return FourierClassifier(size, features, modes, depth, num_classes, in_channels)
