"""The four boxes wired together: what the model equals, and what it survives."""

import math
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch.distributions import Gamma, kl_divergence
from torch.func import functional_call
from torch_geometric.data import Batch, Data

from strategies import (
    GraphBatch,
    complete,
    join,
    no_edges,
    path,
    random_graph,
    scramble,
    undirected,
    uniform,
)
from vepm import VEPM
from vepm.nn.partitioner import PARTITIONS
from vepm.objective import edge_log_likelihood

GRAPH = random_graph(7)


def small(**options: Any) -> VEPM:
    """A small model in double precision, evaluation mode, with unremarkable weights."""
    sizes = {"num_communities": 7, "num_metacommunities": 3, "hidden_channels": 6}
    model = VEPM(4, 2, encoder_channels=5, **{**sizes, **options}).double().eval()
    scramble(model)
    return model


@pytest.mark.parametrize("normalize", ["community", "graph"])
def test_one_community_is_a_two_layer_gcn(normalize: str) -> None:
    model = small(
        num_communities=1,
        num_metacommunities=1,
        inputs="x",
        normalize=normalize,
        feature_norm="none",
    )
    first, second = pyg.GCNConv(4, 6).double(), pyg.GCNConv(6, 2).double()
    state = model.state_dict()
    for layer, name in (first, "bank.layers.0"), (second, "composer.layers.0"):
        weight, bias = state[f"{name}.linear.weight"][0].t(), state[f"{name}.bias"][0]
        layer.load_state_dict({"lin.weight": weight, "bias": bias})
    x = uniform(0, 7, 4, low=-1)
    expected = second(torch.relu(first(x, GRAPH.edge_index)), GRAPH.edge_index)
    torch.testing.assert_close(model(x, GRAPH.edge_index).logits, expected)


@pytest.mark.parametrize("inputs", ["x", "z", "both"])
@pytest.mark.parametrize("partition", PARTITIONS[:3])
@pytest.mark.parametrize("conv", ["gcn", "gin"])
def test_a_batch_gives_what_each_graph_gives_alone(conv: str, partition: str, inputs: str) -> None:
    model = small(task="graph", conv=conv, partition=partition, inputs=inputs, temperature=5.0)
    graphs = [path(4), no_edges(1), complete(3), no_edges(2), random_graph(6)]
    data = [Data(uniform(i, g.num_nodes, 4), g.edge_index) for i, g in enumerate(graphs)]
    batch = Batch.from_data_list(data)
    together = model(batch.x, batch.edge_index, batch.batch)
    alone = [model(one.x, one.edge_index) for one in data]
    torch.testing.assert_close(together.logits, torch.cat([one.logits for one in alone]))
    torch.testing.assert_close(together.edge_weight, torch.cat([one.edge_weight for one in alone]))
    torch.testing.assert_close(together.embeddings, torch.cat([one.embeddings for one in alone]))


def test_a_batch_may_end_in_empty_graphs() -> None:
    model, batch = small(task="graph", conv="gin"), join([path(3), no_edges(0)])
    logits = model(uniform(0, 3, 4), batch.edge_index, batch.batch, num_graphs=2).logits
    assert logits.shape == (2, 2)
    assert logits.isfinite().all()


PARAMETERS = [
    "activation_logit",
    "encoder.layers.0.linear.weight",
    "encoder.layers.1.bias",
    "bank.layers.0.linear.weight",
    "composer.layers.0.bias",
]


@pytest.mark.parametrize("normalize", ["none", "graph", "community", "neighbours"])
@pytest.mark.parametrize("task", ["node", "graph"])
def test_gradients_of_the_whole_model_match_finite_differences(task: str, normalize: str) -> None:
    conv = "gcn" if task == "node" else "gin"
    model = small(task=task, conv=conv, normalize=normalize)
    batch = join([path(3), no_edges(1), complete(3)])
    x = uniform(0, 7, 4)
    names = [n.replace("linear", "first" if conv == "gin" else "linear") for n in PARAMETERS]
    values = [model.get_parameter(name) for name in names]

    def logits(*values: Tensor) -> Tensor:
        given = dict(zip(names, values, strict=True))
        output = functional_call(model, given, (x, batch.edge_index, batch.batch))
        result: Tensor = output.logits
        return result

    assert torch.autograd.gradcheck(logits, values, fast_mode=True)
    assert all(grad.ne(0).any() for grad in torch.autograd.grad(logits(*values).sum(), values))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("conv", ["gcn", "gin"])
@pytest.mark.parametrize("task", ["node", "graph"])
@pytest.mark.parametrize(
    "batch",
    [
        join([no_edges(1)]),
        join([no_edges(4)]),
        join([undirected([(0, 1)], 4)]),
        join([no_edges(1), path(3), no_edges(2)]),
    ],
    ids=["one node", "no edges", "isolated nodes", "mixed batch"],
)
def test_sparse_corners_stay_finite(
    batch: GraphBatch, task: str, conv: str, training: bool
) -> None:
    torch.manual_seed(0)
    sizes = {"num_communities": 4, "num_metacommunities": 2, "hidden_channels": 4}
    model = VEPM(4, 2, task=task, conv=conv, **sizes).train(training)  # type: ignore[arg-type]
    # A node may have no features at all.
    x = torch.rand(batch.batch.numel(), 4).index_fill(0, torch.tensor([0]), 0.0)
    out = model(x, batch.edge_index, batch.batch)
    edges = edge_log_likelihood(out.z, model.activation, batch.edge_index, batch.batch)
    kl = kl_divergence(out.posterior, Gamma(1.0, 1.0)).sum()
    loss = out.logits.square().sum() - edges.sum() + kl
    loss.backward()
    assert loss.isfinite()
    assert out.logits.shape == (len(batch.graphs) if task == "graph" else len(x), 2)
    reached = [p.grad for p in model.parameters() if p.grad is not None]
    assert len(reached) == len(list(model.parameters()))
    assert all(grad.isfinite().all() for grad in reached)


@pytest.mark.parametrize("partition", PARTITIONS[:3])
@pytest.mark.parametrize("task", ["node", "graph"])
def test_no_nodes_give_no_predictions(task: str, partition: str) -> None:
    model, empty = small(task=task, conv="gin", partition=partition).train(), join([])
    logits = model(uniform(0, 0, 4), empty.edge_index, empty.batch).logits
    logits.sum().backward()
    assert logits.shape == (0, 2)


def test_draws_in_training_and_means_in_evaluation_unless_told() -> None:
    torch.manual_seed(0)
    model, x = small(dropout=0.0), uniform(0, 7, 4)

    def z(**kwargs: bool) -> Tensor:
        affiliations: Tensor = model(x, GRAPH.edge_index, **kwargs).z
        return affiliations

    assert z().equal(model(x, GRAPH.edge_index).posterior.mean)
    assert not z(sample=True).equal(z(sample=True))
    model.train()
    assert not z().equal(z())
    assert z(sample=False).equal(z(sample=False))


def test_activations_start_at_one_and_stay_positive() -> None:
    model = VEPM(4, 2)
    torch.testing.assert_close(model.activation, torch.ones(64))
    with torch.no_grad():
        model.activation_logit.fill_(-50)
    assert (model.activation > 0).all()


def test_encoder_and_predictor_share_out_all_parameters() -> None:
    model = small()
    phi, theta = model.encoder_parameters(), model.predictor_parameters()
    assert {id(p) for p in phi} | {id(p) for p in theta} == {id(p) for p in model.parameters()}
    assert len(phi) + len(theta) == len(list(model.parameters()))


def held(module: nn.Module) -> dict[str, set[str]]:
    return {name: set(vars(part)) for name, part in module.named_modules()}


@pytest.mark.parametrize("task", ["node", "graph"])
def test_a_forward_pass_leaves_nothing_on_the_model(task: str) -> None:
    model = small(task=task).train()
    before = held(model)
    for graph in GRAPH, path(3):
        model(uniform(0, graph.num_nodes, 4), graph.edge_index)
    assert held(model) == before
    assert not [value for value in vars(model).values() if isinstance(value, Tensor)]


def test_a_forward_pass_runs_the_four_boxes_in_turn() -> None:
    model, x = small(), uniform(0, 7, 4)
    posterior = model.encode(x, GRAPH.edge_index)
    edge_weight = model.split_edges(posterior.mean, GRAPH.edge_index)
    prediction = model.classify(x, posterior.mean, edge_weight, GRAPH.edge_index)
    out = model(x, GRAPH.edge_index)
    assert prediction.logits.equal(out.logits)
    assert edge_weight.equal(out.edge_weight)
    assert prediction.community_embeddings.equal(out.community_embeddings)
    assert out.community_embeddings.shape == (7, 3, 2)
    assert math.isclose(out.edge_weight.sum().item(), GRAPH.edge_index.size(1))
