"""The model, one module per box of the paper's drawing."""

from vepm.kernels.aggregation import Adjacency, aggregate, edge_dot
from vepm.kernels.features import SparseFeatures, compact
from vepm.nn.bank import CommunityBank
from vepm.nn.composer import GraphComposer, NodeComposer
from vepm.nn.convolution import GCNConv, GINConv
from vepm.nn.encoder import CommunityEncoder, draw
from vepm.nn.model import VEPM, Prediction, VEPMOutput
from vepm.nn.partitioner import (
    EdgePartitioner,
    exclusive_groups,
    interactions,
    members,
    segment_sizes,
)

__all__ = [
    "VEPM",
    "Adjacency",
    "CommunityBank",
    "CommunityEncoder",
    "EdgePartitioner",
    "GCNConv",
    "GINConv",
    "GraphComposer",
    "NodeComposer",
    "Prediction",
    "SparseFeatures",
    "VEPMOutput",
    "aggregate",
    "compact",
    "draw",
    "edge_dot",
    "exclusive_groups",
    "interactions",
    "members",
    "segment_sizes",
]
