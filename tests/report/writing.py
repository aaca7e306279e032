"""Small synthetic run folders, in the format that training writes."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

Array = NDArray[Any]
CLASSES = 3
COMMUNITIES = 6
METACOMMUNITIES = 3


def planted(
    sizes: list[int], rng: np.random.Generator, degree: float | None = None
) -> dict[str, Array]:
    """Graphs of three planted groups and the arrays a model would leave for them."""
    batch = np.repeat(np.arange(len(sizes)), sizes)
    group = rng.integers(CLASSES, size=len(batch))
    same = (group[:, None] == group) & (batch[:, None] == batch)
    chance = np.where(same, 0.35, 0.03 * (batch[:, None] == batch))
    if degree is not None:
        chance *= degree / chance.sum(1).mean()
    upper = np.triu(rng.random(chance.shape) < chance, 1)
    source, target = np.nonzero(upper)
    z = rng.gamma(0.4, 0.2, size=(len(batch), COMMUNITIES))
    z[np.arange(len(batch)), 2 * group] += rng.gamma(4, 0.3, size=len(batch))
    activation = np.linspace(0.8, 1.2, COMMUNITIES)
    edges = np.hstack([[source, target], [target, source]])
    rate = (z[edges[0]] * activation * z[edges[1]]).reshape(-1, METACOMMUNITIES, 2).sum(2)
    share = np.exp(rate) / np.exp(rate).sum(1, keepdims=True)
    embeddings = rng.normal(size=(len(batch), METACOMMUNITIES, 4)) + group[:, None, None]
    return {
        "edge_index": edges,
        "edge_weight": share.astype(np.float32),
        "memberships": z.astype(np.float32),
        "activation": activation.astype(np.float32),
        "community_embeddings": embeddings.astype(np.float32),
        "features": (rng.random((len(batch), 10)) < 0.3).astype(np.float32),
        "batch": batch,
        "group": group,
    }


def add_predictions(arrays: dict[str, Array], labels: Array, rng: np.random.Generator) -> None:
    """Mostly right predictions, with probabilities and a third of the items in each split."""
    logits = rng.normal(size=(len(labels), CLASSES)) + 2.5 * np.eye(CLASSES)[labels]
    probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    arrays["probabilities"] = probabilities.astype(np.float32)
    arrays["prediction"] = probabilities.argmax(1)
    arrays["log_odds"] = logits.max(1).astype(np.float32)
    fall = rng.normal(1, 1, size=(len(labels), METACOMMUNITIES))
    arrays["log_odds_without"] = (logits.max(1, keepdims=True) - fall).astype(np.float32)
    arrays["label_without"] = rng.integers(CLASSES, size=fall.shape)
    arrays["y"] = labels.astype(np.int64)
    for place, split in enumerate(("train", "val", "test")):
        arrays[f"{split}_mask"] = np.arange(len(labels)) % 3 == place


def write_files(folder: Path, arrays: dict[str, Array], metrics: dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    contiguous = {name: np.ascontiguousarray(values) for name, values in arrays.items()}
    save_file(contiguous, folder / "outputs.safetensors")
    (folder / "metrics.json").write_text(json.dumps(metrics), encoding="utf-8")
    settings = f"seed = 0\n[model]\nnum_metacommunities = {METACOMMUNITIES}\n"
    (folder / "config.toml").write_text(settings, encoding="utf-8")
    write_history(folder / "history.csv", supervised="prediction" in arrays)
    return folder


def write_history(path: Path, *, supervised: bool) -> None:
    columns = ["phase", "epoch", "loss", "task", "edges", "kl"]
    columns += ["train_accuracy", "val_accuracy", "learning_rate", "seconds"]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        for epoch in range(8):
            fall = 1 / (epoch + 1)
            writer.writerow(["pretrain", epoch, fall, "", -fall, 0.1, "", "", 0.01, epoch])
        for epoch in range(10 if supervised else 0):
            fall = 1 / (epoch + 1)
            accuracy = 0.5 + 0.04 * epoch
            writer.writerow(
                ["finetune", epoch, fall, -fall, -0.1, 0.1, accuracy, accuracy, 0.01, epoch]
            )


def base_metrics(arrays: dict[str, Array], task: str) -> dict[str, Any]:
    metrics: dict[str, Any] = {"dataset": f"planted-{task}", "task": task, "seed": 0}
    if "y" in arrays:
        right = arrays["prediction"] == arrays["y"]
        metrics |= {
            "num_classes": CLASSES,
            "class_names": ["red", "green", "blue"],
            "val_accuracy": float(right[arrays["val_mask"]].mean()),
            "test_accuracy": float(right[arrays["test_mask"]].mean()),
            "best_epoch": 6,
            "rule": "epoch of the best validation accuracy",
            "command": "vepm train planted --seed 0",
            "baselines": {"GCN": {"test_accuracy": 0.8}},
        }
    return metrics


def write_node_run(
    folder: Path,
    *,
    nodes: int = 90,
    degree: float | None = None,
    class_names: list[str] | None = None,
    node_names: list[str] | None = None,
) -> Path:
    rng = np.random.default_rng(0)
    arrays = planted([nodes], rng, degree)
    add_predictions(arrays, arrays.pop("group"), rng)
    del arrays["batch"]
    arrays["y"][::7] = -1
    metrics = base_metrics(arrays, "node")
    metrics["class_names"] = class_names or metrics["class_names"]
    write_files(folder, arrays, metrics)
    if node_names:
        (folder / "names.json").write_text(json.dumps({"node_names": node_names}))
    return folder


def write_graph_run(folder: Path) -> Path:
    rng = np.random.default_rng(1)
    arrays = planted([int(size) for size in rng.integers(5, 14, size=24)], rng)
    del arrays["group"]
    add_predictions(arrays, rng.integers(CLASSES, size=24), rng)
    return write_files(folder, arrays, base_metrics(arrays, "graph"))


def write_unsupervised_run(folder: Path) -> Path:
    rng = np.random.default_rng(2)
    arrays = planted([70], rng)
    for name in ("group", "batch", "community_embeddings", "features"):
        del arrays[name]
    return write_files(folder, arrays, base_metrics(arrays, "node"))


def change(folder: Path, **changes: Array | None) -> None:
    """Replace arrays of a run, or remove those given as None."""
    arrays: dict[str, Array] = dict(load_file(folder / "outputs.safetensors"))
    for name, values in changes.items():
        arrays.pop(name, None)
        if values is not None:
            arrays[name] = values
    save_file(arrays, folder / "outputs.safetensors")


def rewrite_metrics(folder: Path, **entries: Any) -> None:
    """Replace entries of ``metrics.json``."""
    path = folder / "metrics.json"
    metrics = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(metrics | entries), encoding="utf-8")
