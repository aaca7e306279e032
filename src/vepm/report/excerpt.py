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
    source: Ints
    """One end of each undirected edge, as a place in ``nodes``."""
    target: Ints
    edge_weight: Floats
    """Share of each edge in each metacommunity."""


def take_excerpt(run: Run) -> Excerpt:
    """All of a small run; neighbourhoods, or some graphs, of a large one."""
    budget = min(MOST_NODES, max(FEWEST_NODES, MOST_MEMBERSHIPS // run.memberships.shape[1]))
    pairs, edge_weight = undirected(run.edge_index, run.edge_weight)
    excerpt = _take(run, pairs, edge_weight, budget)
    while len(excerpt.source) > MOST_EDGES and budget > FEWEST_NODES:
        budget = max(FEWEST_NODES, int(0.8 * min(budget, len(excerpt.nodes))))
        excerpt = _take(run, pairs, edge_weight, budget)
    return excerpt


def _take(run: Run, pairs: Ints, edge_weight: Floats, budget: int) -> Excerpt:
    if run.batch is None:
        nodes = _neighbourhoods(run, budget)
        items, graph = nodes, np.zeros(len(nodes), dtype=np.int64)
    else:
        items = _some_graphs(run, budget)
        nodes = np.flatnonzero(np.isin(run.batch, items))
        graph = np.searchsorted(items, run.batch[nodes])
    inside, (source, target) = induced(pairs, nodes, run.num_nodes)
    return Excerpt(nodes, items, graph, source, target, edge_weight[inside])


def undirected(edge_index: Ints, edge_weight: Floats) -> tuple[Ints, Floats]:
    """Every edge once [2, M], lower end first and without loops, and its shares."""
    ends = np.sort(edge_index, axis=0)
    proper = np.flatnonzero(ends[0] < ends[1])
    once, first = np.unique(ends[:, proper], axis=1, return_index=True)
    return once, edge_weight[proper[first]]


def starting_node(run: Run, excerpt: Excerpt) -> int:
    """A well-connected node between communities, as a place in the excerpt."""
    part = np.clip(shares(run.interaction[excerpt.nodes]), 1e-12, 1)
    mixture = -(part * np.log(part)).sum(axis=1)
    ends = np.concatenate([excerpt.source, excerpt.target])
    degree = np.bincount(ends, minlength=len(part))
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


def _some_graphs(run: Run, budget: int) -> Ints:
    """Graphs that fit: test graphs first, the most uncertain of them first of all."""
    assert run.batch is not None
    sizes = np.bincount(run.batch, minlength=run.num_items)
    trained = ~run.masks["test"] if "test" in run.masks else np.zeros(run.num_items)
    order = np.lexsort((run.confidence, trained))
    order = order[sizes[order] > 0]
    return np.sort(order[: max(1, int((np.cumsum(sizes[order]) <= budget).sum()))])
