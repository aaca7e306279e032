"""Overlapping communities against known ones: VEPM, NOCD, BigCLAM and Louvain."""

from dataclasses import replace

import torch
from torch import Tensor

from vepm.baselines.communities import Bools, bigclam, louvain, nocd
from vepm.data import Dataset
from vepm.estimators import CommunityDetector
from vepm.evaluation.communities import compare, known_communities
from vepm.paper.findings import Finding, Setting
from vepm.runs.metrics import agreement

QUICK_EPOCHS = 2


def found_communities(setting: Setting) -> Finding:
    """VEPM's, as many as are known unless the settings ask to find the number.

    The adjacency stands beside the features, which need not tell communities apart. For graphs with
    labels, also the NMI of each node's main community with its label.
    """
    dataset = _with_adjacency(setting)
    model = CommunityDetector(
        config=setting.config,
        num_communities=None if setting.config.training.shrinkage else _number(setting),
        random_state=setting.seed,
        device=setting.device,
        n_init=1 if setting.quick else 4,
    ).fit(dataset)
    found = model.communities(dataset)
    judged = _judge(setting, found.overlapping)
    if setting.dataset.num_classes:
        y = setting.dataset.labels
        judged.numbers["nmi"] = agreement(torch.from_numpy(found.hard)[y >= 0], y[y >= 0])
    return judged


def nocd_communities(setting: Setting) -> Finding:
    """NOCD's, with the adjacency as features."""
    edges = setting.graph.edge_index
    epochs = {"epochs": QUICK_EPOCHS} if setting.quick else {}
    found = nocd(_adjacency(setting), edges, _number(setting), setting.seed, **epochs)
    return _judge(setting, found)


def bigclam_communities(setting: Setting) -> Finding:
    """BigCLAM's, as many as are known."""
    graph = setting.graph
    return _judge(
        setting, bigclam(graph.edge_index.numpy(), graph.num_nodes, _number(setting), setting.seed)
    )


def louvain_communities(setting: Setting) -> Finding:
    """Louvain's, as many as it finds."""
    graph = setting.graph
    return _judge(setting, louvain(graph.edge_index.numpy(), graph.num_nodes, 0, setting.seed))


def _adjacency(setting: Setting) -> Tensor:
    """Ones where there is an edge [N, N]; the paper of NOCD has such features."""
    nodes = int(setting.graph.num_nodes or 0)
    adjacency = torch.zeros(nodes, nodes)
    adjacency[tuple(setting.graph.edge_index)] = 1
    return adjacency


def _with_adjacency(setting: Setting) -> Dataset:
    graph = setting.graph.clone()
    graph.x = torch.cat([graph.x.to_dense(), _adjacency(setting)], dim=1)
    return replace(setting.dataset, graphs=[graph], feature_names=None)


def _truth(setting: Setting) -> Bools:
    found = known_communities(setting.dataset)
    assert found is not None
    return found


def _number(setting: Setting) -> int:
    return int(_truth(setting).any(0).sum())


def _judge(setting: Setting, found: Bools) -> Finding:
    return Finding(numbers=compare(found, _truth(setting)))
