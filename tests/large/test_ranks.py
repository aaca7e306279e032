"""Two processes give the gradient of one that holds both their batches."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.multiprocessing.spawn import spawn

from training.toys import SMALL, roles, toy
from vepm.kernels.features import dense
from vepm.nn import VEPM, Adjacency
from vepm.objective import Terms
from vepm.scale.batches import GraphBatch, GraphStore
from vepm.scale.ddp import ProcessGroup
from vepm.scale.executor import descend, share_of
from vepm.scale.large import ClusterBatch, Clusters, LargeGraph
from vepm.scale.norms import SyncNorm, replace_norms
from vepm.training import Config, ModelCard
from vepm.training.losses import bound_loss, hold, predictor_loss, pretraining_loss

RANKS = 2
STEPS = ("pretrain", "predictor", "encoder", "both")
Case = tuple[GraphBatch, Tensor]


def settings(task: str, **changes: Any) -> Config:
    """No draws: they differ between processes, as they should."""
    return SMALL[task].replace(
        sampling=False, dropout=0.0, passes=2, consistency_weight=0.5, bank_layers=2, **changes
    )


def build(task: str, config: Config) -> VEPM:
    data = toy(task)
    torch.manual_seed(0)
    card = ModelCard(task, data.num_features, config, data.class_names)
    return card.build().double().train()


def moving(model: VEPM, step: str) -> list[torch.nn.Parameter]:
    phi, theta = model.encoder_parameters(), model.predictor_parameters()
    return {"predictor": theta, "both": phi + theta}.get(step, phi)


def loss_of(step: str, config: Config) -> Callable[[VEPM, GraphBatch, Tensor], Terms]:
    def compute(model: VEPM, batch: GraphBatch, rows: Tensor) -> Terms:
        if step == "pretrain":
            return pretraining_loss(model, batch, config.training)
        if step == "predictor":
            held = hold(model, batch, config.training)
            return predictor_loss(model, batch, rows, held, config.training)
        return bound_loss(model, batch, rows, config.training)

    return compute


def store() -> GraphStore:
    found = GraphStore(toy("graph").graphs)
    found.x = found.x.double()
    return found


def graphs(chosen: list[int]) -> Callable[[Config, ProcessGroup], Case]:
    """A share of these graphs; alone, all of them."""

    def share(config: Config, group: ProcessGroup) -> Case:
        batch = share_of(store(), torch.tensor(chosen), group)
        return batch, torch.arange(batch.num_graphs)

    return share


def clusters(config: Config, group: ProcessGroup) -> Case:
    """A group of clusters for each of two processes; alone, both side by side."""
    graph = toy("node").graphs[0].clone()
    graph.x = graph.x.double()
    cut = Clusters(
        LargeGraph(graph),
        roles("node")[0],
        num_communities=config.model.num_communities,
        batch_size=config.training.batch_size,
        group=ProcessGroup(0, RANKS),
        seed=0,
        joined=2,
    )
    parts = torch.arange(cut.count).tensor_split(cut.steps * RANKS)
    cut.group = group
    if not group.alone:
        return cut.join(parts[group.rank], 1.7)
    return _side_by_side([cut.join(part, 1.7) for part in parts[:RANKS]])


def _side_by_side(cases: list[Case]) -> Case:
    batches = [batch for batch, _ in cases]
    parts = [batch for batch in batches if isinstance(batch, ClusterBatch)]
    nodes = [dense(batch.x).size(0) for batch in batches]
    starts = [sum(nodes[:i]) for i in range(RANKS)]
    edges = [b.edges.edge_index + start for b, start in zip(batches, starts, strict=True)]
    joined = ClusterBatch(
        torch.cat([dense(batch.x) for batch in batches]),
        Adjacency(torch.cat(edges, dim=1), sum(nodes)),
        torch.cat([batch.y for batch in batches]),
        counts=batches[0].counts,
        whole=parts[0].whole,
        cluster=torch.cat([part.cluster for part in parts]),
        edge_weight=torch.cat([part.edge_weight for part in parts]),
    )
    rows = [rows + start for (_, rows), start in zip(cases, starts, strict=True)]
    return joined, torch.cat(rows)


CASES: dict[str, tuple[str, Callable[[Config, ProcessGroup], Case], dict[str, Any]]] = {
    "graphs": ("graph", graphs([4, 0, 6, 9, 1, 3, 11]), {"composer_layers": 2}),
    "sums": ("graph", graphs([4, 0, 6, 9, 1, 3, 11]), {"likelihood": "summed"}),
    "fewer graphs than processes": ("graph", graphs([2]), {}),
    "clusters": ("node", clusters, {"batch_size": 20}),
    "clusters with sums": (
        "node",
        clusters,
        {"batch_size": 20, "likelihood": "summed", "conv": "gin"},
    ),
}


def gradients(model: VEPM) -> dict[str, Tensor]:
    named = model.named_parameters()
    return {name: p.grad for name, p in named if p.grad is not None}


def of_one(name: str, step: str) -> tuple[dict[str, Tensor], dict[str, Tensor], Terms]:
    """Gradients, running statistics and terms of one process that holds all."""
    task, share, changes = CASES[name]
    config = settings(task, **changes)
    model = build(task, config)
    batch, rows = share(config, ProcessGroup())
    terms = loss_of(step, config)(model, batch, rows)
    parameters = moving(model, step)
    found = torch.autograd.grad(terms.loss, parameters, allow_unused=True)
    for parameter, gradient in zip(parameters, found, strict=True):
        parameter.grad = gradient
    return gradients(model), dict(model.named_buffers()), terms


def one_of_two(rank: int, folder: str) -> None:
    """A process that shares every case with another and compares with one that holds all."""
    dist.init_process_group("gloo", f"file://{folder}/meeting", rank=rank, world_size=RANKS)
    group = ProcessGroup(rank, RANKS)
    for name, (task, share, changes) in CASES.items():
        for step in STEPS:
            config = settings(task, **changes)
            model = build(task, config)
            batch, rows = share(config, group)
            replace_norms(model, lambda norm: SyncNorm(norm, group))
            still = torch.optim.SGD(moving(model, step), lr=0.0)
            terms = loss_of(step, config)(model, batch, rows)
            descend(terms.loss, [still], group)
            expected, statistics, whole = of_one(name, step)
            _same(gradients(model), expected, f"{name}, {step}")
            _same(dict(model.named_buffers()), statistics, f"{name}, {step}")
            loss = group.sum(terms.loss.detach().clone())
            torch.testing.assert_close(loss, whole.loss.detach(), rtol=1e-10, atol=1e-10)
    Path(folder, f"done-{rank}").touch()
    dist.destroy_process_group()


def _same(found: dict[str, Tensor], expected: dict[str, Tensor], what: str) -> None:
    assert found.keys() == expected.keys(), what
    for name, value in expected.items():
        close = torch.allclose(found[name], value, rtol=1e-10, atol=1e-10)
        assert close, f"{what}, {name}: {found[name]} is not {value}"


def test_two_processes_give_the_gradient_of_one(tmp_path: Path) -> None:
    spawn(one_of_two, (str(tmp_path),), nprocs=RANKS)
    assert sorted(path.name for path in tmp_path.glob("done-*")) == ["done-0", "done-1"]


@pytest.mark.parametrize("name", CASES)
def test_every_case_has_gradients_to_compare(name: str) -> None:
    for step in STEPS:
        found, _, _ = of_one(name, step)
        assert any(bool(gradient.abs().max() > 1e-6) for gradient in found.values())
