"""Whether a trained model makes use of the way its edges are split."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from vepm.errors import InputError
from vepm.nn import VEPM
from vepm.paper.findings import Finding, Setting, finetune
from vepm.runs.metrics import accuracy
from vepm.scale.batches import GraphBatch, GraphStore
from vepm.scale.large import LargeGraph
from vepm.training import explain
from vepm.training.losses import bound_loss
from vepm.training.prediction import pieces, seeded


def partition_use(setting: Setting) -> Finding:
    """How sharp the split is, what it is worth once trained, and what gradient comes through it.

    - ``partition_entropy``: mean entropy of the shares of an edge; 1 is an even split, 0 a hard
      one.
    - ``evened_accuracy``: of the trained model on test data, its edges split evenly after all.
    - ``shuffled_accuracy``: the same with the shares of every edge given to another.
    - ``split_gradient``: of the gradient of the labels that reaches the affiliations, the part
      that comes through the split; the rest comes through the bank's input.
    - ``label_gradient``: of the gradient that reaches the encoder, the part that comes from the
      labels; the rest comes from edges and divergence.
    """
    fitted, result = finetune(setting)
    model, source = fitted.model, fitted.source
    if isinstance(source, LargeGraph):
        raise InputError("this is measured on graphs that are trained at once; set batch_size = 0")
    split, label = _gradients(model, source, setting)
    numbers = {
        "partition_entropy": entropy(explain(model, source).edge_weight),
        "evened_accuracy": _accuracy_with(_evened, model, source, setting),
        "shuffled_accuracy": _accuracy_with(_shuffled, model, source, setting),
        "split_gradient": split,
        "label_gradient": label,
    }
    return Finding(numbers, result=result)


def entropy(shares: Tensor) -> float:
    """Mean entropy of shares [E, K], as a part of the largest there can be.

    Example:
        >>> entropy(torch.tensor([[0.5, 0.5], [1.0, 0.0]]))
        0.5
    """
    bits = torch.special.entr(shares.double()).sum(1) / math.log(max(shares.size(1), 2))
    return float(bits.mean())


def _evened(shares: Tensor) -> Tensor:
    return torch.full_like(shares, 1 / shares.size(1))


def _shuffled(shares: Tensor) -> Tensor:
    return shares[torch.randperm(len(shares), device=shares.device)]


@torch.no_grad()
def _accuracy_with(
    change: Callable[[Tensor], Tensor],
    model: VEPM,
    source: GraphBatch | GraphStore,
    setting: Setting,
) -> float:
    """Accuracy on test data at the posterior mean, the shares of the edges changed."""
    model.eval()
    logits = []
    with seeded(model, setting.seed):
        for part in pieces(source):
            z = model.encode(part.x, part.edges).mean
            shares = change(model.split_edges(z, part.edges, part.batch))
            found = model.classify(part.x, z, shares, part.edges, part.batch, part.num_graphs)
            logits.append(found.logits)
    test = setting.split.test
    return accuracy(torch.cat(logits).cpu()[test], setting.dataset.labels[test])


def _gradients(
    model: VEPM, source: GraphBatch | GraphStore, setting: Setting
) -> tuple[float, float]:
    """The parts of two gradients: through the split, and from the labels."""
    train, training = setting.split.train, setting.config.training
    if isinstance(source, GraphBatch):
        batch, rows = source, train
    else:
        batch, rows = source.select(train), torch.arange(train.numel())
    rows = rows.to(batch.y.device)
    model.eval()
    with seeded(model, setting.seed):
        z = model.encode(batch.x, batch.edges).mean.detach()
        ends, inputs = z.clone().requires_grad_(), z.clone().requires_grad_()
        shares = model.split_edges(ends, batch.edges, batch.batch)
        found = model.classify(batch.x, inputs, shares, batch.edges, batch.batch, batch.num_graphs)
        task = torch.nn.functional.cross_entropy(found.logits[rows], batch.y[rows])
        terms = bound_loss(model, batch, rows, training)
    assert terms.task is not None
    assert terms.edges is not None
    assert terms.kl is not None
    rest = training.kl_weight * terms.kl - training.edge_term_weight * terms.edges
    encoder = model.encoder_parameters()
    return (
        _part(_length(task, [ends]), _length(task, [inputs])),
        _part(_length(terms.task, encoder), _length(rest, encoder)),
    )


def _length(value: Tensor, of: Sequence[Tensor]) -> float:
    found = torch.autograd.grad(value, of, retain_graph=True, materialize_grads=True)
    return math.hypot(*(float(part.norm()) for part in found))


def _part(one: float, other: float) -> float:
    return one / (one + other) if one + other else 0.0
