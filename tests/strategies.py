"""Random graphs for property tests, corner cases that random ones rarely hit, dense oracles."""

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from hypothesis import settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from vepm.nn import SparseFeatures, compact

# Kernels warm up on first use, so a time limit per example would fail at random.
quick = settings(deadline=None, max_examples=25, derandomize=True, database=None)

seeds = st.integers(0, 2**31 - 1)


class Graph(NamedTuple):
    edge_index: Tensor
    num_nodes: int

    @property
    def pairs(self) -> set[tuple[int, int]]:
        """Linked pairs i < j; loops and repeats dropped."""
        return {(min(i, j), max(i, j)) for i, j in self.edge_index.t().tolist() if i != j}


class GraphBatch(NamedTuple):
    graphs: list[Graph]
    edge_index: Tensor
    batch: Tensor


def undirected(pairs: list[tuple[int, int]], num_nodes: int) -> Graph:
    """Both directions of every pair, in the order given."""
    forward = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).t()
    return Graph(torch.cat([forward, forward.flip(0)], dim=1), num_nodes)


def no_edges(num_nodes: int) -> Graph:
    return undirected([], num_nodes)


def complete(num_nodes: int) -> Graph:
    return undirected(list(itertools.combinations(range(num_nodes), 2)), num_nodes)


def path(num_nodes: int) -> Graph:
    return undirected(list(itertools.pairwise(range(num_nodes))), num_nodes)


def random_graph(num_nodes: int, density: float = 0.4, seed: int = 0) -> Graph:
    pairs = list(itertools.combinations(range(num_nodes), 2))
    kept = torch.rand(len(pairs), generator=torch.Generator().manual_seed(seed)) < density
    return undirected([p for p, keep in zip(pairs, kept.tolist(), strict=True) if keep], num_nodes)


def join(graphs: list[Graph]) -> GraphBatch:
    """Several graphs as one, as PyG batches them."""
    sizes = torch.tensor([g.num_nodes for g in graphs], dtype=torch.long)
    starts = (sizes.cumsum(0) - sizes).tolist()
    shifted = [g.edge_index + start for g, start in zip(graphs, starts, strict=True)]
    batch = torch.repeat_interleave(torch.arange(len(graphs)), sizes)
    return GraphBatch(graphs, torch.cat([torch.empty(2, 0, dtype=torch.long), *shifted], 1), batch)


def uniform(seed: int, *shape: int, low: float = 0.1, high: float = 2.0) -> Tensor:
    """Double-precision numbers between two bounds, the same for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(shape, generator=generator, dtype=torch.float64) * (high - low) + low


@st.composite
def directed_graphs(draw: st.DrawFn, max_nodes: int = 8, max_edges: int = 24) -> Graph:
    """Any multigraph: one-way, repeated and unsorted edges, loops, isolated nodes."""
    num_nodes = draw(st.integers(0, max_nodes))
    if num_nodes == 0:
        return no_edges(0)
    node = st.integers(0, num_nodes - 1)
    edges = draw(st.lists(st.tuples(node, node), max_size=max_edges))
    return Graph(torch.tensor(edges, dtype=torch.long).reshape(-1, 2).t(), num_nodes)


@st.composite
def simple_graphs(draw: st.DrawFn, min_nodes: int = 0, max_nodes: int = 7) -> Graph:
    """Undirected, no loops, no repeats; often empty or complete, often with isolated nodes."""
    num_nodes = draw(st.integers(min_nodes, max_nodes))
    pairs = list(itertools.combinations(range(num_nodes), 2))
    kind = draw(st.sampled_from(["random", "random", "empty", "complete"]))
    if kind == "random" and pairs:
        pairs = draw(st.lists(st.sampled_from(pairs), unique=True))
    return undirected([] if kind == "empty" else pairs, num_nodes)


@st.composite
def raw_graphs(draw: st.DrawFn, max_nodes: int = 7) -> Graph:
    """A simple graph as a careless file holds it: with loops and repeats, in any order."""
    graph = draw(simple_graphs(max_nodes=max_nodes))
    columns = graph.edge_index.t().tolist()
    if columns:
        repeats = draw(st.lists(st.sampled_from(columns), max_size=4))
        columns += repeats + [edge[::-1] for edge in repeats]
    if graph.num_nodes:
        loops = draw(st.lists(st.integers(0, graph.num_nodes - 1), max_size=4))
        columns += [[node, node] for node in loops]
    columns = draw(st.permutations(columns))
    return Graph(torch.tensor(columns, dtype=torch.long).reshape(-1, 2).t(), graph.num_nodes)


def batches(max_graphs: int = 4, min_nodes: int = 1) -> st.SearchStrategy[GraphBatch]:
    """Several simple graphs joined, single nodes and edgeless ones among them."""
    graph = simple_graphs(min_nodes=min_nodes, max_nodes=5)
    return st.lists(graph, min_size=1, max_size=max_graphs).map(join)


def shares(graph: Graph, heads: int) -> Tensor:
    """Some split of the edges: positive, one per community, summing to one."""
    return torch.softmax(uniform(5, graph.edge_index.size(1), heads), dim=1)


def dense_propagation(
    graph: Graph, shares: Tensor, normalize: str, weight: Tensor | None = None
) -> Tensor:
    """Matrix [N, N] by which one community's features are multiplied; rows are targets.

    Args:
        graph: The graph.
        shares: Share of each edge in the community [E].
        normalize: As in :func:`vepm.nn.convolution.propagation`.
        weight: Message weight of each edge [E]; None for ones.
    """
    n = graph.num_nodes
    own = torch.eye(n, dtype=torch.float64)
    share, linked = own.clone(), own.clone()
    weight = torch.ones_like(shares) if weight is None else weight
    for e, (source, target) in enumerate(graph.edge_index.t().tolist()):
        share[target, source] += shares[e]
        linked[target, source] = weight[e]
    if normalize == "neighbours":
        matrix = torch.exp(share / 0.5) * linked
        return matrix / matrix.sum(1, keepdim=True)
    matrix = share * linked
    if normalize == "none":
        return matrix
    degree = (matrix if normalize == "community" else linked).sum(1)
    return torch.diag(degree**-0.5) @ matrix @ torch.diag(degree**-0.5)


class LargestTensor(TorchDispatchMode):
    """Watches how many numbers the largest tensor that any operation makes holds."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.size = 0

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        if isinstance(out, Tensor) and out.layout == torch.strided:
            self.size = max(self.size, out.numel())
        return out


def scramble(module: nn.Module, seed: int = 0) -> None:
    """Give every parameter and every running statistic a value it does not start with."""
    generator = torch.Generator().manual_seed(seed)
    for name, value in module.state_dict().items():
        if value.is_floating_point():
            drawn = torch.rand(value.shape, generator=generator).to(value)
            value.copy_(drawn + 0.5 if name.endswith("running_var") else 2 * drawn - 1)


def sparse_of(x: Tensor) -> SparseFeatures:
    """A dense matrix without its zeros."""
    found = compact(x.to_sparse())
    assert isinstance(found, SparseFeatures)
    return found
