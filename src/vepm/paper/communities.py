"""Communities: VEPM's before and after they meet the labels, other methods', and known ones."""

import math
import warnings
from collections.abc import Callable

import numpy as np
import torch
from sklearn.metrics import confusion_matrix
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from torch import Tensor
from torch_geometric.data import Data

from vepm.estimators import CommunityDetector
from vepm.evaluation.communities import Cover, compare, known_communities
from vepm.nn import interactions, members
from vepm.paper.cells import Finding, Setting, finetune
from vepm.runs.metrics import agreement
from vepm.training import explain, fit

QUICK_NODES = 400


def communities(setting: Setting) -> Finding:
    """Communities after pretraining and after finetuning, and how far they agree.

    The arrays hold everything the paper's figures are drawn from.
    """
    # With one seed, pretraining finds the same communities in both.
    pretrained = fit(setting.dataset, setting.config, seed=setting.seed, device=setting.device)
    fitted, result = finetune(setting)
    before, after = (explain(found.model, found.source) for found in (pretrained, fitted))
    found = {
        "pretrained_z": before.memberships,
        "pretrained_activation": pretrained.model.activation.detach(),
        "z": after.memberships,
        "activation": fitted.model.activation.detach(),
        "edge_index": after.edge_index,
        "edge_weight": after.edge_weight,
        "community_embeddings": after.community_embeddings,
        # A node of a labelled graph has the graph's label.
        "y": torch.cat([graph.y.expand(graph.x.size(0)) for graph in setting.dataset.graphs]),
    }
    arrays = {name: array.cpu().contiguous() for name, array in found.items()}
    numbers = _compare(setting, arrays) if setting.dataset.task == "node" else {}
    return Finding(numbers, arrays, result)


def _compare(setting: Setting, arrays: dict[str, Tensor]) -> dict[str, float]:
    y = arrays["y"]
    known = y >= 0
    numbers, main = {}, {}
    for when, start in (("pretrained", "pretrained_"), ("finetuned", "")):
        z, activation = arrays[f"{start}z"], arrays[f"{start}activation"]
        links = interactions(z, activation, setting.parts)
        main[when] = links.argmax(1)
        numbers[f"affiliation_nmi_{when}"] = agreement(z.argmax(1)[known], y[known])
        numbers[f"nmi_{when}"] = agreement(main[when][known], y[known])
    numbers["task_dependence"] = 1 - agreement(main["pretrained"], main["finetuned"])
    return characteristics(setting, links) | numbers


def confusion(setting: Setting) -> Finding:
    """How well an SVM classifies nodes by each community's embeddings alone, cross-validated."""
    found = communities(setting)
    y = found.arrays["y"].numpy()
    rows = np.flatnonzero(y >= 0)
    if setting.quick:
        rows = rows[:QUICK_NODES]
    folds = StratifiedKFold(2 if setting.quick else 10, shuffle=True, random_state=setting.seed)
    matrices = []
    for embeddings in found.arrays["community_embeddings"].numpy()[rows].swapaxes(0, 1):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The least populated class")
            svm = make_pipeline(StandardScaler(), SVC())
            guess = cross_val_predict(svm, embeddings, y[rows], cv=folds)
        matrices.append(confusion_matrix(y[rows], guess, labels=range(setting.dataset.num_classes)))
    stacked = torch.from_numpy(np.stack(matrices))
    right = stacked.diagonal(dim1=1, dim2=2).sum() / stacked.sum()
    return Finding({"svm_accuracy": float(right)}, {"confusion": stacked}, found.result)


def characteristics(setting: Setting, links: Tensor) -> dict[str, float]:
    """Size balance, density and overlap of communities, given each node's links in each [N, K]."""
    blocks = links.argmax(1)
    return {
        "size_imbalance": size_imbalance(blocks, setting.parts),
        "density_ratio": density_ratio(blocks, setting.graph.edge_index),
        "overlap": float((members(links).sum(1) > 1).double().mean()),
        "task_dependence": 0.0,
    }


def size_imbalance(blocks: Tensor, parts: int) -> float:
    """Size of the largest community over the mean size; 1 where all are of one size."""
    return float(blocks.bincount(minlength=parts).max()) * parts / blocks.numel()


def density_ratio(blocks: Tensor, edge_index: Tensor) -> float:
    """Share of the edges that lie within communities over the share of pairs that do."""
    source, target = blocks[edge_index]
    edges_within = float((source == target).double().mean())
    sizes = blocks.bincount().double()
    nodes = blocks.numel()
    pairs_within = float((sizes * (sizes - 1)).sum()) / (nodes * (nodes - 1))
    return edges_within / pairs_within if pairs_within else math.nan


def found_communities(setting: Setting) -> Finding:
    """VEPM's, as many as are known unless the settings ask to find the number.

    For graphs with labels, also the NMI of each node's main community with its label.
    """
    (truth, number), dataset = _known(setting), setting.dataset
    model = CommunityDetector(
        config=setting.config,
        num_communities=None if setting.config.training.shrinkage else number,
        random_state=setting.seed,
        device=setting.device,
        n_init=1 if setting.quick else 4,
    )
    found = model.fit(dataset).communities(dataset)
    numbers = compare(found.overlapping, truth)
    if dataset.num_classes:
        y = dataset.labels
        numbers["nmi"] = agreement(torch.from_numpy(found.hard)[y >= 0], y[y >= 0])
    return Finding(numbers)


def detected(detect: Callable[..., Cover], setting: Setting) -> Finding:
    """Those of a method that looks at the edges alone, told how many are known."""
    (truth, number), graph = _known(setting), setting.graph
    found = detect(graph.edge_index.numpy(), graph.num_nodes, number, setting.seed)
    return Finding(compare(found, truth))


def _known(setting: Setting) -> tuple[Cover, int]:
    """The communities that come with the graph, and how many have members."""
    truth = known_communities(setting.dataset)
    assert truth is not None
    return truth, int((truth.sum(0) > 0).sum())


def _adjacency(graph: Data) -> Tensor:
    """Ones where there is an edge [N, N]."""
    nodes = int(graph.num_nodes or 0)
    adjacency = torch.zeros(nodes, nodes)
    adjacency[tuple(graph.edge_index)] = 1
    return adjacency
