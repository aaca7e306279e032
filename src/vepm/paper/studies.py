"""Measurements that are more than the accuracy of a method, by name."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from vepm.baselines import GCN
from vepm.evaluation import RunResult
from vepm.paper.communities import bisection, communities, confusion, mmsb, sbm, spectral
from vepm.paper.covers import (
    bigclam_communities,
    found_communities,
    louvain_communities,
    nocd_communities,
)
from vepm.paper.findings import Finding, Setting, finetune
from vepm.paper.links import common_neighbours, gae, link_prediction, vgae
from vepm.paper.partition_use import partition_use
from vepm.runs.metrics import agreement_with_kinds, calibration_error
from vepm.training import explain, pick_device, probabilities
from vepm.training.prediction import best_inverse_temperature, calibrate

SAMPLES = 16
QUICK_EPOCHS = 2


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


def parts_and_kinds(setting: Setting) -> Finding:
    """Accuracy, and how well the parts of the edges match kinds that the model never saw."""
    fitted, result = finetune(setting)
    shares = explain(fitted.model, fitted.source).edge_weight.cpu()
    found = agreement_with_kinds(shares, setting.graph.edge_kind)
    numbers = {"parts_by_kind": found.mutual_information, "kind_ranking": found.ranking}
    return Finding(numbers, result=result)


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


def calibration(setting: Setting) -> Finding:
    """VEPM's on the test nodes, by the posterior mean and by draws from the posterior.

    Each is fitted to the validation labels, as training would do.
    """
    fitted, result = finetune(setting)
    test, y = setting.split.test, setting.graph.y[setting.split.test]
    numbers = {}
    for name, draws in (("calibration_error", 0), ("sampled_calibration_error", SAMPLES)):
        calibrate(fitted.model, fitted.source, setting.split.val, draws, setting.seed)
        found = probabilities(fitted.model, fitted.source, draws, setting.seed).cpu()
        numbers[name] = calibration_error(found[test], y)
    return Finding(numbers, result=result)


def gcn_calibration(setting: Setting) -> Finding:
    """GCN's on the test nodes at the epoch chosen on validation: as trained, and fitted."""
    gcn = GCN(device=str(pick_device(setting.device)))
    if setting.quick:
        gcn = replace(gcn, epochs=QUICK_EPOCHS)
    split, y = setting.split, setting.dataset.labels
    with torch.random.fork_rng():
        torch.manual_seed(setting.seed)
        curve, scores = gcn.fit(setting.dataset, split, setting.seed)
    named = ("gcn", setting.dataset.name, split.name, setting.seed)
    result = RunResult.from_curve(*named, curve, settings=gcn.settings())
    of_val, of_test = (scores[part].cpu() for part in ("val", "test"))
    sharpness = best_inverse_temperature(of_val[None], y[split.val])
    numbers = {
        name: calibration_error(torch.softmax(factor * of_test, dim=1), y[split.test])
        for name, factor in (("calibration_error", 1.0), ("fitted_calibration_error", sharpness))
    }
    return Finding(numbers, result=result)


Study = Callable[[Setting], Finding]

STUDIES: dict[str, Study] = {
    "statistics": statistics,
    "timing": timing,
    "parts_and_kinds": parts_and_kinds,
    "communities": communities,
    "confusion": confusion,
    "calibration": calibration,
    "gcn_calibration": gcn_calibration,
    "partition_use": partition_use,
    "bisection": bisection,
    "spectral": spectral,
    "sbm": sbm,
    "mmsb": mmsb,
    "link_prediction": link_prediction,
    "common_neighbours": common_neighbours,
    "gae": gae,
    "vgae": vgae,
    "found_communities": found_communities,
    "nocd": nocd_communities,
    "bigclam": bigclam_communities,
    "louvain": louvain_communities,
}
"""Studies by name."""

TRAINED = frozenset({"vepm", "timing", "communities", "confusion"})
"""Methods of the paper that train VEPM."""

WHOLE = frozenset({"statistics"})
"""Studies so cheap that quick runs do not shrink their data."""
