"""One training step of each method on one graph, ready to be called again and again."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.data import Data
from torch_geometric.nn import GATConv

from vepm.bench.literal import LiteralVEPM
from vepm.nn import VEPM, draw
from vepm.training.batches import single_graph
from vepm.training.config import ModelConfig, TrainingConfig
from vepm.training.losses import bound_loss, hold, predictor_loss, pretraining_loss
from vepm.training.ordering import good_order, in_order, worth_ordering
from vepm.training.recording import Recorder, recordable_adam, worth_recording
from vepm.training.schedule import set_rate

STEPS = {
    "pretrain": "edges and divergence, one step of the encoder",
    "predict": "labels, one step of the two predictor layers, communities held",
    "weights": "as predict, with gradients to the edge weights too",
    "joint": "the whole bound, one step of all four layers, gradients to edge weights",
}
METHODS = {
    "pretrain": ("ours", "literal"),
    "predict": ("ours", "gat"),
    "weights": ("ours", "literal", "gat"),
    "joint": ("ours", "literal", "gat"),
}
RATE = 0.01
GAT_LAYERS = {"predict": 2, "weights": 2, "joint": 4}

Loss = Callable[[], Tensor]
Objective = tuple[Loss, list[Tensor]]
"""A loss, and what it is differentiated by beside the parameters that move."""


@dataclass(frozen=True)
class Sizes:
    """Widths that all methods share."""

    hidden_channels: int = 64
    num_metacommunities: int = 8
    num_communities: int = 64
    dropout: float = 0.5


class GAT(nn.Module):
    """PyG's graph attention network of a given width, depth and number of heads."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        width: int,
        heads: int,
        layers: int,
        dropout: float,
    ) -> None:
        super().__init__()
        self.dropout = dropout
        hidden = (
            GATConv(in_channels if i == 0 else width, width // heads, heads)
            for i in range(layers - 1)
        )
        self.layers = nn.ModuleList([*hidden, GATConv(width, out_channels, heads=1)])

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Class scores [N, classes]."""
        for i, layer in enumerate(self.layers):
            x = functional.elu(x) if i else x
            x = layer(functional.dropout(x, self.dropout, self.training), edge_index)
        return x


def build_model(graph: Data, sizes: Sizes) -> VEPM:
    """A model of the benchmark's size for a graph."""
    torch.manual_seed(0)
    return VEPM(
        graph.num_features,
        int(graph.y.max()) + 1,
        num_communities=sizes.num_communities,
        num_metacommunities=sizes.num_metacommunities,
        hidden_channels=sizes.hidden_channels,
        encoder_channels=sizes.hidden_channels,
        dropout=sizes.dropout,
    )


def build_step(
    method: str, step: str, graph: Data, sizes: Sizes, device: str = "cpu"
) -> Callable[[], Tensor]:
    """A call that trains for one step and returns the loss.

    Ours does first what training does first: on a CPU it puts the nodes of a large graph in order,
    on a GPU its steps are replayed. The others run as they do for users of PyTorch and PyG.

    Args:
        method: ``"ours"``, ``"literal"`` or ``"gat"``.
        step: ``"pretrain"``, ``"predict"``, ``"weights"`` or ``"joint"``.
        graph: Nodes with ``x``, ``y`` and ``train_mask``, and edges in both directions.
        sizes: Widths.
        device: Where to run.
    """
    if method == "ours" and worth_ordering(graph, ModelConfig(), device):
        graph = in_order(graph, good_order(graph))
    if method == "gat":
        return _gat_step(GAT_LAYERS[step], graph, sizes, device)
    model = build_model(graph, sizes).to(device)
    objective = (_ours if method == "ours" else _literal)(step, model, graph, device)
    phi, theta = model.encoder_parameters(), model.predictor_parameters()
    moved = {"pretrain": phi, "joint": [*phi, *theta]}.get(step, theta)
    if method == "literal":
        return _trainer(objective, torch.optim.Adam(moved, lr=RATE))
    optimizer = recordable_adam(moved)
    set_rate(optimizer, RATE)
    recorder = Recorder(on=worth_recording(graph.edge_index, device))
    plain = _trainer(objective, optimizer)
    return lambda: recorder.run(step, lambda: {"loss": plain()})["loss"]


def _trainer(objective: Objective, optimizer: torch.optim.Adam) -> Callable[[], Tensor]:
    parameters = optimizer.param_groups[0]["params"]
    loss, others = objective

    def step() -> Tensor:
        value = loss()
        gradients = torch.autograd.grad(value, [*parameters, *others], allow_unused=True)
        for parameter, gradient in zip(parameters, gradients, strict=False):
            parameter.grad = gradient
        optimizer.step()
        return value.detach()

    return step


def _ours(step: str, model: VEPM, graph: Data, device: str) -> Objective:
    batch, config = single_graph(graph, device), TrainingConfig()
    rows = graph.train_mask.nonzero().flatten().to(device)
    if step == "pretrain":
        return lambda: pretraining_loss(model, batch, config).loss, []
    if step == "joint":
        return lambda: bound_loss(model, batch, rows, config).loss, []
    held = hold(model, batch, config)
    weights = [held.edge_weight.requires_grad_()] if step == "weights" else []
    return lambda: predictor_loss(model, batch, rows, held, config).loss, weights


def _literal(step: str, model: VEPM, graph: Data, device: str) -> Objective:
    literal = LiteralVEPM(model, graph.edge_index.to(device), graph.num_nodes or 0)
    x, y, config = graph.x.to(device), graph.y.to(device), TrainingConfig()
    rows = graph.train_mask.nonzero().flatten().to(device)
    if step == "pretrain":
        return lambda: literal.pretraining_loss(x, config), []
    if step == "joint":
        return lambda: literal.bound_loss(x, y, rows, config), []
    with torch.no_grad():
        z = draw(literal.encode(x), config.sampling)
        shares = literal.split_edges(z)
    shares.requires_grad_()
    return lambda: functional.cross_entropy(literal.classify(x, z, shares)[rows], y[rows]), [shares]


def _gat_step(layers: int, graph: Data, sizes: Sizes, device: str) -> Callable[[], Tensor]:
    torch.manual_seed(0)
    width, heads = sizes.hidden_channels, sizes.num_metacommunities
    classes = int(graph.y.max()) + 1
    model = GAT(graph.num_features, classes, width, heads, layers, sizes.dropout).to(device)
    x, edge_index, y = graph.x.to(device), graph.edge_index.to(device), graph.y.to(device)
    rows = graph.train_mask.nonzero().flatten().to(device)
    objective: Objective = (
        lambda: functional.cross_entropy(model(x, edge_index)[rows], y[rows]),
        [],
    )
    return _trainer(objective, torch.optim.Adam(model.parameters(), lr=RATE))
