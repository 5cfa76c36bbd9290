"""Laplacian residuals, Laplacian dropout and the networks built from them."""

from arrn.nn.arrn import ARRN, AdaptedARRN, EveryLevel
from arrn.nn.blocks import BatchRMSNorm, Head, InvertedBlock, ResidualBase, ResidualStack, ZeroPreservingBlock
from arrn.nn.constancy import check_zero_constant
from arrn.nn.dropout import BlocklessLevel, LaplacianDropout
from arrn.nn.inference import Frozen
from arrn.nn.introspection import count_parameters, multiply_adds
from arrn.nn.layers import Projection, ReplicateConv1d, ReplicateConv2d, ReplicateConv3d, Resampling
from arrn.nn.network import Network
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
    "Network",
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
