"""Measurements that are more than the accuracy of a method, by name."""

from collections.abc import Callable

import numpy as np
import torch

from vepm.paper.blockmodels import degree_corrected_blocks, mixed_memberships
from vepm.paper.calibration import calibration, gcn_calibration
from vepm.paper.characteristics import characteristics
from vepm.paper.explanations import communities, confusion
from vepm.paper.partition_use import partition_use
from vepm.paper.partitions import equal_parts, spectral_parts
from vepm.paper.setting import Finding, Setting, finetune


def statistics(setting: Setting) -> Finding:
    """Number of graphs and classes, width of the features, mean nodes and edges of a graph."""
    graphs = setting.dataset.graphs
    return Finding(
        numbers={
            "graphs": float(len(graphs)),
            "nodes": float(np.mean([graph.x.size(0) for graph in graphs])),
            "edges": float(np.mean([graph.edge_index.size(1) / 2 for graph in graphs])),
            "features": float(setting.dataset.num_features),
            "classes": float(setting.dataset.num_classes),
        }
    )


def timing(setting: Setting) -> Finding:
    """Accuracy, and the median duration of an epoch of pretraining and of finetuning."""
    fitted, result = finetune(setting)
    seconds = {
        phase: [row["seconds"] for row in fitted.history if row["phase"] == phase]
        for phase in ("pretrain", "finetune")
    }
    numbers = {
        "seconds_per_epoch": float(np.median(seconds["pretrain"])),
        "seconds_per_finetuning_epoch": float(np.median(seconds["finetune"])),
    }
    return Finding(numbers=numbers, result=result)


def bisection(setting: Setting) -> Finding:
    """Communities of equal size with few edges between them, in the place of METIS."""
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


Study = Callable[[Setting], Finding]

STUDIES: dict[str, Study] = {
    "statistics": statistics,
    "timing": timing,
    "communities": communities,
    "confusion": confusion,
    "calibration": calibration,
    "gcn_calibration": gcn_calibration,
    "partition_use": partition_use,
    "bisection": bisection,
    "spectral": spectral,
    "sbm": sbm,
    "mmsb": mmsb,
}
"""Studies by name."""

WHOLE = frozenset({"statistics"})
"""Studies so cheap that quick runs do not shrink their data."""
