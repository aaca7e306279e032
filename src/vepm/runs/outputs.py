"""The arrays of a run: what the model says of every node and edge, or of an excerpt to look at."""

import torch
from torch import Tensor

from vepm.data import Dataset
from vepm.nn import VEPM, Adjacency
from vepm.scale.batches import GraphBatch, GraphStore
from vepm.scale.chunks import affiliations, classify, posterior_table
from vepm.scale.large import LargeGraph
from vepm.training.fitting import Fitted
from vepm.training.prediction import Explanation, attribute, explain, probabilities, seeded

Tensors = dict[str, Tensor]

LARGEST = 20_000
"""Nodes of a graph that is looked at as a whole, and of the excerpt of a larger one."""
LARGEST_FEATURES = 10_000_000
"""Entries of the feature matrix above which outputs leave it out."""


def outputs_of(
    dataset: Dataset,
    fitted: Fitted,
    source: GraphBatch | GraphStore,
    roles: Tensors,
    explained: Explanation | None = None,
) -> Tensors:
    """All arrays of a run on graphs that are looked at as a whole."""
    model = fitted.model
    found = explained or explain(model, source)
    outputs = {
        "edge_index": found.edge_index,
        "edge_weight": found.edge_weight,
        "memberships": found.memberships,
        "activation": model.activation.detach(),
        **assignment(model),
        "y": source.y,
        **_masks(roles, source.y.numel()),
        **_features(dataset),
    }
    if roles["train"].numel():
        samples = fitted.card.config.training.num_samples
        proba = probabilities(model, source, samples, seed=fitted.card.seed)
        outputs |= {
            "community_embeddings": found.community_embeddings,
            "embeddings": found.embeddings,
            "probabilities": proba,
            "prediction": proba.argmax(1),
            **attribute(model, source, proba.argmax(1))._asdict(),
        }
    if not isinstance(source, GraphBatch):
        outputs["batch"] = torch.arange(len(source)).repeat_interleave(source.nodes.cpu())
    return _on_cpu(outputs)


@torch.no_grad()
def large_outputs_of(
    dataset: Dataset, fitted: Fitted, graph: LargeGraph, roles: Tensors
) -> tuple[Tensors, Tensors, Tensor]:
    """What is known of every node of a large graph, the arrays of an excerpt, and its nodes.

    The excerpt is the neighbourhood of a training node.
    """
    model, train = fitted.model.eval(), roles["train"]
    with seeded(model):
        z = affiliations(model, posterior_table(model, graph), sample=False)
        found = classify(model, graph, z) if train.numel() else None
    nodes = neighbourhood(graph, int(train[0]) if train.numel() else 0, LARGEST)
    edges = Adjacency(graph.inside(nodes).to(graph.device), nodes.numel())
    whole = {"memberships": z}
    excerpt = {
        "edge_index": edges.edge_index,
        "edge_weight": model.split_edges(z[nodes].to(graph.device), edges),
        "activation": model.activation,
        **assignment(model),
        "y": graph.y[nodes],
        **{name: mask[nodes] for name, mask in _masks(roles, graph.num_nodes).items()},
        **_features(dataset, nodes),
    }
    if found is not None:
        samples, proba = fitted.card.config.training.num_samples, model.probabilities(found.logits)
        if samples:
            proba = probabilities(model, graph, samples, fitted.card.seed)
        whole |= {"probabilities": proba, "prediction": proba.argmax(1)}
        excerpt["community_embeddings"] = found.community_embeddings[nodes]
        excerpt["embeddings"] = found.logits[nodes]
    excerpt |= {name: table[nodes] for name, table in whole.items()}
    return _on_cpu(whole), _on_cpu(excerpt), nodes


def neighbourhood(graph: LargeGraph, start: int, count: int) -> Tensor:
    """So many nodes, ascending: those nearest to one, and on from the first not reached."""
    reached = torch.zeros(graph.num_nodes, dtype=torch.bool)
    frontier = torch.tensor([start])
    found = 0
    while found < min(count, graph.num_nodes):
        if frontier.numel() == 0:
            frontier = (~reached).nonzero()[:1, 0]
        frontier = frontier[: count - found]
        reached[frontier] = True
        found += frontier.numel()
        around = graph.edges_into(frontier)[1].long().unique()
        frontier = around[~reached[around]]
    return reached.nonzero().flatten()


def assignment(model: VEPM) -> Tensors:
    """Which metacommunity each community belongs to [C, K], where that was learned."""
    grouping = model.partitioner.grouping()
    return {"assignment": grouping.detach().cpu()} if isinstance(grouping, Tensor) else {}


def _masks(roles: Tensors, count: int) -> Tensors:
    masks = {f"{role}_mask": torch.zeros(count, dtype=torch.bool) for role in roles}
    for role, rows in roles.items():
        masks[f"{role}_mask"][rows] = True
    return masks


def _features(dataset: Dataset, nodes: Tensor | None = None) -> Tensors:
    """The features of all nodes or some, as they were given, unless they are too many."""
    x = dataset.features if nodes is None else dataset.features.index_select(0, nodes)
    return {"features": x.to_dense()} if x.numel() <= LARGEST_FEATURES else {}


def _on_cpu(tensors: Tensors) -> Tensors:
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
