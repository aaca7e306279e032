"""A trained model with its history, and signs that its training failed."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch_geometric.nn import LabelPropagation

from vepm.nn import VEPM, draw, interactions
from vepm.scale.batches import GraphBatch, pieces
from vepm.scale.executor import Row, Source
from vepm.scale.large import LargeGraph
from vepm.training.card import ModelCard
from vepm.training.config import SCALED
from vepm.training.prediction import scores

FEWEST_TO_CALIBRATE = 20  # validation labels; from fewer, an inverse temperature says little


@dataclass(frozen=True, eq=False)
class Fitted:
    """A trained model and its history."""

    model: VEPM
    card: ModelCard
    source: Source
    history: list[Row]
    best_epoch: int
    warnings: tuple[str, ...] = ()
    """Signs that the training failed, with what to try next; none if it was not calibrated."""
    tried: dict[str, float] = field(default_factory=dict)
    """Validation accuracy of what was tried, by name; the first is this model's."""
    spent: tuple[int, float] = (0, 0.0)
    """Epochs and seconds of finetuning spent on the models that were not kept."""

    @property
    def best(self) -> Row:
        """History row of the epoch whose weights were kept; empty without finetuning."""
        return self.finetuned[self.best_epoch] if self.finetuned else {}

    @property
    def finetuned(self) -> list[Row]:
        """History rows of finetuning."""
        return [row for row in self.history if row["phase"] == "finetune"]


@torch.no_grad()
def signs_of_failure(fitted: Fitted, train: Tensor, val: Tensor) -> Iterator[str]:
    """What looks wrong with a trained model, one line each, given its labelled nodes or graphs."""
    model, card, source, rows = fitted.model, fitted.card, fitted.source, fitted.finetuned
    if train.numel() and val.numel() and rows:
        reached, y, better = fitted.best["val_accuracy"], source.y.cpu(), dict[str, float]()
        largest = float((y[val] == y[train].mode().values).double().mean())
        if reached <= largest < 1:
            better["always choosing the largest class"] = largest
        if isinstance(source, GraphBatch):
            edges, propagate = source.edges.edge_index.cpu(), LabelPropagation(50, alpha=0.9)
            spread = propagate(y.clamp_min(0), edges, mask=train).argmax(1)
            propagated = float((spread[val] == y[val]).double().mean())
            if reached < propagated:
                better["label propagation, which looks at edges alone"] = propagated
        for rule, accuracy in better.items():
            yield (
                f"validation accuracy {reached:.1%} is not above the {accuracy:.1%} of {rule}; "
                f"{_remedy(card)}"
            )
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
    if isinstance(source, LargeGraph):
        return
    predicted = scores(model, source).argmax(1) if train.numel() else train
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
