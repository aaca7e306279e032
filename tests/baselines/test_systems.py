"""The baselines that the paper's tables compare with, against hand-made or independent answers."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.distributions import Normal
from torch_geometric.data import Data

from baselines.toys import cycle, graph_split, graph_toy, node_toy, star
from vepm.baselines import BASELINES, baseline
from vepm.baselines.capsgnn import route, squash
from vepm.baselines.hganet import HardAttention
from vepm.baselines.neural import NeuralBaseline
from vepm.baselines.ordered import receptive_fields
from vepm.baselines.sigvae import bound, mixture_log_density
from vepm.baselines.svm import AWE, anonymous, walks_of
from vepm.evaluation import public_split
from vepm.training import GraphStore

NETWORKS = ("graph-gat", "graph-hganet", "dgcnn", "capsgnn")
OPTIONS: dict[str, dict[str, Any]] = {
    "graph-gat": {"num_layers": 2, "heads": 4, "hidden_channels": 32, "pooling": "mean"},
    "hganet": {"num_layers": 1, "num_neighbours": 2, "hidden_channels": 8},
    "graph-hganet": {
        "num_layers": 1,
        "num_neighbours": 1,
        "kept_share": 0.5,
        "hidden_channels": 8,
        "pooling": "mean",
    },
    "dgcnn": {"num_layers": 1, "num_nodes": 12, "hidden_channels": 8},
    "patchy-san": {"field_size": 3, "num_nodes": 12, "hidden_channels": 8},
    "capsgnn": {
        "num_layers": 2,
        "num_channels": 4,
        "num_capsules": 4,
        "num_iterations": 1,
        "hidden_channels": 8,
        "dropout": 0.5,
    },
}


def shuffled(graph: Data, seed: int) -> Data:
    """The same graph with its nodes in another order."""
    order = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(seed))
    moved = Data(x=torch.empty_like(graph.x), edge_index=order[graph.edge_index], y=graph.y)
    moved.x[order] = graph.x
    return moved


@pytest.mark.parametrize("name", NETWORKS)
def test_a_graph_scores_the_same_alone_and_in_any_order(name: str) -> None:
    torch.manual_seed(0)
    graphs, method = graph_toy(8).graphs, BASELINES[name]
    # A feature of every node's own, so that no two can be confused.
    for graph in graphs:
        graph.x = torch.rand(graph.num_nodes, 3)
    assert isinstance(method, NeuralBaseline)
    model, every = method.build(3, 2).eval(), torch.arange(8)
    together = model(GraphStore(graphs).select(every))
    alone = torch.cat([model(GraphStore([graph]).select(every[:1])) for graph in graphs])
    moved = model(GraphStore([shuffled(graph, 1) for graph in graphs]).select(every))
    assert torch.allclose(alone, together, atol=1e-5)
    assert torch.allclose(moved, together, atol=1e-5)


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_changes_the_outcome(name: str) -> None:
    dataset, split = graph_toy(), graph_split()
    if BASELINES[name].task == "node":
        dataset = node_toy()
        split = public_split(dataset)
    plain = baseline(name, epochs=1)(dataset, split, seed=0).curve["train_loss"]
    for key, value in OPTIONS[name].items():
        changed = baseline(name, epochs=1, settings={key: value})(dataset, split, seed=0)
        assert changed.curve["train_loss"] != plain, key


def test_hard_attention_on_a_star_reads_the_best_leaves_alone() -> None:
    torch.manual_seed(0)
    x, layer = torch.rand(6, 4), HardAttention(4, 2)
    score = (x @ layer.direction).abs() / layer.direction.norm()
    gated = x * score.sigmoid()[:, None]
    best = score[1:].topk(2).indices + 1
    weight = torch.softmax(gated[best] @ x[0], dim=0)
    found = layer(x, star(6))
    assert torch.allclose(found[0], x[0] + weight @ gated[best], atol=1e-6)
    assert torch.allclose(found[1:], x[1:] + gated[0], atol=1e-6)
    assert torch.equal(layer(x, torch.empty(2, 0, dtype=torch.long)), x)


def test_anonymous_walks_of_a_path_by_hand() -> None:
    path = Data(edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), num_nodes=3)
    walks, share = walks_of(path, 2, 100, np.random.default_rng(0))
    found = {tuple(walk): float(p) for walk, p in zip(walks.tolist(), share, strict=True)}
    expected = {(0, 1, 0), (0, 1, 2), (1, 0, 1), (1, 2, 1), (2, 1, 0), (2, 1, 2)}
    assert found == dict.fromkeys(expected, pytest.approx(1 / 6))
    # Two of six walks, from one end to the other, do not return.
    assert anonymous(walks).sum(0).tolist() == [0, 6, 4]


def test_random_walks_come_close_to_all_walks() -> None:
    shares = []
    for most in (10**6, 4000):
        walks, share = walks_of(
            Data(edge_index=star(6), num_nodes=7), 4, most, np.random.default_rng(0)
        )
        returns = (walks[:, 0] == walks[:, 2]) & (walks[:, 2] == walks[:, 4])
        shares.append(share[returns].sum())
        # The seventh node has no edges: its walks stay.
        assert share[(walks == 6).all(1)].sum() == pytest.approx(1 / 7, abs=0.02)
    assert shares[1] == pytest.approx(shares[0], abs=0.03)


def test_walks_tell_cycles_from_stars_however_their_nodes_are_numbered() -> None:
    dataset = graph_toy(8)
    mixed = replace(dataset, graphs=[*dataset.graphs, *(shuffled(g, 2) for g in dataset.graphs)])
    kernel = AWE(length=3).kernels(mixed, seed=0)[1]
    assert kernel[range(8), range(8, 16)] == pytest.approx(1.0)
    # A walk of three steps never returns to a cycle's start, and often to that of a star.
    assert kernel[0, 1] < 0.9 < kernel[0, 2]


def test_receptive_fields_begin_with_the_centre_and_keep_their_order() -> None:
    graph = Data(x=torch.arange(1.0, 6.0)[:, None], edge_index=star(5))
    fields = receptive_fields(graph, 6, 3).squeeze(2)
    assert fields[0].tolist() == [1.0, 5.0, 4.0]
    assert fields[1].tolist() == [5.0, 1.0, 4.0]
    assert not fields[5].any()
    assert torch.equal(receptive_fields(shuffled(graph, 3), 6, 3).squeeze(2), fields)
    apart = Data(x=torch.ones(4, 1), edge_index=torch.tensor([[0, 1], [1, 0]]))
    assert receptive_fields(apart, 4, 4).squeeze(2).sum(1).sort().values.tolist() == [1, 1, 2, 2]


@pytest.mark.parametrize("name", ["dgcnn", "patchy-san"])
def test_as_many_nodes_are_read_as_most_graphs_have(name: str) -> None:
    dataset, split = graph_toy(), graph_split()
    usual = int(np.quantile([graph.num_nodes for graph in dataset.graphs], 0.4))
    for graph in dataset.graphs[1::2]:
        graph.x, graph.edge_index = torch.rand(15, 2), star(15)
    told, found = (
        baseline(name, epochs=1, settings={"num_nodes": count})(dataset, split, seed=0).curve
        for count in (10, None)
    )
    assert usual < 10
    assert found == told


def test_routing_finds_what_votes_agree_on() -> None:
    agreed = torch.tensor([1.0, 0.0])
    votes = torch.stack([agreed, agreed, -agreed]).view(3, 1, 1, 2).repeat(1, 1, 2, 1)
    votes[:, :, 1] = torch.tensor([[0.0, 1.0], [0.0, -1.0], [0.0, 0.0]]).view(3, 1, 2)
    once, often = (route(votes, torch.zeros(3, dtype=torch.long), 1, n) for n in (1, 5))
    assert torch.allclose(once[0, 0], squash(agreed / 2))
    # Votes for the second capsule cancel, so the members that agree turn to the first.
    assert often[0, 0].norm() > once[0, 0].norm()
    assert squash(torch.tensor([3.0, 4.0])).norm().item() == pytest.approx(25 / 26)


def test_mixture_density_is_that_of_torch() -> None:
    torch.manual_seed(0)
    z, means, scale = torch.randn(4, 3), torch.randn(5, 4, 3), torch.rand(4, 3) + 0.1
    density = Normal(means, scale).log_prob(z).sum(2).exp().mean(0)
    assert torch.allclose(mixture_log_density(z, means, scale), density.log(), atol=1e-5)


class Known:
    """An autoencoder whose embeddings are drawn around 20, with a spread of one."""

    def encode(self, x: torch.Tensor, edges: torch.Tensor, draws: int) -> Any:
        return torch.full((draws, len(x), 1), 20.0), torch.ones(len(x), 1)

    def recon_loss(self, z: torch.Tensor, edges: torch.Tensor, pairs: torch.Tensor) -> float:
        assert z.mean() == pytest.approx(20, abs=0.1)
        assert z.std() == pytest.approx(1, abs=0.1)
        assert pairs.shape == edges.shape
        assert set(pairs.flatten().tolist()) == set(range(len(z)))
        return 3.0


def test_sigvae_adds_the_divergence_of_a_node_over_the_number_of_nodes() -> None:
    torch.manual_seed(0)
    edges = torch.zeros(2, 40_000, dtype=torch.long)
    # Of normals with a spread of one, it is half the squared distance of their means.
    found = bound(Known(), torch.zeros(4000, 1), edges, draws=3)
    assert float(found) == pytest.approx(3 + 20**2 / 2 / 4000, abs=1e-3)


def test_walks_and_embeddings_differ_by_their_options() -> None:
    dataset = graph_toy(8)
    first = AWE().kernels(dataset, seed=0)
    for other in (AWE(length=2), AWE(num_walks=5), AWE(gammas=(2.0,))):
        assert not np.allclose(other.kernels(dataset, seed=0)[0], first[0])
    nodes = node_toy()
    torch.manual_seed(0)
    plain = baseline("sig-vae", epochs=2).embed(nodes)  # type: ignore[attr-defined]
    for key in ("hidden_channels", "noise_channels", "draws", "latent_channels"):
        torch.manual_seed(0)
        found = baseline("sig-vae", epochs=2, settings={key: 3}).embed(nodes)  # type: ignore[attr-defined]
        assert found.shape != plain.shape or not torch.equal(found, plain)


def test_cycles_are_no_longer_than_they_are() -> None:
    walks, _ = walks_of(Data(edge_index=cycle(5), num_nodes=5), 5, 10**4, np.random.default_rng(0))
    assert anonymous(walks).max() == 4
    assert len(walks) == 5 * 2**5
