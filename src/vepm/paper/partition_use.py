"""What a trained model makes of the split of its edges."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from vepm.errors import InputError
from vepm.measures import accuracy
from vepm.nn import VEPM
from vepm.paper.cells import Finding, Setting, finetune
from vepm.scale.batches import GraphBatch, GraphStore, pieces
from vepm.scale.large import LargeGraph
from vepm.training import explain
from vepm.training.losses import bound_loss
from vepm.training.prediction import seeded

Batches = GraphBatch | GraphStore


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
    """Of two gradients, the part through the split and the part from the labels."""
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
