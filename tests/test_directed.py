"""Directed links: likelihood over ordered pairs by double loops, and the model of directions."""

import itertools
import math
from collections import defaultdict

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score
from torch import Tensor
from torch_geometric.data import Data

from strategies import Graph, complete, join, no_edges, quick, seeds, uniform
from vepm import VEPM
from vepm.data import as_dataset
from vepm.errors import InputError
from vepm.nn import Adjacency, EdgePartitioner, draw
from vepm.objective import edge_log_likelihood
from vepm.scale.batches import GraphStore, single_graph
from vepm.scale.large import LargeGraph
from vepm.training import Config, ModelCard, fit
from vepm.training.losses import pretraining_loss
from vepm.training.prediction import explain


def one_way(num_nodes: int, density: float = 0.4, seed: int = 0) -> Graph:
    """Links drawn for each ordered pair on its own."""
    chance = torch.rand(num_nodes, num_nodes, generator=torch.Generator().manual_seed(seed))
    return Graph((chance.fill_diagonal_(1) < density).nonzero().T.contiguous(), num_nodes)


GRAPH = one_way(8)


def weights(graph: Graph, seed: int = 0) -> Tensor:
    return uniform(seed, graph.edge_index.size(1), low=0.2, high=6.0).ceil()


def dense(
    z: Tensor,
    between: Tensor,
    graph: Graph,
    weight: Tensor | None = None,
    balanced: bool = False,
    mean: Tensor | None = None,
) -> float:
    """Double loop over all ordered pairs."""
    mean = z if mean is None else mean
    strength = [1.0] * graph.edge_index.size(1) if weight is None else weight.tolist()
    table = dict(zip(map(tuple, graph.edge_index.t().tolist()), strength, strict=True))
    on, off = [], []
    for i, j in itertools.permutations(range(graph.num_nodes), 2):
        rate, expected = (float(a[i] @ between @ a[j]) for a in (z, mean))
        if (i, j) not in table:
            off.append(-expected)
        elif weight is None:
            on.append(math.log(-math.expm1(-rate)))
        else:
            w = table[i, j]
            on.append(w * math.log(rate) - expected - math.lgamma(w + 1))
    if balanced:
        return (math.fsum(on) / max(len(on), 1) + math.fsum(off) / max(len(off), 1)) / 2
    return math.fsum(on) + math.fsum(off)


@given(st.booleans(), st.booleans(), st.booleans(), seeds)
@quick
def test_likelihood_equals_double_loop_over_ordered_pairs(
    weighted: bool, balanced: bool, analytic: bool, seed: int
) -> None:
    graphs = [one_way(6, seed=seed % 97), complete(4), no_edges(3), no_edges(0), one_way(2, 1)]
    batch, sizes = join(graphs), [g.num_nodes for g in graphs]
    each = [weights(g, seed + i) if weighted else None for i, g in enumerate(graphs)]
    z, mean = uniform(seed, sum(sizes), 3), uniform(seed + 1, sum(sizes), 3)
    between = uniform(seed + 2, 3, 3)
    value = edge_log_likelihood(
        z,
        between,
        batch.edge_index,
        batch.batch,
        balanced=balanced,
        mean=mean if analytic else None,
        num_graphs=len(graphs),
        edge_weight=torch.cat([w for w in each if w is not None]) if weighted else None,
        directed=True,
    )
    parts = zip(graphs, z.split(sizes), mean.split(sizes), each, strict=True)
    expected = [dense(a, between, g, w, balanced, m if analytic else None) for g, a, m, w in parts]
    assert value.tolist() == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_gradients_match_finite_differences(balanced: bool, weighted: bool) -> None:
    batch = join([one_way(5), complete(3), no_edges(2)])
    weight = torch.cat([weights(g) for g in batch.graphs]) if weighted else None

    def value(z: Tensor, between: Tensor, mean: Tensor) -> Tensor:
        return edge_log_likelihood(
            z,
            between,
            batch.edge_index,
            batch.batch,
            balanced=balanced,
            mean=mean,
            edge_weight=weight,
            directed=True,
        )

    inputs = [uniform(0, 10, 3), uniform(1, 3, 3), uniform(2, 10, 3)]
    assert torch.autograd.gradcheck(value, [t.requires_grad_() for t in inputs])


def data(weighted: bool = False) -> Data:
    found = Data(x=uniform(0, 8, 3), edge_index=GRAPH.edge_index, y=torch.zeros(8).long())
    found.directed = True
    if weighted:
        found.edge_weight = weights(GRAPH)
    return found


@pytest.mark.parametrize("weighted", [False, True])
def test_messages_pass_both_ways_and_the_likelihood_sees_one(weighted: bool) -> None:
    batch = single_graph(data(weighted))
    joined = torch.zeros(8, 8, dtype=torch.float64)
    source, target = GRAPH.edge_index
    joined[source, target] = weights(GRAPH) if weighted else 1.0
    both = ((joined + joined.T) > 0).T.nonzero().T.flip(0)
    assert batch.edges.edge_index.equal(both)
    assert batch.edges.arcs is not None
    there, back = (a.to(joined.dtype) for a in batch.edges.arcs.unbind(1))
    assert there.equal(joined[both[0], both[1]])
    assert back.equal(joined[both[1], both[0]])
    if weighted:
        assert batch.edges.weight is not None
        assert batch.edges.weight.equal(there + back)
    z, between = uniform(0, 8, 4), uniform(1, 4, 4)
    value = batch.edge_log_likelihood(z, z, between, "summed", directed=True)
    expected = dense(z, between, GRAPH, weights(GRAPH) if weighted else None)
    assert value.item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("learned", [False, True])
def test_a_linked_pair_is_split_by_the_links_there_are(learned: bool) -> None:
    edges, z, between = single_graph(data()).edges, uniform(0, 8, 4), uniform(1, 4, 4)
    partition = EdgePartitioner(2, num_communities=4 if learned else None, directed=True).double()
    grouping = partition.grouping()
    assignment = (
        torch.eye(2)[[0, 0, 1, 1]].double() if isinstance(grouping, int) else grouping.detach()
    )
    links = set(map(tuple, GRAPH.edge_index.t().tolist()))
    expected = []
    for i, j in edges.edge_index.t().tolist():
        rates = torch.zeros(2, dtype=torch.float64)
        for pair in ((i, j), (j, i)):
            if pair in links:
                a, b = z[pair[0]], z[pair[1]]
                flow = a[:, None] * between * b
                rates += (flow.sum(1) @ assignment + flow.sum(0) @ assignment) / 2
        expected.append(torch.softmax(rates, dim=0))
    torch.testing.assert_close(partition(z, between, edges), torch.stack(expected))


@pytest.mark.parametrize("interactions", ["diagonal", "matrix"])
def test_senders_and_receivers_alternate(interactions: str) -> None:
    model = VEPM(
        3, 2, num_communities=4, num_metacommunities=2, directed=True, interactions=interactions
    ).double()
    out = model(data().x, single_graph(data()).edges)
    assert out.z.shape == (8, 8)
    between = model.interactions
    assert between.shape == (8, 8)
    sends, receives = out.z[:, ::2], out.z[:, 1::2]
    rates = sends @ between[::2, 1::2] @ receives.T
    torch.testing.assert_close(rates, out.z @ between @ out.z.T)
    assert (between[1::2] == 0).all()
    assert model.activation.shape == (8,)
    assert (between[::2, 1::2].fill_diagonal_(0) > 0).any() == (interactions == "matrix")


def test_groups_of_senders_and_receivers_must_be_the_same() -> None:
    with pytest.raises(ValueError, match="multiple of num_metacommunities"):
        VEPM(3, 2, num_communities=5, num_metacommunities=2, directed=True)


def separation(directed: bool) -> float:
    """How well rates of ordered pairs tell links from the rest in a graph that flows one way."""
    block = torch.arange(3).repeat_interleave(20)
    chance = torch.rand(60, 60, generator=torch.Generator().manual_seed(0)).fill_diagonal_(1)
    density = torch.full((3, 3), 0.02)
    density[[0, 1, 2], [1, 2, 0]] = 0.4
    joined = chance < density[block][:, block]
    graph = Data(x=torch.eye(60), edge_index=joined.nonzero().T.contiguous(), y=block)
    graph.directed = True
    batch = single_graph(graph)
    torch.manual_seed(0)
    model = VEPM(
        60,
        1,
        num_communities=6,
        num_metacommunities=6,
        encoder_channels=32,
        directed=directed,
        feature_norm="none",
    )
    optimizer = torch.optim.Adam(model.encoder_parameters(), lr=0.01)
    for _ in range(150):
        optimizer.zero_grad()
        pretraining_loss(model, batch, Config().training).loss.backward()
        optimizer.step()
    with torch.no_grad():
        z = draw(model.eval().encode(batch.x, batch.edges), sample=False)
        between = model.interactions
        rate = z @ (between if between.dim() == 2 else torch.diag(between)) @ z.T
    pairs = ~torch.eye(60, dtype=torch.bool)
    return float(roc_auc_score(joined[pairs], rate[pairs]))


def test_directions_are_found_where_the_model_has_them() -> None:
    assert separation(directed=True) > 0.85 > 0.75 > separation(directed=False)


def test_what_cannot_take_directions_refuses_them() -> None:
    with pytest.raises(InputError, match="single graph"):
        GraphStore([data()])
    with pytest.raises(InputError, match="trained at once"):
        LargeGraph(data())
    estimated = Config().replace(likelihood="subsampled")
    with pytest.raises(InputError, match="directed links need the likelihood balanced"):
        ModelCard("node", 3, estimated, ("a", "b"), directed=True).build()


def test_a_model_of_a_directed_graph_has_directions() -> None:
    dataset = as_dataset(data(), directed=True)
    assert dataset.directed
    card = ModelCard.of(dataset, Config())
    assert card.directed
    assert ModelCard.read(card.description(), defaultdict(dict)).build().directed
    fitted = fit(dataset, Config().replace(pretrain_epochs=2, inputs="x", num_metacommunities=4))
    assert explain(fitted.model, fitted.source).memberships.shape == (8, 128)


def test_links_of_an_undirected_graph_run_both_ways() -> None:
    edges = Adjacency(*complete(3))
    assert edges.links is edges
