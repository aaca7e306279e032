"""Communities: VEPM's before and after they meet the labels, other methods', and known ones."""

import math
import warnings
from collections.abc import Callable, Sequence

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
from vepm.nn import draw, interactions, members
from vepm.paper.cells import Finding, Setting, finetune
from vepm.runs.metrics import agreement
from vepm.scale.batches import GraphBatch
from vepm.training import Fitted, explain, fit
from vepm.training.prediction import seeded

QUICK_NODES = 400
SHOWN_GRAPHS, RARE = 10, 5
"""As in the paper, graphs whose nodes are drawn, and the least nodes of a label."""


def communities(setting: Setting) -> Finding:
    """Communities after pretraining and after finetuning, and how far they agree.

    The arrays hold everything the paper's figures are drawn from: of a single graph all nodes, of
    sets the nodes of some graphs.
    """
    # With one seed, pretraining finds the same communities in both.
    pretrained = fit(setting.dataset, setting.config, seed=setting.seed, device=setting.device)
    fitted, result = finetune(setting)
    before, after = (explain(found.model, found.source) for found in (pretrained, fitted))
    arrays = {
        "pretrained_z": before.memberships,
        "z": after.memberships,
        "community_embeddings": after.community_embeddings,
    }
    single = setting.dataset.task == "node"
    if single:
        arrays |= {
            "pretrained_activation": pretrained.model.activation.detach(),
            "activation": fitted.model.activation.detach(),
            "drawn_z": _drawn(fitted, setting.seed),
            "edge_index": after.edge_index,
            "edge_weight": after.edge_weight,
            "y": setting.dataset.labels,
        }
    else:
        nodes, y = shown_nodes(setting.dataset.graphs, setting.seed)
        arrays = {name: array.cpu()[nodes] for name, array in arrays.items()} | {"y": y}
    arrays = {name: array.cpu().contiguous() for name, array in arrays.items()}
    return Finding(_compare(setting, arrays) if single else {}, arrays, result)


@torch.no_grad()
def _drawn(fitted: Fitted, seed: int) -> Tensor:
    """Affiliations [N, C] drawn from the posterior."""
    assert isinstance(fitted.source, GraphBatch)
    with seeded(fitted.model, seed):
        return draw(fitted.model.encode(fitted.source.x, fitted.source.edges), sample=True)


def shown_nodes(graphs: Sequence[Data], seed: int) -> tuple[Tensor, Tensor]:
    """Nodes of some graphs, counted over all, and their own labels, which are their features.

    As in the paper, the graphs are drawn from those without a label that few nodes have.
    """
    labels = [graph.x.to_dense().argmax(1) for graph in graphs]
    rare = torch.cat(labels).bincount() < RARE
    common = [i for i, own in enumerate(labels) if not rare[own].any()]
    generator = torch.Generator().manual_seed(seed)
    kept = {common[i] for i in torch.randperm(len(common), generator=generator)[:SHOWN_GRAPHS]}
    inside = torch.cat([torch.full_like(own, i in kept) for i, own in enumerate(labels)]).bool()
    return inside.nonzero().flatten(), torch.cat(labels)[inside]


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


def divided(divide: Callable[[Data, int, int], Tensor], setting: Setting) -> Finding:
    """Those of a method that divides the graph by its edges alone."""
    found = divide(setting.graph, setting.parts, setting.seed)
    links = interactions(found, torch.ones(setting.parts), setting.parts)
    return Finding(characteristics(setting, links))


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
