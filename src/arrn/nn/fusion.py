"""Folding norms into the convolutions before them, for inference."""

from __future__ import annotations

import itertools
from typing import TypeVar

import torch
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from arrn.nn.normalization import BatchRMSNorm

__all__ = ["fold_batch_norms"]

Module = TypeVar("Module", bound=nn.Module)

_CONVOLUTION = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_BATCH_NORM = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def fold_batch_norms(module: Module) -> Module:
    """Folds, in place, each norm that directly follows a convolution in an `nn.Sequential`.

    The module must be in evaluation mode. What stands elsewhere is left as it is.
    """
    for sequence in list(module.modules()):
        if not isinstance(sequence, nn.Sequential):
            continue
        names = list(sequence._modules)
        for name, following in itertools.pairwise(names):
            convolution, norm = sequence._modules[name], sequence._modules[following]
            if not isinstance(convolution, _CONVOLUTION):
                continue
            if isinstance(norm, _BATCH_NORM) and norm.track_running_stats:
                sequence._modules[name] = fuse_conv_bn_eval(convolution, norm)
            elif isinstance(norm, BatchRMSNorm):
                with torch.no_grad():
                    factor = norm.scale(norm.running_mean_square)
                    convolution.weight.mul_(factor.view(-1, *[1] * (convolution.weight.ndim - 1)))
                    if convolution.bias is not None:
                        convolution.bias.mul_(factor)
            else:
                continue
            sequence._modules[following] = nn.Identity()
    return module
