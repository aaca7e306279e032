"""What a run on a large graph leaves behind: all predictions, and an excerpt to look at."""

import torch
from torch import Tensor

from vepm.nn import VEPM, Adjacency
from vepm.scale.chunks import affiliations, classify, posterior_table
from vepm.scale.large import LargeGraph
from vepm.training.prediction import probabilities, seeded

LARGEST = 20_000
"""Nodes of a graph that is looked at as a whole, and of the excerpt of a larger one."""


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


@torch.no_grad()
def large_outputs(
    model: VEPM, graph: LargeGraph, labelled: bool, num_samples: int, seed: int, start: int
) -> tuple[dict[str, Tensor], dict[str, Tensor], Tensor]:
    """Outputs of every node, those of an excerpt with its edges, and the excerpt's nodes.

    Args:
        model: The trained model.
        graph: The graph.
        labelled: Whether the model has learned from labels, so that its predictions mean something.
        num_samples: Draws that a prediction averages.
        seed: Seed of the draws.
        start: Node in the middle of the excerpt.
    """
    model.eval()
    with seeded(model):
        z = affiliations(model, posterior_table(model, graph), sample=False)
        whole = {"memberships": z}
        if labelled:
            found = classify(model, graph, z)
    nodes = neighbourhood(graph, start, LARGEST)
    device = model.activation.device
    edges = Adjacency(graph.inside(nodes).to(device), nodes.numel())
    excerpt = {
        "edge_index": edges.edge_index,
        "edge_weight": model.split_edges(z[nodes].to(device), edges),
    }
    if labelled:
        proba = model.probabilities(found.logits)
        if num_samples:
            proba = probabilities(model, graph, num_samples, seed)
        whole |= {"probabilities": proba, "prediction": proba.argmax(1)}
        excerpt["community_embeddings"] = found.community_embeddings[nodes]
        excerpt["embeddings"] = found.logits[nodes]
    excerpt |= {name: table[nodes] for name, table in whole.items()}
    common = {"activation": model.activation.detach().cpu()}
    return whole | common | {"y": graph.y}, excerpt | common | {"y": graph.y[nodes]}, nodes
