"""Writes the tables of `docs/transplanting.md`: which architectures transplant, and why others do not.

Run it as `python tools/survey_transplants.py`, with `torchvision` or `timm` behind it for one table alone. The tests
compare what it finds with what the page says.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

import arrn
from arrn.signal.grid import format_grid
from arrn.testing import adaptation_discrepancy, awaken_norms

PAGE = Path(__file__).parents[1] / "docs" / "transplanting.md"
TOLERANCES = {torch.float64: 1e-6, torch.float32: 1e-3}
"""How far adapted and full evaluation may be apart; most stay below 1e-11 and 1e-5."""

_NOISE = {torch.float64: 1e-14, torch.float32: 1e-6}
_OWN = 30  # times what such noise on the input changes: some networks with random norms amplify any noise

TORCHVISION = {
    "alexnet": 64, "vgg11_bn": 64, "resnet18": 64, "resnext50_32x4d": 64, "densenet121": 64, "squeezenet1_1": 64,
    "googlenet": 64, "inception_v3": 128, "shufflenet_v2_x0_5": 64, "mobilenet_v2": 64, "mobilenet_v3_small": 64,
    "mnasnet0_5": 64, "regnet_y_400mf": 64, "efficientnet_b0": 64, "efficientnet_v2_s": 64, "convnext_tiny": 64,
    "maxvit_t": 224, "swin_t": 64, "vit_b_16": 224,
}  # fmt: skip
TIMM = {
    # Convolutions alone, or with attention over channels.
    "resnet10t": 64, "resnetv2_18": 64, "resnetv2_50": 64, "resnetv2_50x1_bit": 64, "seresnext26d_32x4d": 64,
    "legacy_seresnet18": 64, "skresnet18": 64, "resnest14d": 64, "res2net50_26w_4s": 64, "nf_resnet26": 64,
    "nf_regnet_b0": 64, "dm_nfnet_f0": 64, "regnety_002": 64, "tresnet_m": 64, "selecsls42": 64, "dpn48b": 64,
    "rdnet_tiny": 64, "ese_vovnet19b_slim_dw": 64, "dla34": 64, "hrnet_w18_small": 64, "cspdarknet53": 64,
    "cs3darknet_focus_s": 64, "cspnext_tiny": 64, "hgnetv2_b0": 64, "repvgg_a0": 64, "mobileone_s1": 64,
    "xception41": 128, "legacy_xception": 128, "inception_v4": 128, "inception_resnet_v2": 128,
    "efficientnet_b0": 64, "mobilenetv3_small_100": 64, "mobilenetv4_conv_small": 64, "hardcorenas_b": 64,
    "lcnetv2_small": 64, "ghostnet_050": 64, "repghostnet_050": 64, "rexnet_100": 64, "starnet_s050": 64,
    "fasternet_t0": 64, "convnext_atto": 64, "convnextv2_atto": 64, "inception_next_atto": 64, "mambaout_femto": 64,
    "focalnet_tiny_srf": 64, "poolformer_s12": 64, "poolformerv2_s12": 64, "convmixer_768_32": 64,
    # Convolutions and attention over space.
    "repvit_m0_9": 64, "fastvit_t8": 64, "mobilevit_xxs": 64, "mobilevitv2_050": 64, "edgenext_xx_small": 64,
    "iformer_t": 64, "shvit_s1": 64, "efficientvit_b0": 64, "efficientvit_m0": 224, "efficientvim_m1": 64,
    "efficientformer_l1": 224, "efficientformerv2_s0": 224, "swiftformer_xs": 224, "csatv2": 256, "cpubone_nano": 64,
    "lowformer_b0": 64, "nextvit_small": 64, "levit_128s": 224, "coatnet_nano_rw_224": 224, "botnet26t_256": 256,
    "visformer_tiny": 224, "tiny_vit_5m_224": 224, "pvt_v2_b0": 64, "davit_tiny": 64,
    "coat_tiny": 224, "gcvit_xxtiny": 224, "nest_tiny": 224, "pit_ti_224": 224, "twins_svt_small": 224,
    "mvitv2_tiny": 224, "xcit_nano_12_p16_224": 224,
    "swin_tiny_patch4_window7_224": 224, "vit_tiny_patch16_224": 224, "crossvit_tiny_240": 240, "mixer_s32_224": 224,
}  # fmt: skip


def torchvision_model(name: str) -> nn.Module:
    """A network of torchvision, randomly initialised."""
    from torchvision.models import get_model

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the default initialisation of some will change
        network: nn.Module = get_model(name, weights=None)
    return network


def timm_model(name: str) -> nn.Module:
    """A network of timm, randomly initialised."""
    import timm

    network: nn.Module = timm.create_model(name)
    return network


def row(make: Callable[[str], nn.Module], name: str, size: int, verify: bool) -> str:
    """One row: the form that is chosen, or that takes it where it is asked for; the ladder, or what stands in the way.

    Args:
        make: builds the network.
        name: its name.
        size: the top of the ladder.
        verify: also check, on numbers, constancy, the exact law, the weights and the skipping.
    """
    torch.manual_seed(0)
    source = make(name) if verify else _without_numbers(make, name)
    asked = ""
    try:
        try:
            model = arrn.transplant(source, size)
        except arrn.ArrnError as error:
            if not str(error).endswith("form='difference' takes it"):
                raise
            asked = ", if asked"
            model = arrn.transplant(source, size, form="difference")
        fault = verify_transplant(model, source) if verify else None
    except arrn.ArrnError as error:
        return f"| `{name}` | {size} | none | {_shorten(str(error))} |"
    if len(model.sizes) < 3 or fault:
        return f"| `{name}` | {size} | none | {fault or 'fewer than three levels'} |"
    return f"| `{name}` | {size} | {model.form}{asked} | {' -> '.join(map(format_grid, model.grids))} |"


def _without_numbers(make: Callable[[str], nn.Module], name: str) -> nn.Module:
    try:
        with torch.device("meta"):
            return make(name)
    except NotImplementedError:  # its constructor computes with tensors
        return make(name).to("meta")


def verify_transplant(model: arrn.nn.ARRN, source: nn.Module) -> str | None:
    """What is wrong with a transplant, in words; None where nothing is."""
    weights = source.state_dict()
    for key, value in model.state_dict().items():
        name = re.sub(r"^(residuals\.\d+\.block|base|head\.layers)\.", "", key)
        added = name.endswith("entering_offset.value") or name.rpartition(".")[2].startswith("_tensor_constant")
        if name != key and not added and not torch.equal(weights[name], value):
            return f"{name} is not the source's"
    model = model.double()
    awaken_norms(model, torch.randn(4, model.in_channels, *model.grids[0], dtype=torch.float64), steps=4)
    for dtype, tolerance in TOLERANCES.items():
        model = model.to(dtype)
        for grid in (model.grids[-1], tuple(n - 1 for n in model.grids[1])):
            x = torch.randn(2, model.in_channels, *grid, dtype=dtype)
            apart = adaptation_discrepancy(model, x)
            if not apart <= max(tolerance, _OWN * _sensitivity(model, x)):
                kind = str(dtype).removeprefix("torch.")
                return f"adapted and full evaluation differ by more than {tolerance:.0e} in {kind}"
    model, ran = model.double(), []
    for n, residual in enumerate(model.levels):
        residual.block.register_forward_hook(lambda *_, n=n: ran.append(n))
    with torch.no_grad():
        model(torch.randn(1, model.in_channels, *model.grids[-1], dtype=torch.float64))
    return "upper levels ran" if ran else None


@torch.no_grad()
def _sensitivity(model: arrn.nn.ARRN, x: torch.Tensor) -> float:
    """How much noise as small as rounding, on the input, changes the answer of the levels that run."""
    answer = model(x)
    return float((model(x * (1 + _NOISE[x.dtype] * torch.randn_like(x))) - answer).norm() / answer.norm())


def _shorten(message: str) -> str:
    message = message.partition(": the block's answer")[0]
    message = re.sub(r"there are too few .*?\(two are the least\): ", "too few cuts: ", message)
    return re.sub(r"(at )?\S*site-packages/(\S+?):\d+", r"in \2", message).replace("|", "\\|")


def table(make: Callable[[str], nn.Module], sizes: dict[str, int], verify: bool = True) -> str:
    """A table of Markdown, one row for each name."""
    head = "| network | size | form | ladder, or why not |\n|---|---|---|---|\n"
    return head + "\n".join(row(make, name, size, verify) for name, size in sizes.items())


def find_table(part: str) -> re.Match[str]:
    """The table that the page holds between its markers; the second group."""
    text = PAGE.read_text(encoding="utf-8")
    found = re.search(rf"(<!-- {part} -->\n)(.*?)(\n<!-- end -->)", text, flags=re.DOTALL)
    assert found, f"{PAGE} has no table {part!r}"
    return found


def main() -> None:
    """Writes the tables into the page, or those that the command line names."""
    parts = {"torchvision": (torchvision_model, TORCHVISION), "timm": (timm_model, TIMM)}
    for part in sys.argv[1:] or parts:
        make, sizes = parts[part]
        old = find_table(part)
        text = old.string[: old.start(2)] + table(make, sizes) + old.string[old.end(2) :]
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
