"""Which communities argued for a label: what the model itself says when one has no say."""

from typing import NamedTuple

import torch
from torch import Tensor

from vepm.nn import VEPM
from vepm.scale.batches import GraphBatch, GraphStore
from vepm.training.prediction import pieces, seeded


class Attribution(NamedTuple):
    """A label's log-odds with all communities and without each, at the posterior mean."""

    log_odds: Tensor
    """Of each node's or graph's label [n]."""
    log_odds_without: Tensor
    """The same with one metacommunity at a time having no say [n, K]."""
    label_without: Tensor
    """The label each would get then [n, K]."""


@torch.no_grad()
def attribute(model: VEPM, source: GraphBatch | GraphStore, labels: Tensor) -> Attribution:
    r"""How much each metacommunity does for a label.

    .. math:: \log \frac{p(y)}{1 - p(y)} - \log \frac{p_{-k}(y)}{1 - p_{-k}(y)}

    is the support of metacommunity k for label y, where :math:`p_{-k}` is the model's own
    probability when what k knows of each node gives way to what it knows on average, over the
    nodes that go through the model together.

    Args:
        model: The model.
        source: A graph, or a store of graphs.
        labels: The class of each node or graph that is asked about [n].
    """
    model.eval()
    parts, start = [], 0
    for batch in pieces(source):
        parts.append(_of_batch(model, batch, labels[start:]))
        start += parts[-1].log_odds.numel()
    return Attribution(*(torch.cat(column) for column in zip(*parts, strict=True)))


def _of_batch(model: VEPM, b: GraphBatch, labels: Tensor) -> Attribution:
    with seeded(model):
        whole = model(b.x, b.edges, b.batch, b.num_graphs)
    label = labels[: whole.logits.size(0)]
    # Seeded anew: random features are the same with and without a community.
    with seeded(model):
        rest = model.classify_without_each(
            b.x, whole.z, whole.edge_weight, b.edges, b.batch, b.num_graphs
        )
        found = [(_log_odds(scores, label), scores.argmax(1)) for scores in rest]
    odds, turned = zip(*found, strict=True)
    return Attribution(
        _log_odds(whole.logits, label), torch.stack(odds, dim=1), torch.stack(turned, dim=1)
    )


def _log_odds(scores: Tensor, label: Tensor) -> Tensor:
    chosen = label[:, None]
    others = scores.scatter(1, chosen, -torch.inf)
    return scores.gather(1, chosen)[:, 0] - torch.logsumexp(others, dim=1)
