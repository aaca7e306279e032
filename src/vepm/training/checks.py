"""Signs that a training failed, each in words and with what to try next."""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch_geometric.nn import LabelPropagation

from vepm.nn import VEPM, draw, interactions
from vepm.scale.batches import GraphBatch, GraphStore, pieces
from vepm.scale.executor import Source
from vepm.scale.large import LargeGraph
from vepm.training.card import ModelCard
from vepm.training.config import SCALED
from vepm.training.prediction import scores
from vepm.training.state import Fitted

FEWEST_TO_CALIBRATE = 20
"""With fewer validation labels, the inverse temperature of probabilities says little."""


def signs_of_failure(fitted: Fitted, train: Tensor, val: Tensor) -> Iterator[str]:
    """What looks wrong with a trained model, one line each, given its labelled nodes or graphs.

    A large graph is not read once more for it: there, only validation labels are used.
    """
    card, source, rows = fitted.card, fitted.source, fitted.finetuned
    if train.numel() and val.numel() and rows:
        reached = fitted.best["val_accuracy"]
        yield from _against_simple_rules(source, train, val, reached, card)
        if fitted.best_epoch == 0 and len(rows) > 1:
            yield (
                f"none of {len(rows)} epochs was better than the first on validation labels; try "
                "a lower learning_rate or another seed"
            )
    if train.numel() and val.numel() < FEWEST_TO_CALIBRATE:
        few = f"{val.numel()} validation labels are too few" if val.numel() else "without labels"
        yield (
            f"{few} to validate on: the choice of epoch and the calibration of probabilities are "
            f"unreliable; label more, so that at least {FEWEST_TO_CALIBRATE} can validate"
        )
    if not isinstance(source, LargeGraph):
        yield from _collapses(fitted.model, card, source, labelled=train.numel() > 0)


def _against_simple_rules(
    source: Source, train: Tensor, val: Tensor, reached: float, card: ModelCard
) -> Iterator[str]:
    y = source.y.cpu()
    largest = float((y[val] == y[train].mode().values).double().mean())
    if reached <= largest < 1:
        yield (
            f"validation accuracy {reached:.1%} is not above that of always choosing the largest "
            f"class, {largest:.1%}; {_remedy(card)}"
        )
    if not isinstance(source, GraphBatch):
        return
    known = torch.zeros(y.numel(), len(card.class_names))
    known[train, y[train]] = 1
    spread = LabelPropagation(num_layers=50, alpha=0.9)(known, source.edges.edge_index.cpu())
    propagated = float((spread.argmax(1)[val] == y[val]).double().mean())
    if reached < propagated:
        yield (
            f"validation accuracy {reached:.1%} is below the {propagated:.1%} of label "
            f"propagation, which looks at edges alone; {_remedy(card)}"
        )


@torch.no_grad()
def _collapses(
    model: VEPM, card: ModelCard, source: GraphBatch | GraphStore, *, labelled: bool
) -> Iterator[str]:
    if labelled:
        predicted = scores(model, source).argmax(1)
        if predicted.numel() > 1 and (predicted == predicted[0]).all():
            name = card.class_names[int(predicted[0])]
            yield f"every {card.task} is predicted to be of class '{name}'; {_remedy(card)}"
    heads = card.config.model.num_metacommunities
    z = torch.cat([draw(model.encode(b.x, b.edges), sample=False) for b in pieces(source)])
    main = interactions(z, model.interactions, heads).argmax(1)
    if heads > 1 and main.numel() > 1 and (main == main[0]).all():
        yield (
            f"all nodes belong most to one of {heads} communities; try another seed, or other "
            "values of num_communities and num_metacommunities"
        )


def _remedy(card: ModelCard) -> str:
    if card.config.model.feature_norm not in SCALED:
        return 'try feature_norm = "auto", which brings features to one scale, or preset default'
    return "try another seed, more labels, more epochs or features that tell the classes apart"
