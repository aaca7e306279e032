"""What a finished run leaves in its folder, for people and for the report."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from vepm.data import Dataset
from vepm.escaping import for_json
from vepm.files import write_bytes, write_csv, write_text
from vepm.nn import VEPM, interactions
from vepm.scale.batches import GraphBatch, GraphStore, single_graph
from vepm.scale.large import LargeGraph
from vepm.training.attribution import attribute
from vepm.training.checkpoint import save_model
from vepm.training.excerpt import LARGEST, large_outputs
from vepm.training.fitting import Fitted
from vepm.training.machine import describe_machine, peak_memory
from vepm.training.metrics import accuracy, agreement, calibration_error
from vepm.training.parts import summarise_parts
from vepm.training.prediction import explain, probabilities

RULE = (
    "the epoch of best validation accuracy, then lowest validation loss; test labels chose nothing"
)
LAST = "the last epoch; there were no labels to validate on"
LARGEST_FEATURES = 10_000_000
"""Entries of the feature matrix above which outputs leave it out."""
HISTORY = (
    "phase",
    "epoch",
    "loss",
    "task",
    "edges",
    "kl",
    "disagreement",
    "train_accuracy",
    "val_accuracy",
    "val_loss",
    "learning_rate",
    "seconds",
)


def write_run(
    folder: Path,
    dataset: Dataset,
    fitted: Fitted,
    roles: dict[str, Tensor],
    extra: dict[str, Any],
) -> dict[str, Any]:
    """Write model, settings, metrics, history and outputs of a run.

    Args:
        folder: The run folder.
        dataset: What was learned from.
        fitted: The trained model.
        roles: Numbers of the ``train``, ``val`` and ``test`` nodes or graphs.
        extra: More entries for ``metrics.json``.

    Returns:
        The metrics.
    """
    if isinstance(fitted.source, LargeGraph) and fitted.source.num_nodes <= LARGEST:
        prepared = fitted.card.prepare(dataset).graphs[0]
        graph = single_graph(prepared, fitted.model.activation.device)
        fitted = replace(fitted, source=graph)
    if isinstance(fitted.source, LargeGraph):
        metrics, names = _write_large(folder, dataset, fitted, fitted.source, roles)
    else:
        outputs = _outputs(fitted, fitted.source, roles) | _features(dataset)
        metrics, names = _metrics(dataset, fitted, roles, outputs), _names(dataset)
        metrics |= _parts(dataset, fitted.model, roles["train"], outputs)
        write_bytes(folder / "outputs.safetensors", save(outputs))
    metrics = for_json(metrics | extra)
    save_model(folder / "model.safetensors", fitted.model, fitted.card)
    write_text(folder / "config.toml", fitted.card.config.to_toml())
    write_csv(
        folder / "history.csv",
        HISTORY,
        ([row.get(name, "") for name in HISTORY] for row in fitted.history),
    )
    write_text(folder / "names.json", json.dumps(for_json(names)))
    write_text(folder / "metrics.json", json.dumps(metrics, indent=1))
    return metrics


def _write_large(
    folder: Path, dataset: Dataset, fitted: Fitted, graph: LargeGraph, roles: dict[str, Tensor]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Write what is known of every node, and outputs of an excerpt for the page to show."""
    card = fitted.card
    labelled = roles["train"].numel() > 0
    start = int(roles["train"][0]) if labelled else 0
    samples = card.config.training.num_samples
    whole, outputs, nodes = large_outputs(fitted.model, graph, labelled, samples, card.seed, start)
    metrics = _metrics(dataset, fitted, roles, whole)
    metrics["excerpt_of"] = {"nodes": graph.num_nodes, "edges": graph.num_edges // 2}
    kept = {k: v for k, v in whole.items() if k in ("memberships", "probabilities", "prediction")}
    write_bytes(folder / "predictions.safetensors", save(kept))
    outputs |= {name: mask[nodes] for name, mask in _masks(roles, graph.num_nodes).items()}
    outputs |= _features(dataset, nodes) | _assignment(fitted.model)
    arrays = {name: tensor.cpu().contiguous() for name, tensor in outputs.items()}
    write_bytes(folder / "outputs.safetensors", save(arrays))
    names = _names(dataset)
    if "node_names" in names:
        names["node_names"] = [names["node_names"][i] for i in nodes.tolist()]
    return metrics, names


def _masks(roles: dict[str, Tensor], count: int) -> dict[str, Tensor]:
    masks = {f"{role}_mask": torch.zeros(count, dtype=torch.bool) for role in roles}
    for role, rows in roles.items():
        masks[f"{role}_mask"][rows] = True
    return masks


def _outputs(
    fitted: Fitted, source: GraphBatch | GraphStore, roles: dict[str, Tensor]
) -> dict[str, Tensor]:
    model = fitted.model
    found = explain(model, source)
    outputs = {
        "edge_index": found.edge_index,
        "edge_weight": found.edge_weight,
        "memberships": found.memberships,
        "activation": model.activation.detach(),
        **_assignment(model),
        "y": source.y,
        "community_embeddings": found.community_embeddings,
        "embeddings": found.embeddings,
    }
    if roles["train"].numel():
        samples = fitted.card.config.training.num_samples
        proba = probabilities(model, source, samples, seed=fitted.card.seed)
        outputs |= {"probabilities": proba, "prediction": proba.argmax(1)}
        outputs |= attribute(model, source, proba.argmax(1))._asdict()
    else:
        # Bank and composer never saw a label: what they would say means nothing.
        outputs = {k: v for k, v in outputs.items() if not k.endswith("embeddings")}
    outputs |= _masks(roles, source.y.numel())
    if not isinstance(source, GraphBatch):
        outputs["batch"] = torch.arange(len(source)).repeat_interleave(source.nodes.cpu())
    return {name: tensor.cpu().contiguous() for name, tensor in outputs.items()}


def _features(dataset: Dataset, nodes: Tensor | None = None) -> dict[str, Tensor]:
    """The features of all nodes or some, as they were given, unless they are too many."""
    x = dataset.features if nodes is None else dataset.features.index_select(0, nodes)
    return {"features": x.to_dense()} if x.numel() <= LARGEST_FEATURES else {}


def _assignment(model: VEPM) -> dict[str, Tensor]:
    """Which metacommunity each community belongs to [C, K], where that was learned."""
    grouping = model.partitioner.grouping()
    return {"assignment": grouping.detach().cpu()} if isinstance(grouping, Tensor) else {}


def _num_parts(model: VEPM) -> int:
    return model.partitioner.num_metacommunities


def _parts(
    dataset: Dataset, model: VEPM, train: Tensor, outputs: dict[str, Tensor]
) -> dict[str, Any]:
    """What each part of the edges is worth to a model that was trained on labels."""
    if not train.numel():
        return {}
    single = dataset.single_graph
    kinds = dataset.graphs[0].get("edge_kind") if single else None
    found = summarise_parts(
        model,
        outputs["edge_index"],
        outputs["edge_weight"],
        outputs["y"],
        train if single else train[:0],
        kinds,
        None if kinds is None else dataset.kind_names,
    )
    return {"parts": [part._asdict() for part in found]}


def _metrics(
    dataset: Dataset, fitted: Fitted, roles: dict[str, Tensor], outputs: dict[str, Tensor]
) -> dict[str, Any]:
    card = fitted.card
    metrics: dict[str, Any] = {
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
        **peak_memory(),
        **{f"num_{role}": rows.numel() for role, rows in roles.items()},
        "device": str(fitted.model.activation.device),
        "versions": describe_machine(),
        "warnings": list(fitted.warnings),
    }
    if "probabilities" in outputs:
        metrics["rule"] = RULE if roles["val"].numel() else LAST
        metrics["num_samples"] = card.config.training.num_samples
        for role in ("val", "test"):
            rows = roles[role]
            if rows.numel():
                found, y = outputs["probabilities"][rows], outputs["y"][rows]
                metrics[f"{role}_accuracy"] = accuracy(found, y)
                if role == "test":
                    metrics["ece"] = calibration_error(found, y)
    known = outputs["y"] >= 0
    if dataset.task == "node" and known.any():
        grouping = _assignment(fitted.model).get("assignment", _num_parts(fitted.model))
        hard = interactions(outputs["memberships"], outputs["activation"], grouping).argmax(1)
        metrics["nmi"] = agreement(hard[known], outputs["y"][known])
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
