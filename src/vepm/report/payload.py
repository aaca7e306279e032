"""Data for the page's script, as plain JSON: which nodes of a large graph it shows, and where."""

import base64
from dataclasses import dataclass
from typing import Any

import networkx as nx
import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, connected_components, shortest_path
from scipy.spatial import cKDTree
from scipy.special import expit

from vepm.report.communities import images, pixel_grid
from vepm.report.figures import bucket_order
from vepm.report.reading import SPLITS
from vepm.report.run import Array, Bools, Floats, Ints, Run
from vepm.report.style import class_colours, community_colours
from vepm.report.summary import UNSURE

MOST_NODES, FEWEST_NODES = 5000, 200
MOST_MEMBERSHIPS, MOST_PIXELS, MOST_EDGES, MOST_CLASSES = 260_000, 150_000, 20_000, 6
SMALL = 60  # up to so many nodes, distances on paper follow the lengths of shortest paths
STEPS, NEAR, FAR = 300, 8, 6  # of the layout of larger graphs: rounds, and nodes that repel


@dataclass(frozen=True)
class Excerpt:
    """Nodes, edges and items of a run that a page carries, renumbered from zero."""

    nodes: Ints  # of the run, ascending [n]
    items: Ints  # of the run: the same nodes, or the graphs they make up
    graph: Ints  # place in ``items`` of each node's graph; zeros for node tasks
    edges: Ints  # each undirected edge, the lower end first, as places in ``nodes`` [2, m]
    edge_weight: Floats  # share of each edge in each metacommunity


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


def neighbours(edge_index: Ints, num_nodes: int) -> Any:
    """Edges as a SciPy sparse matrix [N, N], for which SciPy's graph functions differ in type."""
    return csr_array((np.ones(edge_index.shape[1]), edge_index), shape=(num_nodes, num_nodes))


def breadth_first(edge_index: Array, num_nodes: int, count: int) -> Ints:
    """The first nodes of a breadth-first search from the first node that reaches the most."""
    graph = neighbours(edge_index, num_nodes)
    component = connected_components(graph)[1]
    size = np.bincount(component)[component]
    start = int(np.argmax(size >= min(count, size.max())))
    order = breadth_first_order(graph, start, return_predecessors=False)
    return order[:count].astype(np.int64)


def induced(edge_index: Ints, nodes: Ints, num_nodes: int) -> tuple[Bools, Ints]:
    """Which edges join two of the given nodes, and these edges between places in ``nodes``."""
    place = np.full(num_nodes, -1)
    place[nodes] = np.arange(len(nodes))
    inside = np.all(place[edge_index] >= 0, axis=0)
    return inside, place[edge_index[:, inside]]


def _neighbourhoods(run: Run, budget: int) -> Ints:
    """Balls of equal size around the most typical nodes of every metacommunity."""
    if run.num_nodes <= budget:
        return np.arange(run.num_nodes)
    graph = neighbours(run.edge_index, run.num_nodes)
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
    """Graphs that fit: test graphs first, starting with the most uncertain."""
    sizes = np.bincount(batch, minlength=run.num_items)
    trained = ~run.masks["test"] if "test" in run.masks else np.zeros(run.num_items)
    order = np.lexsort((run.confidence, trained))
    order = order[sizes[order] > 0]
    return np.sort(order[: max(1, int((np.cumsum(sizes[order]) <= budget).sum()))])


def build_payload(run: Run, excerpt: Excerpt) -> dict[str, Any]:
    """Nodes, edges and items of the excerpt, rounded to what a reader can see."""
    sizes = np.bincount(np.zeros(run.num_nodes, dtype=int) if run.batch is None else run.batch)
    pairs = float((sizes * (sizes - 1) / 2).sum())
    return {
        "task": run.task,
        "totalNodes": run.num_nodes,
        "classes": list(run.class_names),
        "classColours": class_colours(len(run.class_names)),
        "communities": run.community_names,
        "colours": community_colours(run.num_metacommunities),
        "partOf": run.part_of_each.tolist(),
        "activation": [float(f"{value:.3g}") for value in run.activation],
        "density": run.edge_index.shape[1] / 2 / pairs if pairs else 0.0,
        "unsure": 100 * UNSURE,
        "start": _start(run, excerpt),
        "nodes": _nodes(run, excerpt),
        "edges": dict(zip(("source", "target"), excerpt.edges.tolist(), strict=True))
        | {"share": _percent(excerpt.edge_weight)},
        "items": _items(run, excerpt.items),
    }


def _start(run: Run, excerpt: Excerpt) -> int:
    """A well-connected node whose neighbours differ in their main community, in the excerpt."""
    main = run.interaction[excerpt.nodes].argmax(axis=1)
    count = np.zeros((len(main), run.interaction.shape[1]))
    for one, other in (excerpt.edges, excerpt.edges[::-1]):
        np.add.at(count, (one, main[other]), 1)
    part = np.clip(shares(count), 1e-12, 1)
    return int((-(part * np.log(part)).sum(axis=1) * np.log1p(count.sum(axis=1))).argmax())


def _nodes(run: Run, excerpt: Excerpt) -> dict[str, Any]:
    nodes, interaction = excerpt.nodes, run.interaction[excerpt.nodes]
    positions = np.zeros((len(nodes), 2))
    for graph in np.unique(excerpt.graph):
        own = np.flatnonzero(excerpt.graph == graph)
        inside = excerpt.edges[:, excerpt.graph[excerpt.edges[0]] == graph]
        positions[own] = layout(np.searchsorted(own, inside), len(own))
    # Memberships take two bytes each, as bfloat16, which is good to two significant digits.
    largest = torch.finfo(torch.bfloat16).max
    short = torch.from_numpy(run.memberships[nodes]).clamp(max=largest).bfloat16()
    packed = short.view(torch.uint16).numpy().astype("<u2")
    content: dict[str, Any] = {
        "name": [run.node_names[n] for n in nodes],
        "x": positions[:, 0].round(2).tolist(),
        "y": positions[:, 1].round(2).tolist(),
        "graph": excerpt.graph.tolist() if run.batch is not None else None,
        "main": interaction.argmax(axis=1).tolist(),
        "part": _percent(shares(interaction)),
        "z": base64.b64encode(packed.tobytes()).decode("ascii"),
    }
    grid = pixel_grid(run.feature_names)
    if grid and run.features is not None and len(nodes) * grid[0] * grid[1] <= MOST_PIXELS:
        content |= {"grid": grid, "image": images(run.features[nodes])}
    return content


def _items(run: Run, items: Ints) -> dict[str, Any]:
    split = np.zeros(run.num_items, dtype=np.int64)
    for number, name in enumerate(SPLITS, 1):
        split[run.masks.get(name, [])] = number
    content: dict[str, Any] = {"split": split[items].tolist()}
    if run.batch is not None:
        content["name"] = [run.graph_names[g] for g in items]
    for name, given in (("label", run.labels), ("prediction", run.prediction)):
        if given is not None:
            content[name] = given[items].tolist()
    if run.probabilities is not None:
        probabilities = (100 * run.probabilities[items]).round(1).tolist()
        likeliest = np.argsort(-run.probabilities[items], axis=1, kind="stable")[:, :MOST_CLASSES]
        pairs = zip(probabilities, likeliest.tolist(), strict=True)
        content["probabilities"] = [[[c, row[c]] for c in order] for row, order in pairs]
    if run.support is not None:
        # Per metacommunity its support in log-odds, and probability and class without it.
        percent = (100 * expit(np.asarray(run.log_odds_without))).round(1)
        triples = np.stack([run.support.round(2), percent, np.asarray(run.label_without)], axis=2)
        content["support"] = triples[items].tolist()
    return content


def shares(interaction: Floats) -> Floats:
    """Each node's interactions as parts of one [N, K]; even where a node has none."""
    total = interaction.sum(axis=1, keepdims=True)
    even = np.full_like(interaction, 1 / interaction.shape[1])
    return np.divide(interaction, total, out=even, where=total > 0)


def _percent(share: Floats) -> list[list[int]]:
    return (100 * share).round().astype(int).tolist()


def layout(edge_index: Ints, num_nodes: int) -> Floats:
    """Positions [N, 2], about one unit between neighbours; of small graphs by path lengths.

    Else by springs along edges, repulsion from the nearest and from random nodes, and a pull to the
    middle: ten times faster for 4,000 nodes than NetworkX's, which compares all pairs.
    """
    if num_nodes <= SMALL:
        return _by_path_lengths(edge_index, num_nodes)
    random = np.random.default_rng(0)
    position = random.normal(scale=np.sqrt(num_nodes) / 3, size=(num_nodes, 2))
    source, target = np.hstack([edge_index, edge_index[::-1]])
    degree = np.maximum(np.bincount(source, minlength=num_nodes), 1)
    stiffness = 0.8 / np.sqrt(np.minimum(degree[source], degree[target]))[:, None]
    for step in range(STEPS):
        spring = position[target] - position[source]
        pull = spring * np.minimum(_length(spring), 4) * stiffness
        move = np.stack([np.bincount(source, along, num_nodes) for along in pull.T], axis=1)
        near = cKDTree(position).query(position, k=range(2, NEAR + 2))[1]
        far = random.integers(num_nodes, size=(num_nodes, FAR))
        push = _push(position, near, 1.5) + _push(position, far, 0.25 * num_nodes / FAR)
        # The pull to the middle grows outwards, so that long branches curl up.
        slope = np.minimum(_length(position) / np.sqrt(num_nodes), 1.5)
        move += push - 0.35 * position * slope
        speed = _length(move)
        heat = np.sqrt(num_nodes) * 0.05 * (1 - step / STEPS) + 0.02
        position = position + move / np.maximum(speed, 1e-9) * np.minimum(speed, heat)
    return position - position.mean(axis=0)


def _by_path_lengths(edge_index: Ints, num_nodes: int) -> Floats:
    """Kamada and Kawai's layout; components are two steps apart."""
    length = shortest_path(neighbours(edge_index, num_nodes), directed=False, unweighted=True)
    known = np.isfinite(length)
    length[~known] = length[known].max() + 2
    distances = {node: dict(enumerate(row)) for node, row in enumerate(length.tolist())}
    found = nx.kamada_kawai_layout(nx.empty_graph(num_nodes), dist=distances)
    position = np.array([found[node] for node in range(num_nodes)])
    gap = np.linalg.norm(position[edge_index[0]] - position[edge_index[1]], axis=1)
    return position / (gap.mean() if len(gap) else 0.5)


def _push(position: Floats, others: Any, strength: float) -> Floats:
    """Repulsion of each node from some others [N, n]."""
    gap = position[:, None] - position[others]
    return strength * (gap / (np.square(gap).sum(2, keepdims=True) + 0.05)).sum(1)


def _length(vectors: Array) -> Floats:
    return np.linalg.norm(vectors, axis=1, keepdims=True)
