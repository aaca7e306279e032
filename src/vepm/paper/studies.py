"""Measurements that are more than the accuracy of a method, by name."""

from collections.abc import Callable
from dataclasses import replace
from statistics import fmean, median

import torch

from vepm.baselines.nodes import GCN
from vepm.evaluation import RunResult
from vepm.measures import calibration_error
from vepm.paper.cells import Finding, Setting, finetune
from vepm.paper.communities import COMMUNITY_STUDIES
from vepm.paper.links import LINK_STUDIES
from vepm.paper.partition_use import partition_use
from vepm.training import pick_device, probabilities
from vepm.training.prediction import best_inverse_temperature, calibrate

SAMPLES, QUICK_EPOCHS = 16, 2


def statistics(setting: Setting) -> Finding:
    """Number of graphs and classes, width of the features, mean nodes and edges of a graph."""
    dataset, graphs = setting.dataset, setting.dataset.graphs
    return Finding(
        {
            "graphs": float(len(graphs)),
            "nodes": fmean(graph.x.size(0) for graph in graphs),
            "edges": fmean(graph.edge_index.size(1) / 2 for graph in graphs),
            "features": float(dataset.num_features),
            "classes": float(dataset.num_classes),
        }
    )


def timing(setting: Setting) -> Finding:
    """Accuracy, and the median duration of an epoch of pretraining."""
    fitted, result = finetune(setting)
    seconds = (row["seconds"] for row in fitted.history if row["phase"] == "pretrain")
    return Finding({"seconds_per_epoch": median(seconds)}, result=result)


def calibration(setting: Setting) -> Finding:
    """VEPM's on the test nodes, by the posterior mean and by draws, each fitted on validation."""
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
    sharpness = best_inverse_temperature(scores["val"].cpu()[None], y[split.val])
    numbers = {
        name: calibration_error(torch.softmax(factor * scores["test"].cpu(), 1), y[split.test])
        for name, factor in (("calibration_error", 1.0), ("fitted_calibration_error", sharpness))
    }
    return Finding(numbers, result=result)


STUDIES: dict[str, Callable[[Setting], Finding]] = {
    "statistics": statistics,
    "timing": timing,
    "calibration": calibration,
    "gcn_calibration": gcn_calibration,
    "partition_use": partition_use,
    **COMMUNITY_STUDIES,
    **LINK_STUDIES,
}
TRAINED = frozenset({"vepm", "timing", "communities", "confusion"})  # the paper's, of VEPM
WHOLE = frozenset({"statistics"})  # studies so cheap that quick runs do not shrink their data
