"""Measurements that are more than the accuracy of a method, by name."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean, median

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from vepm.baselines.nodes import GCN
from vepm.errors import InputError
from vepm.evaluation import RunResult
from vepm.measures import accuracy, calibration_error
from vepm.nn import VEPM
from vepm.paper.cells import Finding, Setting, finetune
from vepm.paper.communities import COMMUNITY_STUDIES
from vepm.paper.links import LINK_STUDIES
from vepm.scale.batches import GraphBatch, GraphStore, pieces
from vepm.scale.large import LargeGraph
from vepm.training import explain, pick_device, probabilities
from vepm.training.losses import bound_loss
from vepm.training.prediction import best_inverse_temperature, calibrate, seeded

Batches = GraphBatch | GraphStore
SAMPLES, QUICK_EPOCHS = 16, 2


def partition_use(setting: Setting) -> Finding:
    """How sharp the split is, what it is worth once trained, and what gradient comes through it.

    Accuracies are of the trained model with its edges split evenly, or with the shares of every
    edge given to another. ``split_gradient`` is the part through the split of the gradient of the
    labels in the affiliations, ``label_gradient`` the part of the labels in that of the encoder.
    """
    fitted, result = finetune(setting)
    model, source = fitted.model, fitted.source
    if isinstance(source, LargeGraph):
        raise InputError("this is measured on graphs that are trained at once; set batch_size = 0")
    numbers = _gradients(model, source, setting)
    numbers["partition_entropy"] = entropy(explain(model, source).edge_weight)
    changes: dict[str, Callable[[Tensor], Tensor]] = {
        "evened": lambda shares: torch.full_like(shares, 1 / shares.size(1)),
        "shuffled": lambda shares: shares[torch.randperm(len(shares), device=shares.device)],
    }
    for name, change in changes.items():
        numbers[f"{name}_accuracy"] = _accuracy_with(change, model, source, setting)
    return Finding(numbers, result=result)


def entropy(shares: Tensor) -> float:
    """Mean entropy of shares [E, K], as a part of the largest there can be."""
    bits = torch.special.entr(shares.double()).sum(1) / math.log(max(shares.size(1), 2))
    return float(bits.mean())


@torch.no_grad()
def _accuracy_with(
    change: Callable[[Tensor], Tensor], model: VEPM, source: Batches, setting: Setting
) -> float:
    """Accuracy on test data at the posterior mean, the shares of the edges changed."""
    model.eval()
    logits = []
    with seeded(model, setting.seed):
        for part in pieces(source):
            z = model.encode(part.x, part.edges).mean
            shares = change(model.split_edges(z, part.edges, part.batch))
            logits.append(_classify(model, part, z, shares))
    test = setting.split.test
    return accuracy(torch.cat(logits).cpu()[test], setting.dataset.labels[test])


def _classify(model: VEPM, batch: GraphBatch, z: Tensor, shares: Tensor) -> Tensor:
    given = (z, shares, batch.edges, batch.batch, batch.num_graphs)
    return model.classify(batch.x, *given).logits


def _gradients(model: VEPM, source: Batches, setting: Setting) -> dict[str, float]:
    """Parts of two gradients: the part through the split, and the part from the labels."""
    train, training = setting.split.train, setting.config.training
    if isinstance(source, GraphBatch):
        batch, rows = source, train.to(source.y.device)
    else:
        batch = source.select(train)
        rows = torch.arange(train.numel(), device=batch.y.device)
    model.eval()
    with seeded(model, setting.seed):
        z = model.encode(batch.x, batch.edges).mean.detach()
        ends, inputs = z.clone().requires_grad_(), z.clone().requires_grad_()
        shares = model.split_edges(ends, batch.edges, batch.batch)
        task = cross_entropy(_classify(model, batch, inputs, shares)[rows], batch.y[rows])
        terms = bound_loss(model, batch, rows, training)
    assert terms.task is not None
    assert terms.edges is not None
    assert terms.kl is not None
    rest = training.kl_weight * terms.kl - training.edge_term_weight * terms.edges
    encoder = model.encoder_parameters()
    return {
        "split_gradient": _part(_length(task, [ends]), _length(task, [inputs])),
        "label_gradient": _part(_length(terms.task, encoder), _length(rest, encoder)),
    }


def _length(value: Tensor, of: Sequence[Tensor]) -> float:
    found = torch.autograd.grad(value, of, retain_graph=True, materialize_grads=True)
    return math.hypot(*(float(part.norm()) for part in found))


def _part(one: float, other: float) -> float:
    return one / (one + other) if one + other else 0.0


def statistics(setting: Setting) -> Finding:
    """Number of graphs and classes, width of the features, mean nodes and edges of a graph."""
    dataset, graphs = setting.dataset, setting.dataset.graphs
    return Finding(
        {
            "graphs": float(len(graphs)),
            "nodes": fmean(graph.x.size(0) for graph in graphs),
            "edges": fmean(graph.edge_index.size(1) / 2 for graph in graphs),
            "features": float(dataset.num_features),
            "classes": float(dataset.num_classes),
        }
    )


def timing(setting: Setting) -> Finding:
    """Accuracy, and the median duration of an epoch of pretraining."""
    fitted, result = finetune(setting)
    seconds = (row["seconds"] for row in fitted.history if row["phase"] == "pretrain")
    return Finding({"seconds_per_epoch": median(seconds)}, result=result)


def calibration(setting: Setting) -> Finding:
    """VEPM's calibration on test nodes, by posterior mean and draws, each fitted on validation."""
    fitted, result = finetune(setting)
    test, y = setting.split.test, setting.graph.y[setting.split.test]
    numbers = {}
    for name, draws in (("calibration_error", 0), ("sampled_calibration_error", SAMPLES)):
        calibrate(fitted.model, fitted.source, setting.split.val, draws, setting.seed)
        found = probabilities(fitted.model, fitted.source, draws, setting.seed).cpu()
        numbers[name] = calibration_error(found[test], y)
    return Finding(numbers, result=result)


def gcn_calibration(setting: Setting) -> Finding:
    """GCN's calibration on test nodes at the epoch chosen on validation: as trained, and fitted."""
    gcn = GCN(device=str(pick_device(setting.device)))
    if setting.quick:
        gcn = replace(gcn, epochs=QUICK_EPOCHS)
    split, y = setting.split, setting.dataset.labels
    with torch.random.fork_rng():
        torch.manual_seed(setting.seed)
        curve, scores = gcn.fit(setting.dataset, split, setting.seed)
    named = ("gcn", setting.dataset.name, split.name, setting.seed)
    result = RunResult.from_curve(*named, curve, settings=gcn.settings())
    sharpness = best_inverse_temperature(scores["val"].cpu()[None], y[split.val])
    numbers = {
        name: calibration_error(torch.softmax(factor * scores["test"].cpu(), 1), y[split.test])
        for name, factor in (("calibration_error", 1.0), ("fitted_calibration_error", sharpness))
    }
    return Finding(numbers, result=result)


STUDIES: dict[str, Callable[[Setting], Finding]] = {
    "statistics": statistics,
    "timing": timing,
    "calibration": calibration,
    "gcn_calibration": gcn_calibration,
    "partition_use": partition_use,
    **COMMUNITY_STUDIES,
    **LINK_STUDIES,
}
TRAINED = frozenset({"vepm", "timing", "communities", "confusion"})  # the paper's, of VEPM
WHOLE = frozenset({"statistics"})  # studies so cheap that quick runs do not shrink their data
