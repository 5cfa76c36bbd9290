"""What cannot be transplanted, and how clearly that is said."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import arrn
from sources import Positioned, Resized, Skipping, Unit, layer, plain


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList([layer(3, 4), layer(4, 4, 2), layer(4, 4, 2)])
        self.up = nn.Upsample(scale_factor=2)
        self.merge = nn.ModuleList([layer(8, 4), layer(8, 4)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = self.down[0](x)
        b = self.down[1](a)
        c = self.down[2](b)
        b = self.merge[0](torch.cat([b, self.up(c)], 1))
        return self.merge[1](torch.cat([a, self.up(b)], 1))


class Branching(Positioned):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.mean() > 0:
            x = -x
        return super().forward(x)


class TwoAnswers(Skipping):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = super().forward(x)
        return y, y + 1


class Pooling(nn.Module):
    """As PyTorch's tutorials have it: pooling and dropout by functions, after each or after the last convolution."""

    def __init__(self, each: bool) -> None:
        super().__init__()
        self.convs = nn.ModuleList([nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)])
        self.fc = nn.Linear(4, 5)
        self.each = each

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.convs[0](x))
        x = F.relu(self.convs[1](F.max_pool2d(x, 2) if self.each else x))
        x = F.dropout(F.max_pool2d(x, 2), 0.25, training=self.training)
        return F.log_softmax(self.fc(x.mean((2, 3))), dim=1)


class Making(Pooling):
    """Makes a tensor of the batch's size, by a function of torch."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + torch.zeros(x.shape[0], 5)


class OwnSize(Pooling):
    """Checks the size of its input, as vision transformers do."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch._assert(x.shape[2] == 224, f"expected 224, got {x.shape[2]}!")
        return super().forward(x)


class Failing(Pooling):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.view(int(x.shape[0]), -1))


class OddAndEven(Pooling):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x + 1 if self.training else x) if x.shape[2] % 2 else super().forward(x)


def scripted() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that scripting is on its way out
        return torch.jit.script(plain())


def mixer() -> nn.Module:
    encoder = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return nn.Sequential(nn.Conv2d(3, 8, 4, stride=4), nn.Flatten(2), nn.Linear(64, 8), encoder, nn.Flatten())


def one_stride() -> nn.Module:
    return nn.Sequential(layer(3, 4), layer(4, 4, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten())


def wide_kernel() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 9, 2), plain())


def flattening() -> nn.Module:
    return nn.Sequential(*plain()[:6], nn.Flatten(), nn.Linear(16 * 4 * 4, 5))


def decoder() -> nn.Module:
    return nn.Sequential(plain()[:5], nn.Upsample(scale_factor=2))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: arrn.transplant(UNet(), 32),
            "layer 'down.1.0' lowers the resolution while skip connections keep alive layer 'down.0.2'",
        ),
        (lambda: arrn.transplant(decoder(), 32), "layer '1' raises the resolution, from 4 to 8"),
        (lambda: arrn.transplant(Positioned(), 32), "add() in its forward works at 32 but not at 1056"),
        (lambda: arrn.transplant(Resized(), 32), "depends on the position, because of interpolate() in its forward"),
        (
            lambda: arrn.transplant(nn.Sequential(nn.Conv2d(3, 3, 3, padding=1, bias=False), Unit(), *plain()), 32),
            "from 32 to 16 returns NaN or infinity for an all-zero input, because of truediv() in '1'",
        ),
        (lambda: arrn.transplant(Branching(), 32), "`if x.mean() > 0:`"),
        (lambda: arrn.transplant(TwoAnswers(), 32), "must return one tensor, but it returns a tuple"),
        (lambda: arrn.transplant(mixer(), 32), "layer '2' works at 32 but not at 1056"),
        (lambda: arrn.transplant(one_stride(), 32), "(two are the least): on the way to layer '1.0'"),
        (lambda: arrn.transplant(nn.Sequential(layer(3, 4), layer(4, 4)), 32), "(two are the least): none"),
        (lambda: arrn.transplant(nn.Conv2d(3, 4, 3), 32), "(two are the least): none"),
        (lambda: arrn.transplant(Pooling(each=False), 32), "(two are the least): on the way to max_pool2d() in its"),
        (
            lambda: arrn.transplant(nn.Sequential(Pooling(each=False)), 32),
            "on the way to max_pool2d() in '0'; its last",
        ),
        (
            lambda: arrn.transplant(nn.DataParallel(Pooling(each=True)), 32),
            "no layer with weights works on the signal from max_pool2d() in its forward on",
        ),
        (lambda: arrn.transplant(OddAndEven(each=True), 32), "the forward of this OddAndEven cannot be traced"),
        (
            lambda: arrn.transplant(nn.Sequential(nn.Dropout(), OddAndEven(each=True)), 32),
            "module '1' stays whole, since it cannot be traced: symbolically traced variables cannot be used",
        ),
        (
            lambda: arrn.transplant(Making(each=True), 32),
            "torch.fx cannot record torch.zeros() with a size that is read off the input at",
        ),
        (lambda: arrn.transplant(Making(each=True), 32), "; use x.new_zeros(...), which it records, or put this line"),
        (
            lambda: arrn.transplant(OwnSize(each=True), 32),
            "the network fails at this size, in _assert() in its forward: expected 224, got 32!",
        ),
        (lambda: arrn.transplant(Failing(each=True), 32), "; put what cannot be traced into a module of its own"),
        (lambda: arrn.transplant(Branching(), 32), "; put what branches on its input into a module of its own"),
        (lambda: arrn.transplant(nn.Sequential(nn.Flatten(), nn.Linear(12, 3)), 32), "this Sequential has none"),
        (lambda: arrn.transplant(scripted(), 32), "but this RecursiveScriptModule has none"),
        (lambda: arrn.transplant(nn.LSTM(3, 4), 32), "only convolutional networks can be transplanted, but this LSTM"),
        (lambda: arrn.transplant("resnet18", 32), "expected a network (an nn.Module) to transplant, got a str"),
        (lambda: arrn.transplant(arrn.create_model("arrn"), 32), "an ARRN already"),
        (lambda: arrn.transplant(nn.DataParallel(arrn.create_model("arrn")), 32), "an ARRN already"),
        (lambda: arrn.transplant(plain(), 4), "size 4 is too small for this architecture, whose grids would be 4 -> 2"),
        (lambda: arrn.transplant(plain(), 4), "the base must hold more than a constant; 8 would do"),
        (lambda: arrn.transplant(wide_kernel(), 6), "in layer '0' on an input of shape (2, 3, 6, 6)"),
        (lambda: arrn.transplant(plain(), 0), "at least 1, got 0"),
        (lambda: arrn.transplant(plain(), (32, 32, 32)), "3 axes"),
        (lambda: arrn.transplant(plain(), 32, num_classes=-1), "num_classes must be a whole number of at least 0"),
        (lambda: arrn.transplant(plain(), 32, in_channels=0), "in_channels must be a whole number of at least 1"),
        (lambda: arrn.transplant(plain(), 32, skip_first=2), "skip_first must be a whole number from 0 to 1"),
        (lambda: arrn.transplant(plain(), 32, skip_first=-1), "got -1"),
        (
            lambda: arrn.transplant(flattening(), 32, skip_first=1),
            "the network's head does not take a base of 8, which is what skip_first leaves",
        ),
        (lambda: arrn.transplant(plain(), 32, kernel="perfet"), "did you mean 'perfect'?"),
        (lambda: arrn.transplant(plain(), 32, dropout=(0.1, 0.2, 0.3)), "there are 2 levels"),
        (lambda: arrn.transplant(plain(), 32, policy="exakt"), "did you mean 'exact'?"),
        (lambda: arrn.transplant(plain()[:-1], 32, num_classes=3), "without a linear layer has no classifier"),
        (lambda: arrn.save(arrn.transplant(plain(), 32), "never"), "how to rebuild this Transplant is not known"),
    ],
)
def test_refusals(call, message: str) -> None:
    with pytest.raises(arrn.ArrnError) as caught:
        call()
    assert message in str(caught.value)


def test_a_head_for_one_grid_stays_on_it() -> None:
    assert arrn.transplant(flattening(), 32).eval()(torch.rand(2, 3, 9, 9)).shape == (2, 5)


def test_the_check_can_be_overridden() -> None:
    model = arrn.transplant(Resized(), 32, check=False)
    assert model.sizes == (32, 16, 8, 4)
