"""Laplacian residuals, Laplacian dropout and the networks built from them."""

from arrn.nn.adapted import AdaptedARRN, Frozen
from arrn.nn.arrn import ARRN, EveryLevel
from arrn.nn.blocks import BatchRMSNorm, InvertedBlock, ResidualStack, ZeroPreservingBlock
from arrn.nn.chain import BlocklessLevel
from arrn.nn.constancy import check_zero_constant
from arrn.nn.convolution import ReplicateConv1d, ReplicateConv2d, ReplicateConv3d
from arrn.nn.dropout import LaplacianDropout
from arrn.nn.head import Head, ResidualBase
from arrn.nn.introspection import count_parameters, multiply_adds
from arrn.nn.projection import Projection
from arrn.nn.resampling import Resampling
from arrn.nn.residual import LaplacianResidual

__all__ = [
    "ARRN",
    "AdaptedARRN",
    "BatchRMSNorm",
    "BlocklessLevel",
    "EveryLevel",
    "Frozen",
    "Head",
    "InvertedBlock",
    "LaplacianDropout",
    "LaplacianResidual",
    "Projection",
    "ReplicateConv1d",
    "ReplicateConv2d",
    "ReplicateConv3d",
    "Resampling",
    "ResidualBase",
    "ResidualStack",
    "ZeroPreservingBlock",
    "check_zero_constant",
    "count_parameters",
    "multiply_adds",
]
