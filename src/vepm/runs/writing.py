"""What a finished run leaves in its folder, for people and for the report."""

import json
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import Tensor

from vepm.data import Dataset
from vepm.escaping import for_json
from vepm.files import write_bytes, write_csv, write_text
from vepm.nn import interactions
from vepm.runs import schema
from vepm.runs.machine import describe_machine, peak_memory
from vepm.runs.metrics import accuracy, agreement, calibration_error, summarise_parts
from vepm.runs.outputs import LARGEST, Tensors, assignment, large_outputs_of, outputs_of
from vepm.runs.schema import HISTORY_COLUMNS, Metrics
from vepm.scale.batches import single_graph
from vepm.scale.large import LargeGraph
from vepm.tasks import TASKS
from vepm.training.fitting import Fitted
from vepm.training.model_file import save_model
from vepm.training.prediction import Explanation

RULE = (
    "the epoch of best validation accuracy, then lowest validation loss; test labels chose nothing"
)
LAST = "the last epoch; there were no labels to validate on"


def write_run(
    folder: Path,
    dataset: Dataset,
    fitted: Fitted,
    roles: Tensors,
    extra: dict[str, Any],
    explained: Explanation | None = None,
) -> dict[str, Any]:
    """Write model, settings, metrics, history and outputs of a run.

    Args:
        folder: The run folder.
        dataset: What was learned from.
        fitted: The trained model.
        roles: Indices of the ``train``, ``val`` and ``test`` nodes or graphs.
        extra: More entries for ``metrics.json``.
        explained: What ``explain`` gives, if it is known already.

    Returns:
        The metrics.
    """
    source, names = fitted.source, _names(dataset)
    if isinstance(source, LargeGraph) and source.num_nodes <= LARGEST:
        prepared = fitted.card.prepare(dataset).graphs[0]
        source = single_graph(prepared, fitted.model.activation.device)
    if isinstance(source, LargeGraph):
        whole, outputs, nodes = large_outputs_of(dataset, fitted, source, roles)
        metrics = _metrics(dataset, fitted, roles, whole)
        metrics["excerpt_of"] = {"nodes": source.num_nodes, "edges": source.num_edges // 2}
        if "node_names" in names:
            names["node_names"] = [names["node_names"][i] for i in nodes.tolist()]
        write_bytes(folder / schema.PREDICTIONS, save(whole))
    else:
        outputs = outputs_of(dataset, fitted, source, roles, explained)
        metrics = _metrics(dataset, fitted, roles, outputs)
        if roles["train"].numel():
            metrics["parts"] = _parts(dataset, fitted, roles["train"], outputs)
    write_bytes(folder / schema.OUTPUTS, save(outputs))
    save_model(folder / schema.MODEL, fitted.model, fitted.card)
    write_text(folder / schema.CONFIG, fitted.card.config.to_toml())
    rows = ([row.get(name, "") for name in HISTORY_COLUMNS] for row in fitted.history)
    write_csv(folder / schema.HISTORY, HISTORY_COLUMNS, rows)
    write_text(folder / schema.NAMES, json.dumps(for_json(names)))
    written: dict[str, Any] = for_json({**metrics, **extra})
    write_text(folder / schema.METRICS, json.dumps(written, indent=1))
    return written


def _parts(
    dataset: Dataset, fitted: Fitted, train: Tensor, outputs: Tensors
) -> list[dict[str, Any]]:
    """What each part of the edges is worth to a model that was trained on labels."""
    single = dataset.single_graph
    kinds = dataset.graphs[0].get("edge_kind") if single else None
    found = summarise_parts(
        fitted.model,
        outputs["edge_index"],
        outputs["edge_weight"],
        outputs["y"],
        train if single else train[:0],
        kinds,
        None if kinds is None else dataset.kind_names,
    )
    return [part._asdict() for part in found]


def _metrics(dataset: Dataset, fitted: Fitted, roles: Tensors, outputs: Tensors) -> Metrics:
    card, model, y = fitted.card, fitted.model, fitted.source.y.cpu()
    peak = peak_memory()
    metrics: Metrics = {
        "dataset": dataset.name,
        "source": dataset.source,
        "task": dataset.task,
        "seed": card.seed,
        "num_classes": dataset.num_classes,
        "class_names": list(dataset.class_names),
        "val_accuracy": None,
        "test_accuracy": None,
        "best_epoch": fitted.best_epoch,
        "epochs": len(fitted.history),
        "seconds": sum(row["seconds"] for row in fitted.history),
        "peak_memory_mib": peak["peak_memory_mib"],
        "num_train": roles["train"].numel(),
        "num_val": roles["val"].numel(),
        "num_test": roles["test"].numel(),
        "device": str(model.activation.device),
        "versions": describe_machine(),
        "warnings": list(fitted.warnings),
    }
    if fitted.tried:
        metrics["tried"] = fitted.tried
    if "peak_gpu_memory_mib" in peak:
        metrics["peak_gpu_memory_mib"] = peak["peak_gpu_memory_mib"]
    if "probabilities" in outputs:
        proba, val, test = outputs["probabilities"], roles["val"], roles["test"]
        metrics["rule"] = RULE if val.numel() else LAST
        metrics["num_samples"] = card.config.training.num_samples
        if val.numel():
            metrics["val_accuracy"] = accuracy(proba[val], y[val])
            measures = TASKS[dataset.task].measures(proba[val], y[val])
            metrics["val_macro_f1"] = measures["macro_f1"]
            metrics["val_roc_auc"] = measures["roc_auc"]
            metrics["val_per_class"] = measures["per_class"]
        if test.numel():
            metrics["test_accuracy"] = accuracy(proba[test], y[test])
            metrics["ece"] = calibration_error(proba[test], y[test])
            measures = TASKS[dataset.task].measures(proba[test], y[test])
            metrics["test_macro_f1"] = measures["macro_f1"]
            metrics["test_roc_auc"] = measures["roc_auc"]
            metrics["test_per_class"] = measures["per_class"]
    known = y >= 0
    if dataset.task == "node" and known.any():
        heads = model.partitioner.num_metacommunities
        grouping = assignment(model).get("assignment", heads)
        between = model.interactions.detach().cpu()
        hard = interactions(outputs["memberships"], between, grouping).argmax(1)
        metrics["nmi"] = agreement(hard[known], y[known])
    return metrics


def _names(dataset: Dataset) -> dict[str, Any]:
    names: dict[str, Any] = {}
    if dataset.node_names is not None:
        names["node_names"] = [name for graph in dataset.node_names for name in graph]
    if dataset.graph_names is not None:
        names["graph_names"] = list(dataset.graph_names)
    if dataset.feature_names is not None:
        names["feature_names"] = list(dataset.feature_names)
    return names
