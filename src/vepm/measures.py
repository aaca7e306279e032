"""Measures of predictions, groupings of nodes, and parts of the edges."""

from typing import Any

import numpy as np
import torch
from sklearn.metrics import (
    f1_score,
    normalized_mutual_info_score,
    precision_recall_fscore_support,
    roc_auc_score,
)
from torch import Tensor

from vepm.data import Dataset
from vepm.data.canonical import canonical_kinds
from vepm.nn import VEPM

RANKED_EDGES = 200_000  # edges, evenly spaced, by which shares are ranked against kinds
FEWEST_JOINED = 50  # edges between training nodes below which their homophily is mostly chance


def accuracy(probabilities: Tensor, y: Tensor) -> float:
    """Share of labels [n] that equal the most probable class of [n, classes]."""
    return float((probabilities.argmax(1) == y).double().mean())


def class_measures(probabilities: Tensor, y: Tensor) -> dict[str, Any]:
    """Measures other than accuracy of probabilities [n, classes], given true classes ``y`` [n].

    ``macro_f1``, the mean F1 over the classes that occur; ``roc_auc``, of several classes the
    mean of each against the rest, None if only one occurs; ``per_class`` with ``precision``,
    ``recall``, ``f1`` and ``support``.
    """
    # The probabilities of a diverged model may be NaN.
    score, true = probabilities.double().nan_to_num().cpu().numpy(), y.cpu().numpy()
    guess, classes = score.argmax(1), range(score.shape[1])
    each = precision_recall_fscore_support(true, guess, labels=classes, zero_division=0)
    present = set(true.tolist())
    # Of two classes either curve will do: one is the other mirrored.
    shown = present - {0} if len(classes) == 2 else present
    areas = [roc_auc_score(true == c, score[:, c]) for c in shown] if len(present) > 1 else []
    return {
        "macro_f1": float(f1_score(true, guess, average="macro", zero_division=0)),
        "roc_auc": sum(map(float, areas)) / len(areas) if areas else None,
        "per_class": [
            {"precision": float(p), "recall": float(r), "f1": float(f), "support": int(n)}
            for p, r, f, n in zip(*each, strict=True)
        ],
    }


def calibration_error(probabilities: Tensor, y: Tensor, bins: int = 15) -> float:
    """Expected calibration error: how far confidence is from accuracy, over equal-width bins."""
    confidence, predicted = probabilities.double().max(1)
    hit = (predicted == y).double()
    bucket = (confidence * bins).long().clamp(max=bins - 1)
    gap = torch.zeros(bins, dtype=torch.double, device=hit.device)
    gap.index_add_(0, bucket, hit - confidence)
    return round(float(gap.abs().sum()) / max(y.numel(), 1), 12)


@torch.no_grad()
def summarise_parts(
    model: VEPM, dataset: Dataset, train: Tensor, edge_index: Tensor, edge_weight: Tensor
) -> list[dict[str, Any]]:
    """Measures of each metacommunity's part of the edges, given their shares [E, K].

    ``relevance`` is the weight the labels gave it in the composer, one on average, None without;
    ``share`` its share of all edges; ``homophily`` how often its edges join equal labels among the
    training nodes, None if few edges join two; ``kinds`` the share of its edges that is of each
    known kind.
    """
    graph, relevance, shares = dataset.graphs[0], model.composer.relevance, edge_weight.double()
    weights = [None] * shares.size(1) if relevance is None else relevance.weight.tolist()
    total = shares.sum(0).clamp_min(torch.finfo(torch.float64).tiny)
    # Labels of graphs are not those of their nodes.
    known = torch.isin(edge_index, train).all(0) & dataset.single_graph
    enough = int(known.sum()) >= 2 * FEWEST_JOINED
    first, second = dataset.labels[edge_index[:, known]]
    among, joined = shares[known].sum(0), shares[known][first == second].sum(0)
    by_kind = {}
    if dataset.single_graph and dataset.kind_names:
        # The split has both directions of every edge, a directed graph may have one.
        kinds = canonical_kinds(edge_index, graph.edge_index, graph.edge_kind)
        by_kind = dict(zip(dataset.kind_names, kinds.double().t() @ shares, strict=True))
    return [
        {
            "relevance": weights[k],
            "share": float(total[k] / max(len(shares), 1)),
            "homophily": float(joined[k] / among[k]) if enough and among[k] > 0 else None,
            "kinds": {name: float(row[k] / total[k]) for name, row in by_kind.items()},
        }
        for k in range(shares.size(1))
    ]


def agreement_with_kinds(shares: Tensor, kinds: Tensor) -> tuple[float, float]:
    """Compare shares [E, K] with known kinds [E, R], which the model never saw.

    Gives the normalised mutual information of an edge's strongest part and its kind, over edges of
    one kind, and the ROC AUC with which the best part of each kind ranks its edges, on average.
    """
    single = kinds.sum(1) == 1
    parts = shares[single].argmax(1).numpy()
    information = normalized_mutual_info_score(kinds[single].int().argmax(1).numpy(), parts)
    every = max(1, len(shares) // RANKED_EDGES)
    some, truth = shares[::every].numpy(), kinds[::every].numpy()
    areas = [
        max(roc_auc_score(of_kind, part) for part in some.T)
        for of_kind in truth.T
        if of_kind.any() and not of_kind.all()
    ]
    return float(information), float(np.mean(areas)) if areas else float("nan")
