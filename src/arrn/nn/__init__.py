"""Laplacian residuals, Laplacian dropout and the networks built from them."""

from arrn.nn.adapted import AdaptedARRN
from arrn.nn.arrn import ARRN
from arrn.nn.awakening import awaken_norms
from arrn.nn.blockless import BlocklessLevel
from arrn.nn.blocks import InvertedBlock, ResidualStack, ZeroPreservingBlock
from arrn.nn.constancy import check_zero_constant
from arrn.nn.convolution import ReplicateConv1d, ReplicateConv2d, ReplicateConv3d
from arrn.nn.cost import count_parameters, multiply_adds
from arrn.nn.discrepancy import adaptation_discrepancy
from arrn.nn.dropout import LaplacianDropout
from arrn.nn.every_level import EveryLevel
from arrn.nn.frozen import Frozen
from arrn.nn.head import Head, ResidualBase
from arrn.nn.normalization import BatchRMSNorm
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
    "adaptation_discrepancy",
    "awaken_norms",
    "check_zero_constant",
    "count_parameters",
    "multiply_adds",
]
