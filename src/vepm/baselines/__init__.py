"""What VEPM is compared with, rerun on the same splits behind the same call."""

from vepm.baselines.base import Baseline, GraphBaseline, NeuralBaseline, NodeBaseline
from vepm.baselines.disengcn import DisenConv, DisenGCN
from vepm.baselines.factorgcn import FactorConv, FactorGCN
from vepm.baselines.grand import GRAND
from vepm.baselines.graphs import GIN, GraphMLP, SizeOnly
from vepm.baselines.nodes import GAT, GCN, MLP, ChebNet, GraphSAGE, LabelProp
from vepm.baselines.registry import BASELINES, PUBLISHED, baseline
from vepm.baselines.wl import WLKernel, wl_features, wl_kernels

__all__ = [
    "BASELINES",
    "GAT",
    "GCN",
    "GIN",
    "GRAND",
    "MLP",
    "PUBLISHED",
    "Baseline",
    "ChebNet",
    "DisenConv",
    "DisenGCN",
    "FactorConv",
    "FactorGCN",
    "GraphBaseline",
    "GraphMLP",
    "GraphSAGE",
    "LabelProp",
    "NeuralBaseline",
    "NodeBaseline",
    "SizeOnly",
    "WLKernel",
    "baseline",
    "wl_features",
    "wl_kernels",
]
