"""What communities look like: VEPM's before and after they meet the labels, and other methods'."""

import math
import warnings

import numpy as np
import torch
from sklearn.metrics import confusion_matrix
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from torch import Tensor

from vepm.nn import interactions, members
from vepm.paper.blocks import (
    degree_corrected_blocks,
    equal_parts,
    mixed_memberships,
    spectral_parts,
)
from vepm.paper.findings import Finding, Setting, finetune
from vepm.runs.metrics import agreement
from vepm.training import Explanation, Fitted, explain, fit

QUICK_NODES = 400


def communities(setting: Setting) -> Finding:
    """Communities after pretraining and after finetuning, and how far they agree.

    The arrays hold everything the paper's figures are drawn from.
    """
    # With one seed, pretraining finds the same communities in both.
    pretrained = fit(setting.dataset, setting.config, seed=setting.seed, device=setting.device)
    fitted, result = finetune(setting)
    before, after = _explained(pretrained), _explained(fitted)
    arrays = {
        "pretrained_z": before.memberships,
        "pretrained_activation": _activation(pretrained),
        "z": after.memberships,
        "activation": _activation(fitted),
        "edge_index": after.edge_index,
        "edge_weight": after.edge_weight,
        "community_embeddings": after.community_embeddings,
        "y": _node_labels(setting),
        "batch": _graph_of_node(setting),
    }
    numbers = _compare(setting, arrays) if setting.dataset.task == "node" else {}
    return Finding(numbers, {k: v.cpu().contiguous() for k, v in arrays.items()}, result)


def confusion(setting: Setting) -> Finding:
    """How well an SVM classifies nodes by each community's embeddings alone, cross-validated."""
    found = communities(setting)
    y = found.arrays["y"].numpy()
    rows = np.flatnonzero(y >= 0)
    if setting.quick:
        rows = rows[:QUICK_NODES]
    folds = StratifiedKFold(2 if setting.quick else 10, shuffle=True, random_state=setting.seed)
    classes = list(range(setting.dataset.num_classes))
    matrices = []
    for k in range(setting.parts):
        embeddings = found.arrays["community_embeddings"][:, k].numpy()[rows]
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The least populated class")
            svm = make_pipeline(StandardScaler(), SVC())
            guess = cross_val_predict(svm, embeddings, y[rows], cv=folds)
        matrices.append(confusion_matrix(y[rows], guess, labels=classes))
    stacked = torch.from_numpy(np.stack(matrices))
    right = stacked.diagonal(dim1=1, dim2=2).sum() / stacked.sum()
    return Finding({"svm_accuracy": float(right)}, {"confusion": stacked}, found.result)


def _explained(fitted: Fitted) -> Explanation:
    return explain(fitted.model, fitted.source)


def _activation(fitted: Fitted) -> Tensor:
    return fitted.model.activation.detach()


def _node_labels(setting: Setting) -> Tensor:
    """Labels of the nodes; a node of a labelled graph has the graph's label."""
    graphs = setting.dataset.graphs
    return torch.cat([graph.y.expand(graph.x.size(0)) for graph in graphs])


def _graph_of_node(setting: Setting) -> Tensor:
    sizes = torch.tensor([graph.x.size(0) for graph in setting.dataset.graphs])
    return torch.arange(len(sizes)).repeat_interleave(sizes)


def _compare(setting: Setting, arrays: dict[str, Tensor]) -> dict[str, float]:
    before = interactions(arrays["pretrained_z"], arrays["pretrained_activation"], setting.parts)
    after = interactions(arrays["z"], arrays["activation"], setting.parts)
    first, last = before.argmax(1).cpu(), after.argmax(1).cpu()
    y = arrays["y"]
    known = y >= 0
    strongest = {
        f"affiliation_nmi_{when}": agreement(arrays[z].argmax(1).cpu()[known], y[known])
        for when, z in (("pretrained", "pretrained_z"), ("finetuned", "z"))
    }
    found = characteristics(setting, z=arrays["z"].cpu(), activation=arrays["activation"].cpu())
    return (
        found.numbers
        | strongest
        | {
            "nmi_pretrained": agreement(first[known], y[known]),
            "nmi_finetuned": agreement(last[known], y[known]),
            "task_dependence": 1 - agreement(first, last),
        }
    )


def bisection(setting: Setting) -> Finding:
    """Communities of equal size with few edges between them, in place of METIS."""
    return characteristics(setting, equal_parts(setting.graph, setting.parts, setting.seed))


def spectral(setting: Setting) -> Finding:
    """Communities by spectral clustering."""
    return characteristics(setting, spectral_parts(setting.graph, setting.parts, setting.seed))


def sbm(setting: Setting) -> Finding:
    """Communities by a degree-corrected stochastic blockmodel."""
    sweeps = 1 if setting.quick else 30
    blocks = degree_corrected_blocks(setting.graph, setting.parts, setting.seed, sweeps)
    return characteristics(setting, blocks)


def mmsb(setting: Setting) -> Finding:
    """Overlapping communities by a mixed-membership blockmodel, from the edges alone."""
    steps = 20 if setting.quick else 500
    z = mixed_memberships(setting.graph, setting.parts, setting.seed, steps)
    return characteristics(setting, z=z, activation=torch.ones(setting.parts))


def characteristics(
    setting: Setting,
    blocks: Tensor | None = None,
    *,
    z: Tensor | None = None,
    activation: Tensor | None = None,
) -> Finding:
    """Size balance, density and overlap of communities that were found without labels.

    Args:
        setting: the graph and the number of communities.
        blocks: community of each node [N]; or else
        z: affiliations [N, C], and
        activation: of each community [C].
    """
    edge_index = setting.graph.edge_index
    overlap = 0.0
    if z is not None and activation is not None:
        links = interactions(z, activation, setting.parts)
        blocks = links.argmax(1)
        overlap = float((members(links).sum(1) > 1).double().mean())
    assert blocks is not None
    return Finding(
        numbers={
            "size_imbalance": size_imbalance(blocks, setting.parts),
            "density_ratio": density_ratio(blocks, edge_index),
            "overlap": overlap,
            "task_dependence": 0.0,
        }
    )


def size_imbalance(blocks: Tensor, parts: int) -> float:
    """Size of the largest community over the mean size; 1 where all are of one size.

    Example:
        >>> size_imbalance(torch.tensor([0, 0, 0, 1]), 2)
        1.5
    """
    return float(blocks.bincount(minlength=parts).max()) * parts / blocks.numel()


def density_ratio(blocks: Tensor, edge_index: Tensor) -> float:
    """Share of the edges that lie within communities over the share of pairs that do.

    Example:
        >>> density_ratio(torch.tensor([0, 0, 1, 1]), torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]]))
        3.0
    """
    source, target = blocks[edge_index]
    edges_within = float((source == target).double().mean())
    sizes = blocks.bincount().double()
    nodes = blocks.numel()
    pairs_within = float((sizes * (sizes - 1)).sum()) / (nodes * (nodes - 1))
    return edges_within / pairs_within if pairs_within else math.nan
