"""Laplacian residuals, Laplacian dropout and the networks built from them."""

from arrn.nn.arrn import ARRN, AdaptedARRN, EveryLevel
from arrn.nn.backbone import Backbone, FeatureInfo
from arrn.nn.blocks import (
    BasicBlock,
    BatchRMSNorm,
    DenseBlock,
    Head,
    InvertedBlock,
    ResidualBase,
    ResidualStack,
    StridedBlock,
    ZeroPreservingBlock,
)
from arrn.nn.constancy import check_hand_down, check_zero_constant
from arrn.nn.difference import check_sample_wise
from arrn.nn.dropout import BlocklessLevel, LaplacianDropout, rates_for_shares
from arrn.nn.inference import Frozen, Shortcut
from arrn.nn.introspection import count_parameters, multiply_adds, multiply_adds_of_noise
from arrn.nn.junctions import Junction, VectorJunction
from arrn.nn.layers import Borrowed, Projection, ReplicateConv1d, ReplicateConv2d, ReplicateConv3d, Resampling
from arrn.nn.network import Network
from arrn.nn.residual import LaplacianResidual

__all__ = [
    "ARRN",
    "AdaptedARRN",
    "Backbone",
    "BasicBlock",
    "BatchRMSNorm",
    "BlocklessLevel",
    "Borrowed",
    "DenseBlock",
    "EveryLevel",
    "FeatureInfo",
    "Frozen",
    "Head",
    "InvertedBlock",
    "Junction",
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
    "Shortcut",
    "StridedBlock",
    "VectorJunction",
    "ZeroPreservingBlock",
    "check_hand_down",
    "check_sample_wise",
    "check_zero_constant",
    "count_parameters",
    "multiply_adds",
    "multiply_adds_of_noise",
    "rates_for_shares",
]
