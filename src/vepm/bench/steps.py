"""One training step of VEPM, and of PyG's GCN and GAT of the same width and depth."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, GCNConv

from vepm.nn import VEPM
from vepm.scale.batches import single_graph
from vepm.scale.cuda_graphs import CUDAGraphs, worth_capturing
from vepm.scale.executor import capturable_adam, set_rate
from vepm.training.config import TrainingConfig
from vepm.training.losses import bound_loss, hold, predictor_loss, pretraining_loss

STEPS = {
    "pretrain": "edge term and KL divergence, one step of the encoder",
    "predict": "label loss, one step of the two predictor layers, communities fixed",
    "weights": "as predict, with gradients to the edge weights too",
    "joint": "the whole bound, one step of all four layers, gradients to edge weights",
}
WIDTH, PARTS, COMMUNITIES, DROPOUT, RATE = 64, 8, 64, 0.5, 0.01
PEERS = {"gcn": ("predict", "joint"), "gat": ("predict", "weights", "joint")}  # and their steps
MOST_EDGES = 5_000_000  # more, and four layers of messages fill the memory of a usual machine

Step = Callable[[], Tensor]
Builder = Callable[[str, Data, str], Step]  # builds a step, given its name, a graph and a device


class Method(NamedTuple):
    """A method to be timed."""

    build: Builder
    fits: Callable[[str, int, int], bool] = lambda step, nodes, edges: True
    """Whether it has a step, and can do it on a graph of so many nodes and edges."""


def trainer(loss: Step, optimizer: torch.optim.Optimizer, others: Sequence[Tensor] = ()) -> Step:
    """A call that trains for one step; gradients to the other tensors are computed as well."""
    moved = optimizer.param_groups[0]["params"]

    def step() -> Tensor:
        value = loss()
        gradients = torch.autograd.grad(value, [*moved, *others], allow_unused=True)
        for parameter, gradient in zip(moved, gradients, strict=False):
            parameter.grad = gradient
        optimizer.step()
        return value.detach()

    return step


def build_model(graph: Data, **options: Any) -> tuple[VEPM, dict[str, list[nn.Parameter]]]:
    """A model for a graph, and the parameters that each step trains."""
    torch.manual_seed(0)
    usual: dict[str, Any] = {"hidden_channels": WIDTH, "encoder_channels": WIDTH}
    usual |= {"num_communities": COMMUNITIES, "num_metacommunities": PARTS, "dropout": DROPOUT}
    model = VEPM(graph.num_features, int(graph.y.max()) + 1, **usual | options)
    phi, theta = model.encoder_parameters(), model.predictor_parameters()
    return model, {"pretrain": phi, "predict": theta, "weights": theta, "joint": [*phi, *theta]}


def ours(step: str, graph: Data, device: str, **options: Any) -> Step:
    """VEPM as it is trained: with CUDA graphs for a small graph on a GPU."""
    model, moved = build_model(graph, **options)
    loss, others = _our_loss(step, model.to(device), graph, device)
    optimizer = capturable_adam(moved[step])
    set_rate(optimizer, RATE)
    graphs = CUDAGraphs(on=worth_capturing(graph.edge_index, device))
    return functools.partial(graphs.run, step, trainer(loss, optimizer, others))


def _our_loss(step: str, model: VEPM, graph: Data, device: str) -> tuple[Step, list[Tensor]]:
    batch, config = single_graph(graph, device), TrainingConfig()
    rows = graph.train_mask.nonzero().flatten().to(device)
    if step == "pretrain":
        return lambda: pretraining_loss(model, batch, config).loss, []
    if step == "joint":
        return lambda: bound_loss(model, batch, rows, config).loss, []
    held = hold(model, batch, config)
    others = [held.edge_weight.requires_grad_()] if step == "weights" else []
    return lambda: predictor_loss(model, batch, rows, held, config).loss, others


def peer(kind: str, step: str, graph: Data, device: str) -> Step:
    """PyG's GCN or GAT, as wide and as deep as what the step trains of VEPM."""
    torch.manual_seed(0)
    layer = functools.partial(GCNConv, cached=True) if kind == "gcn" else _attention
    widths = [graph.num_features, *[WIDTH] * (3 if step == "joint" else 1), int(graph.y.max()) + 1]
    model = nn.ModuleList(map(layer, widths[:-1], widths[1:])).to(device)
    x, edge_index, y = (graph[name].to(device) for name in ("x", "edge_index", "y"))
    rows = graph.train_mask.nonzero().flatten().to(device)

    def loss() -> Tensor:
        h = functional.dropout(x.to_dense(), DROPOUT)
        for convolution in model[:-1]:
            h = functional.dropout(functional.elu(convolution(h, edge_index)), DROPOUT)
        return functional.cross_entropy(model[-1](h, edge_index)[rows], y[rows])

    return trainer(loss, torch.optim.Adam(model.parameters(), lr=RATE))


def _attention(in_channels: int, out_channels: int) -> nn.Module:
    heads = PARTS if out_channels == WIDTH else 1
    return GATConv(in_channels, out_channels // heads, heads)


def _peer_fits(kind: str, step: str, nodes: int, edges: int) -> bool:
    return step in PEERS[kind] and (step != "joint" or edges <= MOST_EDGES)


METHODS = {"ours": Method(ours)} | {
    kind: Method(functools.partial(peer, kind), functools.partial(_peer_fits, kind))
    for kind in PEERS
}
