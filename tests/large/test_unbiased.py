"""What batches of clusters say is, on average, what the whole graph says; gradients too."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import grad

from large.fixed import COMMUNITIES, NODES, TRAIN, Tabled, cut, numbered_graph
from vepm.kernels.features import dense
from vepm.objective import Terms
from vepm.scale.batches import GraphBatch, single_graph
from vepm.scale.ddp import ProcessGroup
from vepm.scale.large import ClusterBatch, Clusters, weight_of_cut_edges
from vepm.training import Config
from vepm.training.losses import Held, bound_loss, predictor_loss, pretraining_loss

Loss = Callable[[Any, GraphBatch, Tensor], Terms]


def numbers(batch: GraphBatch) -> Tensor:
    return dense(batch.x)[:, 0].long()


def pretrain(config: Config) -> Loss:
    return lambda model, batch, rows: pretraining_loss(model, batch, config.training)


def bound(config: Config) -> Loss:
    return lambda model, batch, rows: bound_loss(model, batch, rows, config.training)


def predict(config: Config) -> Loss:
    nothing = Held(torch.zeros(0), torch.zeros(0))
    return lambda model, batch, rows: predictor_loss(model, batch, rows, nothing, config.training)


def epochs(clusters: Clusters) -> Iterator[list[tuple[GraphBatch, Tensor]]]:
    """Every way in which clusters can meet in the batches of an epoch, all equally likely."""
    seen = set()
    for order in itertools.permutations(range(clusters.count)):
        groups = torch.tensor(order).tensor_split(clusters.steps)
        company = tuple(frozenset(group.tolist()) for group in groups)
        if company in seen:
            continue
        seen.add(company)
        weight = weight_of_cut_edges(groups)
        yield [clusters.join(group, weight) for group in groups]


def renewed(batch: GraphBatch, mean: Tensor) -> Tensor:
    """The total over all nodes, with the means of a batch brought up to date."""
    assert isinstance(batch, ClusterBatch)
    return batch.whole.renew_totals(batch.cluster, mean)


def mean_over_epochs(loss: Loss, model: Tabled, clusters: Clusters) -> tuple[Tensor, list[Tensor]]:
    """Mean of the loss and of its gradients over all epochs there can be."""
    for batch, _ in next(epochs(clusters)):
        # The first epoch does not know the clusters still to come.
        renewed(batch, model.encode(dense(batch.x), batch.edges).mean.detach())
    found = [loss(model, batch, rows).loss for epoch in epochs(clusters) for batch, rows in epoch]
    value = torch.stack(found).mean()
    return value, differentiate(value, model)


def differentiate(value: Tensor, model: Tabled) -> list[Tensor]:
    parameters = list(model.parameters())
    found = grad(value, parameters, allow_unused=True, materialize_grads=True)
    return list(found)


@pytest.mark.parametrize("joined", [2, 3])
@pytest.mark.parametrize("balanced", [True, False])
@pytest.mark.parametrize(
    ("kind", "matrix"), [(pretrain, False), (pretrain, True), (bound, False), (predict, False)]
)
def test_loss_and_gradients_are_those_of_the_whole_graph(
    kind: Callable[[Config], Loss], matrix: bool, balanced: bool, joined: int
) -> None:
    config = Config().replace(
        sampling=False,
        likelihood="balanced" if balanced else "summed",
        kl_weight=0.7,
        passes=2,
        consistency_weight=0.5,
    )
    graph, model, loss = numbered_graph(), Tabled(matrix), kind(config)
    clusters = cut(graph, joined)
    assert clusters.count == 5
    assert clusters.steps == -(-5 // joined)
    whole = loss(model, single_graph(graph), TRAIN).loss
    value, gradients = mean_over_epochs(loss, model, clusters)
    torch.testing.assert_close(value, whole, rtol=1e-10, atol=1e-10)
    for found, expected in zip(gradients, differentiate(whole, model), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def test_all_but_the_edges_is_exact_in_every_epoch() -> None:
    """Which clusters meet matters for the edges between them and for nothing else."""
    config = Config().replace(sampling=False)
    graph, model = numbered_graph(), Tabled()
    whole = bound(config)(model, single_graph(graph), TRAIN)
    clusters = cut(graph, 2)
    for epoch in itertools.islice(epochs(clusters), 10):
        terms = [bound(config)(model, batch, rows) for batch, rows in epoch]
        for name in ("task", "kl"):
            mean = torch.stack([getattr(t, name) for t in terms]).mean()
            torch.testing.assert_close(mean, getattr(whole, name), rtol=1e-10, atol=1e-10)


def test_totals_hold_the_last_of_every_cluster() -> None:
    clusters = cut(numbered_graph(), 2)
    mean = torch.rand(NODES, COMMUNITIES, dtype=torch.double)
    (first, _), *others = next(epochs(clusters))
    rows = numbers(first)
    guess = renewed(first, mean[rows])
    # Of what is not known yet, as much per node as of what is.
    torch.testing.assert_close(guess, mean[rows].sum(0) * (NODES / rows.numel()))
    for batch, _ in others:
        total = renewed(batch, mean[numbers(batch)])
    torch.testing.assert_close(total, mean.sum(0), rtol=1e-12, atol=0)
    mean[rows] += 1
    total = renewed(first, mean[rows])
    torch.testing.assert_close(total, mean.sum(0), rtol=1e-12, atol=0)


def test_an_epoch_has_every_node_and_label_once() -> None:
    clusters = cut(numbered_graph(), 2)
    torch.manual_seed(0)
    batches = list(clusters.epoch())
    nodes = torch.cat([numbers(batch) for batch, _ in batches])
    assert nodes.sort().values.tolist() == list(range(NODES))
    labelled = torch.cat([numbers(batch)[rows] for batch, rows in batches])
    assert labelled.sort().values.tolist() == TRAIN.tolist()


def test_processes_share_an_epoch_without_overlap() -> None:
    seen = []
    for rank in range(2):
        clusters = cut(numbered_graph(), 2, ProcessGroup(rank, 2))
        torch.manual_seed(0)
        batches = list(clusters.epoch())
        assert len(batches) == clusters.steps
        seen += [int(node) for batch, _ in batches for node in numbers(batch)]
    assert sorted(seen) == list(range(NODES))
