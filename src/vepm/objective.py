"""The evidence lower bound, term by term, and its normalisation."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch_geometric.utils import coalesce, remove_self_loops, subgraph, to_dense_batch

from vepm.kernels.aggregation import Adjacency, EdgeIndex, aggregate, as_adjacency
from vepm.kernels.shares import SMALLEST_SHARE, couple, link_shares, pair_rates


class Terms(NamedTuple):
    """A loss and the terms it is made of; all but ``kl`` and ``disagreement`` are maximised."""

    loss: Tensor
    task: Tensor | None = None  # log-likelihood of the labels
    edges: Tensor | None = None  # log-likelihood of the edges
    kl: Tensor | None = None  # KL divergence of the posterior from the prior
    disagreement: Tensor | None = None  # squared distance of the passes from their sharpened mean
    correct: Tensor | None = None  # number of labels predicted correctly


class Counts(NamedTuple):
    """What sums over a batch, or over all batches of a step, are divided by."""

    nodes: float | Tensor
    labels: float | Tensor
    graphs: float | Tensor = 1.0


def masked(values: Tensor, mask: Tensor | None) -> Tensor:
    """Values of nodes or graphs [n, ...], zero for padding."""
    if mask is None:
        return values
    return torch.where(mask.view(-1, *[1] * (values.dim() - 1)), values, 0)


def shrinking_penalty(mean: Tensor, activation: Tensor) -> Tensor:
    r"""Penalty of a truncated gamma process on communities that the links do not need.

    .. math:: \sum_c \log(1 + \pi_c / \varepsilon)

    As C grows, the log-density of activations from Gamma(:math:`\gamma_0 / C`, c) becomes minus
    their logarithm: an empty community is always better than a weak one. Activations are measured
    as shares :math:`\pi_c` of the expected links, which do not depend on the scale of the
    affiliations, and shares far below :math:`\varepsilon` count as zero.

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

    With interactions it is :math:`r_{ij} = z_i^\top \Lambda z_j`. Weights of edges have a Poisson
    likelihood, :math:`\sum_{i<j} w_{ij} \log r_{ij} - r_{ij} - \log \Gamma(w_{ij} + 1)`. Non-edges
    enter linearly: their sum follows from that of z, less the same over the edges.

    Args:
        z: Affiliations [N, C].
        activation: Activations [C], or interactions [C, C], symmetric unless directed.
        edge_index: Edges [2, E], both directions unless directed; loops and repeats are ignored.
        batch: Graph of each node [N]; one graph if not given.
        balanced: Average over edges and over non-edges, then halve, instead of summing.
        mean: Posterior means [N, C], which give the expected non-edge part; z if not given.
        num_graphs: Number of graphs, counted if not given.
        edge_weight: Positive weight of each edge [E]; an ``Adjacency`` has its own.
        directed: Whether links have directions; the sum is then over ordered pairs.

    Example:
        >>> edge_log_likelihood(torch.ones(3, 1), torch.ones(1), torch.tensor([[0, 1], [1, 0]]))
        tensor([-2.4587])
    """
    if isinstance(edge_index, Tensor):
        edge_index = _simple(edge_index, z.size(0), edge_weight)
    # Edges in both directions hold each pair twice.
    adjacency, times = (edge_index.links, 1) if directed else (edge_index, 2)
    if batch is not None and num_graphs is None:
        num_graphs = int(batch.max()) + 1 if batch.numel() else 0
    of_node, mean = (batch, num_graphs), z if mean is None else mean
    of_edge = None if batch is None else batch[adjacency.source], num_graphs
    rate = _edge_rates(z, activation, adjacency, directed)
    on_edges = _sums(_log_probability(rate, adjacency.weight), *of_edge) / times
    rates, where = rate, of_edge
    if mean is not z:
        rates, where = _neighbour_rates(mean, activation, adjacency, directed), of_node
    rates_on_edges, total = _sums(rates, *where) / times, _sums(mean, *of_node)
    own = _sums(pair_rates(mean, mean, activation), *of_node)
    off_edges = (pair_rates(total, total, activation) - own) / times - rates_on_edges
    if adjacency.weight is not None:
        on_edges = on_edges - rates_on_edges
    if not balanced:
        return on_edges - off_edges
    nodes = _sums(z.new_ones(z.size(0)), *of_node)
    edges = _sums(torch.ones_like(rate), *of_edge) / times
    non_edges = nodes * (nodes - 1) / times - edges
    return (on_edges / edges.clamp_min(1) - off_edges / non_edges.clamp_min(1)) / 2


def partial_edge_log_likelihood(
    z: Tensor,
    activation: Tensor,
    edges: Adjacency,
    mean: Tensor,
    edge_weight: Tensor,
    total: Tensor,
    size: tuple[int, int],
    balanced: bool,
) -> Tensor:
    r"""Share of a batch of nodes in :func:`edge_log_likelihood`, given a total over all nodes.

    .. math:: \sum_{\{i,j\} \in B} w_{ij} \big( \log(1 - e^{-r_{ij}}) + \bar r_{ij} \big)
              - \tfrac{1}{2} \sum_{i \in B} \sum_c \gamma_c \bar z_{ic} (s_c - \bar z_{ic}),
              \quad s = \sum_i \bar z_i

    Summed over batches that hold every node once, the rates of all pairs are exact. Edges between
    batches are missing; weighted by one over the probability that both ends are in one batch,
    every edge counts once in expectation. The total is held constant, yet the gradient of every
    node is that of the whole sum, in which it is one end of each of its pairs.

    ``edge_weight`` is w [e], the same in both directions, ``total`` is s [C], and ``size`` the
    number of nodes and of undirected edges of the whole graph.
    """
    rate = _edge_rates(z, activation, edges)
    # The edges hold each pair twice.
    on_edges = edge_weight @ _log_probability(rate, None) / 2
    near = aggregate(mean.detach()[:, None], edges, edge_weight[:, None]).squeeze(1)
    rates_on_edges = pair_rates(_as_both_ends(mean), near, activation).sum() / 2
    others = (total - mean).detach()
    own = (mean * others).sum(0) if activation.dim() == 1 else mean.T @ others
    own, flat = own.flatten(), activation.flatten()
    pairs = flat @ own.detach() / 2 + flat.detach() @ (own - own.detach())
    off_edges = pairs - rates_on_edges
    if not balanced:
        return on_edges - off_edges
    num_nodes, num_edges = size
    non_edges = num_nodes * (num_nodes - 1) / 2 - num_edges
    return (on_edges / max(num_edges, 1) - off_edges / max(non_edges, 1)) / 2


def subsampled_edge_log_likelihood(
    z: Tensor,
    activation: Tensor,
    edges: Adjacency,
    batch: Tensor | None = None,
    num_graphs: int = 1,
    *,
    num_nodes: int = 200,
    importance: float = 0.9,
) -> Tensor:
    r"""The paper's estimate from the subgraph on randomly drawn, mostly well-connected nodes [G].

    .. math:: p_i = k q_i + (1 - k) \frac{1 - q_i}{N - 1}, \quad q_i = \frac{d_i}{\sum_j d_j}

    It exists to reproduce the paper's table of scalable training. ``num_nodes`` are drawn, with
    replacement, of each graph; ``importance`` is k. The value of a graph is its subgraph's balanced
    likelihood. The other arguments are those of :func:`edge_log_likelihood`.
    """
    batch = edges.source.new_zeros(z.size(0)) if batch is None else batch
    sizes = torch.bincount(batch, minlength=num_graphs)
    size, degree = sizes[batch].to(z.dtype), edges.sorted().degree.to(z.dtype)
    total = _sums(degree, batch, num_graphs)[batch]
    q = torch.where(total > 0, degree / total, 1 / size)
    p = importance * q + (1 - importance) * (1 - q) / (size - 1).clamp_min(1)
    table, _ = to_dense_batch(p, batch, batch_size=num_graphs)
    drawn = torch.multinomial(table, num_nodes, replacement=True)
    nodes = (drawn + (sizes.cumsum(0) - sizes)[:, None]).unique()
    kept, weight = subgraph(
        nodes, edges.edge_index, edges.weight, relabel_nodes=True, num_nodes=z.size(0)
    )
    drawn_edges = Adjacency(kept, nodes.numel(), weight=weight)
    given = (z[nodes], activation, drawn_edges, batch[nodes])
    return edge_log_likelihood(*given, balanced=True, num_graphs=num_graphs)


def _simple(edge_index: Tensor, num_nodes: int, edge_weight: Tensor | None = None) -> Adjacency:
    plain, weight = remove_self_loops(as_adjacency(edge_index, num_nodes).edge_index, edge_weight)
    plain, weight = coalesce(plain, weight, num_nodes=num_nodes)
    return Adjacency(plain, num_nodes, weight=weight)


def _log_probability(rate: Tensor, weight: Tensor | None) -> Tensor:
    """Log-probability of each edge [E], or of its weight less the rate, whose sum is known."""
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
    """Sum of the rates of the edges into each node [N], without the rate of every single edge."""
    if directed:
        return pair_rates(edges.sum_neighbours(mean[:, None]).squeeze(1), mean, activation)
    near = edges.sum_neighbours(mean.detach()[:, None]).squeeze(1)
    return pair_rates(_as_both_ends(mean), near, activation)


def _as_both_ends(z: Tensor) -> Tensor:
    """The same values, their gradient doubled: that of both ends of edges in both directions."""
    return 2 * z - z.detach()


def _sums(values: Tensor, batch: Tensor | None, num_graphs: int | None) -> Tensor:
    """Sums of the rows of each graph [G, ...]; of one graph if there is no batch."""
    if batch is None:
        return values.sum(0, keepdim=True)
    index = batch.view(-1, *[1] * (values.dim() - 1)).expand_as(values)
    # Unlike index_add, scatter_add has a batching rule that keeps vmap fast.
    return values.new_zeros(num_graphs or 0, *values.shape[1:]).scatter_add(0, index, values)
