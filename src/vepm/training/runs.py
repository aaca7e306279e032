"""What a finished run leaves in its folder, for people and for the report."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from vepm.data import Dataset
from vepm.files import write_bytes, write_csv, write_text
from vepm.nn import interactions
from vepm.nn.features import dense
from vepm.training.attribution import attribute
from vepm.training.batches import GraphBatch
from vepm.training.checkpoint import save_model
from vepm.training.fitting import Fitted
from vepm.training.machine import describe_machine, peak_memory
from vepm.training.metrics import accuracy, agreement, calibration_error
from vepm.training.prediction import explain, probabilities

RULE = (
    "the epoch of best validation accuracy, then lowest validation loss; test labels chose nothing"
)
LAST = "the last epoch; there were no labels to validate on"
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
LARGEST_FEATURES = 10_000_000
"""Entries of the feature matrix above which the outputs leave it out."""


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
    outputs = _outputs(fitted, roles)
    metrics = _metrics(dataset, fitted, roles, outputs) | extra
    save_model(folder / "model.safetensors", fitted.model, fitted.card)
    write_text(folder / "config.toml", fitted.card.config.to_toml())
    write_csv(
        folder / "history.csv",
        HISTORY,
        ([row.get(name, "") for name in HISTORY] for row in fitted.history),
    )
    write_bytes(folder / "outputs.safetensors", save(outputs))
    write_text(folder / "names.json", json.dumps(_names(dataset)))
    write_text(folder / "metrics.json", json.dumps(metrics, indent=1))
    return metrics


def _outputs(fitted: Fitted, roles: dict[str, Tensor]) -> dict[str, Tensor]:
    model, source = fitted.model, fitted.source
    found = explain(model, source)
    outputs = {
        "edge_index": found.edge_index,
        "edge_weight": found.edge_weight,
        "memberships": found.memberships,
        "activation": model.activation.detach(),
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
    for role, rows in roles.items():
        mask = torch.zeros(source.y.numel(), dtype=torch.bool)
        mask[rows] = True
        outputs[f"{role}_mask"] = mask
    features = dense(source.x)
    if features.numel() <= LARGEST_FEATURES:
        outputs["features"] = features
    if not isinstance(source, GraphBatch):
        outputs["batch"] = torch.arange(len(source)).repeat_interleave(source.nodes.cpu())
    return {name: tensor.cpu().contiguous() for name, tensor in outputs.items()}


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
        heads = card.config.model.num_metacommunities
        hard = interactions(outputs["memberships"], outputs["activation"], heads).argmax(1)
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
