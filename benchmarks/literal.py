"""The model as the paper writes it: an N x N likelihood and K networks over sparse matrices.

It computes what :class:`vepm.nn.VEPM` computes, with the parameters of that model, and exists to
be compared with it. It supports GCN layers, a bank of one layer, and node labels.
"""

from typing import cast

import torch
from torch import Tensor, nn
from torch.distributions import Gamma, Weibull, kl_divergence
from torch.nn import functional
from torch_geometric.data import Data

from vepm.bench.steps import RATE, Method, Step, build_model, trainer
from vepm.nn import VEPM, GCNConv, NodeComposer, draw
from vepm.nn.encoder import SCALE_OFFSET, SHAPE_OFFSET, SMALLEST_SCALE, SMALLEST_SHAPE
from vepm.training.config import TrainingConfig

PAIRS_AT_ONCE = 2**25
"""Pairs of nodes whose likelihood is computed together."""
MOST_NODES = {"pretrain": 20_000, "weights": 6_000, "joint": 6_000}
"""Nodes up to which each step is timed: the cost grows with their square."""


class LiteralVEPM:
    """A model computed with dense and sparse matrices.

    Args:
        model: The model whose parameters to use.
        edge_index: Edges [2, E] in both directions.
        num_nodes: Number of nodes.
    """

    def __init__(self, model: VEPM, edge_index: Tensor, num_nodes: int) -> None:
        self.model, self.edge_index, self.num_nodes = model, edge_index, num_nodes
        ones = torch.ones(edge_index.size(1), device=edge_index.device)
        self.adjacency = self.normalised(ones.to(model.activation.dtype))

    def normalised(self, weight: Tensor) -> Tensor:
        """Sparse :math:`D^{-1/2} (A + I) D^{-1/2}` for weights of the edges [E]."""
        source, target = self.edge_index
        nodes = torch.arange(self.num_nodes, device=source.device)
        degree = 1 + weight.new_zeros(self.num_nodes).index_add(0, target, weight)
        scale = degree.rsqrt()
        values = torch.cat([weight * scale[source] * scale[target], scale * scale])
        places = torch.cat([self.edge_index.flip(0), nodes.expand(2, -1)], dim=1)
        shape = (self.num_nodes, self.num_nodes)
        return torch.sparse_coo_tensor(places, values, shape, check_invariants=False)

    def encode(self, x: Tensor) -> Weibull:
        """Posterior of the affiliations."""
        encoder = self.model.encoder
        h = functional.normalize(x, dim=1)
        for layer, norm in zip(encoder.layers[:-1], encoder.norms, strict=True):
            h = torch.relu(norm(self._convolve(self.adjacency, h, layer)[:, None])).squeeze(1)
        h = self._convolve(self.adjacency, h, encoder.layers[-1])
        scale = functional.softplus(h[:, : encoder.num_learned] + SCALE_OFFSET) + SMALLEST_SCALE
        shape = functional.softplus(h[:, encoder.num_learned :] + SHAPE_OFFSET) + SMALLEST_SHAPE
        return Weibull(scale, shape.expand_as(scale), validate_args=False)

    @staticmethod
    def _convolve(matrix: Tensor, h: Tensor, layer: nn.Module, head: int = 0) -> Tensor:
        conv = cast(GCNConv, layer)
        return torch.sparse.mm(matrix, h @ conv.linear.weight[head]) + conv.bias[head]

    def split_edges(self, z: Tensor) -> Tensor:
        """Share of each edge in each metacommunity [E, K]."""
        source, target = self.edge_index
        partitioner = self.model.partitioner
        rates = self.model.activation * z[source] * z[target]
        rates = rates.view(len(rates), partitioner.num_metacommunities, -1).sum(-1)
        return torch.softmax(rates / partitioner.temperature, dim=1)

    def classify(self, x: Tensor, z: Tensor, shares: Tensor) -> Tensor:
        """Class scores: K networks one after the other, then the composer."""
        model = self.model
        bank, composer = model.bank, cast(NodeComposer, model.composer)
        inputs = torch.cat([functional.normalize(x, dim=1), z], dim=1)
        inputs = functional.dropout(inputs, bank.dropout, bank.training)
        states = [
            torch.relu(self._convolve(self.normalised(shares[:, k]), inputs, bank.layers[0], k))
            for k in range(shares.size(1))
        ]
        h = functional.dropout(torch.cat(states, dim=1), composer.dropout, composer.training)
        return self._convolve(self.adjacency, h, composer.layers[0])

    def pretraining_loss(self, x: Tensor, config: TrainingConfig) -> Tensor:
        """Edges and divergence, balanced."""
        posterior = self.encode(x)
        return self._unsupervised(posterior, draw(posterior, config.sampling), config)

    def bound_loss(self, x: Tensor, y: Tensor, rows: Tensor, config: TrainingConfig) -> Tensor:
        """The whole negative bound, balanced, with gradients to every parameter."""
        posterior = self.encode(x)
        z = draw(posterior, config.sampling)
        logits = self.classify(x, z, self.split_edges(z))
        return functional.cross_entropy(logits[rows], y[rows]) + self._unsupervised(
            posterior, z, config
        )

    def _unsupervised(self, posterior: Weibull, z: Tensor, config: TrainingConfig) -> Tensor:
        prior = Gamma(z.new_tensor(1.0), z.new_tensor(1.0))
        kl = kl_divergence(posterior, prior).mean()
        edges = pairwise_log_likelihood(z, self.model.activation, self.edge_index)
        return config.kl_weight * kl - config.edge_term_weight * edges


def pairwise_log_likelihood(z: Tensor, activation: Tensor, edge_index: Tensor) -> Tensor:
    """Balanced likelihood of all pairs of nodes, as a dense matrix in blocks of rows.

    The gradient of a block is taken before the next is made, so that memory holds one block.
    """
    nodes, pairs = z.size(0), z.size(0) * (z.size(0) - 1) / 2
    links = edge_index.size(1) / 2
    leaves = [z.detach().requires_grad_(), activation.detach().requires_grad_()]
    value, gradients = z.new_zeros(()), [torch.zeros_like(leaf) for leaf in leaves]
    for start in range(0, nodes, max(PAIRS_AT_ONCE // max(nodes, 1), 1)):
        stop = min(start + max(PAIRS_AT_ONCE // nodes, 1), nodes)
        with torch.enable_grad():
            on, off = _block(leaves[0], leaves[1], edge_index, start, stop)
            part = (on / max(links, 1) - off / max(pairs - links, 1)) / 2
        for total, gradient in zip(gradients, torch.autograd.grad(part, leaves), strict=True):
            total += gradient
        value = value + part.detach()
    for leaf, gradient in zip((z, activation), gradients, strict=True):
        value = value + ((leaf - leaf.detach()) * gradient).sum()
    return value


def _block(
    z: Tensor, activation: Tensor, edge_index: Tensor, start: int, stop: int
) -> tuple[Tensor, Tensor]:
    """Log-likelihood of the links and total rate of the non-links, rows start to stop."""
    rate = (z[start:stop] * activation) @ z.t()
    chosen = (edge_index[0] >= start) & (edge_index[0] < stop)
    linked = torch.zeros_like(rate, dtype=torch.bool)
    linked[edge_index[0, chosen] - start, edge_index[1, chosen]] = True
    upper = torch.ones_like(linked).triu(start + 1)
    on = torch.where(linked, torch.log(-torch.expm1(-rate)), 0)
    return (on * upper).sum(), torch.where(linked, 0, rate * upper).sum()


def build_literal(step: str, graph: Data, device: str) -> Step:
    """A training step of the literal construction."""
    model, moved = build_model(graph)
    loss, others = _loss(step, model.to(device), graph, device)
    return trainer(loss, torch.optim.Adam(moved[step], lr=RATE), others)


def _loss(step: str, model: VEPM, graph: Data, device: str) -> tuple[Step, list[Tensor]]:
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


def fits(step: str, nodes: int, edges: int) -> bool:
    """Whether the literal construction has a step and can do it in a usual machine's memory."""
    return nodes <= MOST_NODES.get(step, -1)


LITERAL = Method(build_literal, fits)
