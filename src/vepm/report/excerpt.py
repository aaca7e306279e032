"""Which part of a large graph a page carries."""

from dataclasses import dataclass

import numpy as np
from scipy.sparse.csgraph import breadth_first_order

from vepm.report.communities import adjacency_matrix, bucket_order, induced, shares
from vepm.report.run import Floats, Ints, Run

MOST_NODES = 5000
FEWEST_NODES = 200
MOST_MEMBERSHIPS = 260_000
MOST_EDGES = 20_000


@dataclass(frozen=True)
class Excerpt:
    """Nodes, edges and items of a run that a page carries, renumbered from zero."""

    nodes: Ints
    """Nodes of the run, ascending [n]."""
    items: Ints
    """Items of the run: the same nodes, or the graphs they make up."""
    graph: Ints
    """Place in ``items`` of each node's graph; zeros for node tasks."""
    edges: Ints
    """The ends of each undirected edge, the lower first, as places in ``nodes`` [2, m]."""
    edge_weight: Floats
    """Share of each edge in each metacommunity."""


def take_excerpt(run: Run) -> Excerpt:
    """All of a small run; neighbourhoods, or some graphs, of a large one."""
    ends = np.sort(run.edge_index, axis=0)
    proper = np.flatnonzero(ends[0] < ends[1])
    pairs, first = np.unique(ends[:, proper], axis=1, return_index=True)
    edge_weight = run.edge_weight[proper[first]]
    budget = min(MOST_NODES, max(FEWEST_NODES, MOST_MEMBERSHIPS // run.memberships.shape[1]))
    while True:
        if run.batch is None:
            nodes = items = _neighbourhoods(run, budget)
            graph = np.zeros(len(nodes), dtype=np.int64)
        else:
            items = _some_graphs(run, run.batch, budget)
            nodes = np.flatnonzero(np.isin(run.batch, items))
            graph = np.searchsorted(items, run.batch[nodes])
        inside, edges = induced(pairs, nodes, run.num_nodes)
        if edges.shape[1] <= MOST_EDGES or budget <= FEWEST_NODES:
            return Excerpt(nodes, items, graph, edges, edge_weight[inside])
        budget = max(FEWEST_NODES, int(0.8 * min(budget, len(nodes))))


def starting_node(run: Run, excerpt: Excerpt) -> int:
    """A well-connected node between communities, as a place in the excerpt."""
    part = np.clip(shares(run.interaction[excerpt.nodes]), 1e-12, 1)
    mixture = -(part * np.log(part)).sum(axis=1)
    degree = np.bincount(excerpt.edges.ravel(), minlength=len(part))
    return int((mixture * np.log1p(degree)).argmax())


def _neighbourhoods(run: Run, budget: int) -> Ints:
    """Balls of equal size around the most typical nodes of every metacommunity."""
    if run.num_nodes <= budget:
        return np.arange(run.num_nodes)
    graph = adjacency_matrix(run.edge_index, run.num_nodes)
    order, bucket = bucket_order(run.interaction)
    seeds = order[np.unique(bucket[order], return_index=True)[1]].tolist()
    kept: dict[int, None] = {}
    for index, seed in enumerate(seeds, 1):
        around = breadth_first_order(graph, seed, return_predecessors=False).tolist()
        fresh = [node for node in around if node not in kept]
        kept |= dict.fromkeys(fresh[: budget * index // len(seeds) - len(kept)])
    # Small components leave room for other nodes.
    kept |= dict.fromkeys(order.tolist())
    return np.array(sorted(list(kept)[:budget]))


def _some_graphs(run: Run, batch: Ints, budget: int) -> Ints:
    """Graphs that fit: test graphs first, the most uncertain of them first of all."""
    sizes = np.bincount(batch, minlength=run.num_items)
    trained = ~run.masks["test"] if "test" in run.masks else np.zeros(run.num_items)
    order = np.lexsort((run.confidence, trained))
    order = order[sizes[order] > 0]
    return np.sort(order[: max(1, int((np.cumsum(sizes[order]) <= budget).sum()))])
