"""The evidence lower bound, term by term, and what terms are divided by."""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.utils import coalesce, remove_self_loops, subgraph

from vepm.kernels.aggregation import Adjacency, EdgeIndex, aggregate
from vepm.kernels.patterns import apply
from vepm.kernels.shares import SMALLEST_SHARE, couple, link_shares, pair_rates

__all__ = [
    "Counts",
    "Terms",
    "edge_log_likelihood",
    "label_log_likelihood",
    "partial_edge_log_likelihood",
    "shrinking_penalty",
    "subsampled_edge_log_likelihood",
]


class Terms(NamedTuple):
    """A loss and the terms it is made of; all but ``kl`` and ``disagreement`` are maximised."""

    loss: Tensor
    task: Tensor | None = None
    """Log-likelihood of the labels."""
    edges: Tensor | None = None
    """Log-likelihood of the edges."""
    kl: Tensor | None = None
    """KL divergence of the posterior from the prior."""
    disagreement: Tensor | None = None
    """Squared distance of the noisy passes from their sharpened mean."""
    correct: Tensor | None = None
    """Number of labels predicted correctly."""

    def detached(self) -> "Terms":
        """The same values without their graph."""
        return Terms._make(term if term is None else term.detach() for term in self)


class Counts(NamedTuple):
    """What sums over a batch are divided by.

    Where a batch is one of several shares of a step, these are the counts of the whole step, so
    that the terms of the shares add up to those of the step.
    """

    nodes: float | Tensor
    labels: float | Tensor
    graphs: float | Tensor = 1.0


def label_log_likelihood(logits: Tensor, y: Tensor) -> Tensor:
    """Log-likelihood of each label [n] under class scores [n, classes]."""
    return -torch.nn.functional.cross_entropy(logits, y, reduction="none")


def shrinking_penalty(mean: Tensor, activation: Tensor) -> Tensor:
    r"""What a truncated gamma process has against communities that links can do without.

    .. math:: \sum_c \log(1 + \pi_c / \varepsilon)

    The process gives each of C communities an activation from Gamma(:math:`\gamma_0 / C`, c). As C
    grows, its log-density becomes minus the logarithm of the activation: an empty community is
    always better than a weak one. Activations are measured as shares :math:`\pi_c` of the expected
    links, which do not depend on the scale of the affiliations, and shares far below
    :math:`\varepsilon` count as zero.

    Args:
        mean: Posterior means of the affiliations [N, C].
        activation: Community activations [C], or interactions between them [C, C].
    """
    return torch.log1p(link_shares(mean, activation) / SMALLEST_SHARE).sum()


def edge_log_likelihood(
    z: Tensor,
    activation: Tensor,
    edge_index: EdgeIndex,
    batch: Tensor | None = None,
    *,
    balanced: bool = False,
    mean: Tensor | None = None,
    num_graphs: int | None = None,
    edge_weight: Tensor | None = None,
    directed: bool = False,
) -> Tensor:
    r"""Exact Bernoulli-Poisson log-likelihood of the edges of each graph [G], in O(N C + E C).

    .. math:: \sum_{i<j} A_{ij} \log(1 - e^{-r_{ij}}) - (1 - A_{ij}) r_{ij}, \quad
              r_{ij} = \sum_c \gamma_c z_{ic} z_{jc}

    With interactions it is :math:`r_{ij} = z_i^\top \Lambda z_j`. Weights of edges are counts of a
    Poisson distribution, :math:`\sum_{i<j} w_{ij} \log r_{ij} - r_{ij} - \log \Gamma(w_{ij} + 1)`;
    if they are not whole, that is its quasi-likelihood. Directed links sum over ordered pairs.
    Non-edges enter linearly: their sum follows from that of z, less the same over the edges.

    Args:
        z: Affiliations [N, C].
        activation: Activations [C], or interactions [C, C], symmetric unless directed.
        edge_index: Edges [2, E], in both directions unless directed; loops and repeats are
            ignored. An ``Adjacency`` is trusted to have none.
        batch: Graph of each node [N]; one graph if not given.
        balanced: Average over edges and over non-edges, then halve, instead of summing.
        mean: Posterior means [N, C], which give the expected non-edge part; z if not given.
        num_graphs: Number of graphs, counted if not given.
        edge_weight: Positive weight of each edge [E]; an ``Adjacency`` has its own.
        directed: Whether links run from ``edge_index[0]`` to ``edge_index[1]`` alone.

    Example:
        >>> z, edges = torch.ones(3, 1), torch.tensor([[0, 1], [1, 0]])
        >>> edge_log_likelihood(z, torch.ones(1), edges)  # log(1 - 1/e) - 1 - 1
        tensor([-2.4587])
    """
    adjacency = _simple(edge_index, z.size(0), edge_weight)
    # Edges in both directions hold each pair twice, and so do ordered pairs.
    adjacency, times = (adjacency.links, 1) if directed else (adjacency, 2)
    if batch is not None and num_graphs is None:
        num_graphs = int(batch.max()) + 1 if batch.numel() else 0
    groups, mean = _Groups(batch, num_graphs or 0), z if mean is None else mean
    edge_groups = _Groups(None if batch is None else batch[adjacency.source], groups.number)
    rate = _edge_rates(z, activation, adjacency, directed)
    on_edges = edge_groups.sum(_log_probability(rate, adjacency.weight)) / times
    if mean is z:
        rates_on_edges = edge_groups.sum(rate) / times
    else:
        rates_on_edges = groups.sum(_neighbour_rates(mean, activation, adjacency, directed)) / times
    off_edges = _pair_rates(mean, activation, groups) / times - rates_on_edges
    if adjacency.weight is not None:
        on_edges = on_edges - rates_on_edges
    if not balanced:
        return on_edges - off_edges
    nodes, edges = groups.sizes(z), edge_groups.sizes(rate) / times
    non_edges = nodes * (nodes - 1) / times - edges
    return (on_edges / edges.clamp_min(1) - off_edges / non_edges.clamp_min(1)) / 2


def partial_edge_log_likelihood(
    z: Tensor,
    activation: Tensor,
    edges: Adjacency,
    *,
    mean: Tensor,
    edge_weight: Tensor,
    total: Tensor,
    num_nodes: int,
    num_edges: int,
    balanced: bool = False,
) -> Tensor:
    r"""Share of a batch of nodes in :func:`edge_log_likelihood`, given a total over all nodes.

    .. math:: \sum_{\{i,j\} \in B} w_{ij} \big( \log(1 - e^{-r_{ij}}) + \bar r_{ij} \big)
              - \tfrac{1}{2} \sum_{i \in B} \sum_c \gamma_c \bar z_{ic} (s_c - \bar z_{ic}),
              \quad s = \sum_i \bar z_i

    Summed over batches that hold every node once, the rates of all pairs are exact. Edges between
    batches are missing; weighted by one over the probability that both ends are in one batch,
    every edge counts once in expectation. The total is held constant, yet the gradient of every
    node is that of the whole sum, in which it is one end of each of its pairs.

    ``edge_weight`` is the weight w of each edge [e], the same in both directions, ``total`` the sum
    of the posterior means of all nodes [C]. Numbers of nodes and undirected edges are those of the
    whole graph.
    """
    rate = _edge_rates(z, activation, edges)
    # The edges hold each pair twice.
    on_edges = edge_weight @ torch.log(-torch.expm1(-rate)) / 2
    near = aggregate(mean.detach()[:, None], edges, edge_weight[:, None]).squeeze(1)
    rates_on_edges = pair_rates(_as_both_ends(mean), near, activation).sum() / 2
    others = (total - mean).detach()
    own = (mean * others).sum(0) if activation.dim() == 1 else mean.T @ others
    own, flat = own.flatten(), activation.flatten()
    pairs = flat @ own.detach() / 2 + flat.detach() @ (own - own.detach())
    off_edges = pairs - rates_on_edges
    if not balanced:
        return on_edges - off_edges
    non_edges = num_nodes * (num_nodes - 1) / 2 - num_edges
    return (on_edges / max(num_edges, 1) - off_edges / max(non_edges, 1)) / 2


def subsampled_edge_log_likelihood(
    z: Tensor,
    activation: Tensor,
    edge_index: EdgeIndex,
    batch: Tensor | None = None,
    *,
    num_nodes: int = 200,
    importance: float = 0.9,
    exponent: float = 1.0,
    balanced: bool = False,
    num_graphs: int | None = None,
) -> Tensor:
    r"""The paper's estimate from the subgraph on randomly drawn, mostly well-connected nodes.

    .. math:: p_i = k q_i + (1 - k) \frac{1 - q_i}{N - 1}, \quad
              q_i = \frac{d_i^\alpha}{\sum_j d_j^\alpha}

    The exact likelihood costs no more than O(N C + E C), so this exists to reproduce the
    paper's table of scalable training.

    Args are those of :func:`edge_log_likelihood`; ``num_nodes`` are drawn, with replacement, of
    each graph, ``importance`` is k and ``exponent`` is :math:`\alpha`. The value of a graph is its
    subgraph's likelihood, scaled to the number of its pairs unless balanced.
    """
    adjacency = _simple(edge_index, z.size(0))
    batch = adjacency.source.new_zeros(z.size(0)) if batch is None else batch
    sizes = torch.bincount(batch, minlength=num_graphs or 0)
    num_graphs = sizes.numel()
    degree = torch.bincount(adjacency.target, minlength=z.size(0)).to(z.dtype)
    p = _importance(degree.pow(exponent), batch, sizes, importance)
    nodes = _draw_nodes(p, batch, sizes, num_nodes)
    kept, weight = subgraph(
        nodes, adjacency.edge_index, adjacency.weight, relabel_nodes=True, num_nodes=z.size(0)
    )
    value = edge_log_likelihood(
        z[nodes],
        activation,
        Adjacency(kept, nodes.numel(), weight=weight),
        batch[nodes],
        balanced=balanced,
        num_graphs=num_graphs,
    )
    if balanced:
        return value
    drawn = torch.bincount(batch[nodes], minlength=num_graphs)
    return value * sizes * (sizes - 1) / (drawn * (drawn - 1)).clamp_min(1)


def _importance(weight: Tensor, batch: Tensor, sizes: Tensor, importance: float) -> Tensor:
    """Probability of each node within its graph [N]."""
    total = _Groups(batch, sizes.numel()).sum(weight)[batch]
    size = sizes[batch].to(weight.dtype)
    q = torch.where(total > 0, weight / total, 1 / size)
    return importance * q + (1 - importance) * (1 - q) / (size - 1).clamp_min(1)


def _draw_nodes(p: Tensor, batch: Tensor, sizes: Tensor, count: int) -> Tensor:
    """Nodes drawn ``count`` times from each graph, without repeats and in order."""
    first = sizes.cumsum(0) - sizes
    place = torch.arange(batch.numel(), device=batch.device) - first[batch]
    table = p.new_zeros(sizes.numel(), int(sizes.max()))
    table[batch, place] = p.detach()
    drawn = torch.multinomial(table, count, replacement=True)
    return (drawn + first[:, None]).unique()


def _simple(edge_index: EdgeIndex, num_nodes: int, edge_weight: Tensor | None = None) -> Adjacency:
    if isinstance(edge_index, Adjacency):
        return edge_index
    plain, weight = remove_self_loops(edge_index, edge_weight)
    plain, weight = coalesce(plain, weight, num_nodes=num_nodes)
    return Adjacency(plain, num_nodes, weight=weight)


def _log_probability(rate: Tensor, weight: Tensor | None) -> Tensor:
    """Log-probability of each edge [E]; that of a weight lacks the rate, which sums in O(N)."""
    if weight is None:
        return torch.log(-torch.expm1(-rate))
    weight = weight.to(rate.dtype)
    return weight * torch.log(rate) - torch.lgamma(weight + 1)


def _edge_rates(z: Tensor, activation: Tensor, edges: Adjacency, directed: bool = False) -> Tensor:
    """Rate from the source of each edge to its target [E]."""
    if directed:
        return edges.dot_ends(z[:, None], couple(z, activation)[:, None]).squeeze(1)
    near = couple(_as_both_ends(z), activation)[:, None]
    return edges.dot_ends(near, z.detach()[:, None]).squeeze(1)


def _neighbour_rates(mean: Tensor, activation: Tensor, edges: Adjacency, directed: bool) -> Tensor:
    """Sum of the rates of the edges into each node [N], which takes no rate of a single edge."""
    if directed:
        return pair_rates(edges.sum_neighbours(mean[:, None]).squeeze(1), mean, activation)
    near = edges.sum_neighbours(mean.detach()[:, None]).squeeze(1)
    return pair_rates(_as_both_ends(mean), near, activation)


def _as_both_ends(z: Tensor) -> Tensor:
    """Affiliations of one end of each edge, with the gradient of both ends.

    Edges are given in both directions, so the two gradients are equal and one sum over the edges
    gives both.
    """
    return apply(_BothEnds, z)


class _BothEnds(torch.autograd.Function):
    """The same values, their gradient doubled."""

    generate_vmap_rule = True

    @staticmethod
    def forward(z: Tensor) -> Tensor:
        return z.view_as(z)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return 2 * grad


class _Groups(NamedTuple):
    """Which graph each row belongs to; None for one graph."""

    group: Tensor | None
    number: int

    def sum(self, values: Tensor) -> Tensor:
        """Sums of the rows of each graph [G, ...]."""
        if self.group is None:
            return values.sum(0, keepdim=True)
        group = self.group.view(-1, *[1] * (values.dim() - 1)).expand_as(values)
        # Unlike index_add, scatter_add has a batching rule that keeps vmap fast.
        return values.new_zeros(self.number, *values.shape[1:]).scatter_add(0, group, values)

    def sizes(self, rows: Tensor) -> Tensor:
        """Number of rows of each graph [G]."""
        if self.group is None:
            return rows.new_full((1,), rows.size(0))
        return self.sum(rows.new_ones(rows.size(0)))


def _pair_rates(z: Tensor, activation: Tensor, groups: _Groups) -> Tensor:
    """Sum of r_ij over all ordered pairs of nodes of each graph [G]."""
    total = groups.sum(z)
    own = groups.sum(pair_rates(z, z, activation))
    return pair_rates(total, total, activation) - own
