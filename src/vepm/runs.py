"""The run folder, which :mod:`vepm.report` reads, the facts of a run, and the machine behind it."""

import contextlib
import functools
import importlib.metadata
import json
import os
import platform
import resource
import subprocess
import sys
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from sklearn.metrics import normalized_mutual_info_score as nmi
from torch import Tensor
from torch_geometric.utils import subgraph

from vepm.data import Dataset
from vepm.escaping import for_json
from vepm.files import write_bytes, write_csv, write_text
from vepm.measures import (
    accuracy,
    calibration_error,
    class_measures,
    summarise_parts,
)
from vepm.nn import interactions
from vepm.scale.batches import GraphStore, single_graph
from vepm.scale.executor import Source
from vepm.scale.large import LargeGraph
from vepm.training.fitted import Fitted
from vepm.training.prediction import Explanation, attribute, explain, probabilities
from vepm.training.saving import save_model

Tensors = dict[str, Tensor]

HISTORY_COLUMNS = (
    *("phase", "epoch", "loss", "task", "edges", "kl", "disagreement"),
    *("train_accuracy", "val_accuracy", "val_loss", "learning_rate", "seconds"),
)
LARGEST = 20_000  # nodes of a graph that is looked at whole, and of the excerpt of a larger one
LARGEST_FEATURES = 10_000_000  # entries of the feature matrix above which outputs leave it out
RULE = (
    "the epoch of best validation accuracy, then lowest validation loss; test labels were not used"
)
LAST = "the last epoch; there were no validation labels"
PREDICTIONS = ("memberships", "probabilities", "prediction")  # written of all nodes of large graphs
PACKAGES = ("vepm", "torch", "torch_geometric", "numpy", "scikit-learn")


def write_run(
    folder: Path,
    dataset: Dataset,
    fitted: Fitted,
    roles: Tensors,
    extra: dict[str, Any],
    explained: Explanation | None = None,
) -> dict[str, Any]:
    """Write model, settings, metrics, history and outputs of a run; returns the metrics.

    ``roles`` are the indices of the ``train``, ``val`` and ``test`` nodes or graphs, ``extra`` more
    entries of ``metrics.json``, ``explained`` what :func:`explain` gave, if it was called before.
    Of a large graph, outputs are those around a training node.
    """
    model, card, source, nodes = fitted.model, fitted.card, fitted.source, None
    if isinstance(source, LargeGraph) and source.num_nodes <= LARGEST:
        source = single_graph(card.prepare(dataset).graphs[0], model.activation.device)
    if isinstance(source, LargeGraph):
        nodes = neighbourhood(source, next(iter(roles["train"].tolist()), 0), LARGEST)
        sizes = {"nodes": source.num_nodes, "edges": source.num_edges // 2}
        extra = {**extra, "excerpt_of": sizes}
    if explained is None:
        explained = explain(model, source, nodes)
    elif nodes is not None:
        ends, shares = subgraph(nodes, *explained[1:3], relabel_nodes=True)
        explained = explained._replace(edge_index=ends, edge_weight=shares)
    found = Explanation(*(tensor.cpu().contiguous() for tensor in explained))
    tables = _tables(fitted, source, roles, found)
    metrics, x = _metrics(dataset, fitted, roles, tables), dataset.features
    names: dict[str, Any] = {
        "node_names": dataset.node_names and [*chain(*dataset.node_names)],
        "graph_names": dataset.graph_names,
        "feature_names": dataset.feature_names,
    }
    edges = {"edge_index": found.edge_index, "edge_weight": found.edge_weight}
    if nodes is not None:
        whole = {name: tables[name] for name in PREDICTIONS if name in tables}
        write_bytes(folder / "predictions.safetensors", save(whole))
        tables, x = {name: tables[name][nodes] for name in tables}, x.index_select(0, nodes)
        if names["node_names"]:
            names["node_names"] = [names["node_names"][i] for i in nodes.tolist()]
    elif roles["train"].numel() and card.config.model.partition != "even":
        # The parts of an even split do not differ.
        metrics["parts"] = summarise_parts(model, dataset, roles["train"], **edges)
    outputs = {**tables, **edges, "activation": model.activation.detach().cpu()}
    if x.numel() <= LARGEST_FEATURES:
        outputs["features"] = x.to_dense().contiguous()
    if isinstance(grouping := model.partitioner.grouping(), Tensor):
        outputs["assignment"] = grouping.detach().cpu().contiguous()
    write_bytes(folder / "outputs.safetensors", save(outputs))
    save_model(folder / "model.safetensors", model, card)
    write_text(folder / "config.toml", card.config.to_toml())
    rows = ([row.get(name, "") for name in HISTORY_COLUMNS] for row in fitted.history)
    write_csv(folder / "history.csv", HISTORY_COLUMNS, rows)
    names = {key: listed for key, listed in names.items() if listed is not None}
    write_text(folder / "names.json", json.dumps(for_json(names)))
    return write_metrics(folder, metrics | extra)


def write_metrics(folder: Path, metrics: dict[str, Any]) -> dict[str, Any]:
    """Write ``metrics.json``; returns its content."""
    written: dict[str, Any] = for_json(metrics)
    write_text(folder / "metrics.json", json.dumps(written, indent=1))
    return written


def _tables(fitted: Fitted, source: Source, roles: Tensors, found: Explanation) -> Tensors:
    """Tables over all nodes or graphs."""
    y, model, card = source.y, fitted.model, fitted.card
    tables = {"memberships": found.memberships, "y": y}
    for role, rows in roles.items():
        none = torch.zeros(y.numel(), dtype=torch.bool)
        tables[f"{role}_mask"] = none.index_fill(0, rows, True)
    if isinstance(source, GraphStore):
        tables["batch"] = torch.arange(len(source)).repeat_interleave(source.sizes[0].cpu())
    if roles["train"].numel():
        proba = probabilities(model, source, card.config.training.num_samples, card.seed)
        tables |= {
            "community_embeddings": found.community_embeddings,
            "embeddings": found.embeddings,
            "probabilities": proba,
            "prediction": proba.argmax(1),
        }
        if not isinstance(source, LargeGraph):
            tables |= attribute(model, source, proba.argmax(1))._asdict()
    return {name: tensor.cpu().contiguous() for name, tensor in tables.items()}


def facts(dataset: Dataset, seed: int, history: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Entries of ``metrics.json`` that every run has: its data, its cost and the machine."""
    return {
        "dataset": dataset.name,
        "source": dataset.source,
        "task": dataset.task,
        "seed": seed,
        "epochs": len(history),
        "seconds": sum(row["seconds"] for row in history),
        **peak_memory(),
        "versions": describe_machine(),
        "warnings": [],
    }


def _metrics(dataset: Dataset, fitted: Fitted, roles: Tensors, tables: Tensors) -> dict[str, Any]:
    """The contents of ``metrics.json``, without entries that would be meaningless."""
    card, model, y = fitted.card, fitted.model, tables["y"]
    metrics = facts(dataset, card.seed, fitted.history) | {
        "num_classes": dataset.num_classes,
        "class_names": list(dataset.class_names),
        "val_accuracy": None,
        "test_accuracy": None,
        "best_epoch": fitted.best_epoch,
        **{f"num_{role}": rows.numel() for role, rows in roles.items()},
        "device": str(model.activation.device),
        "warnings": list(fitted.warnings),
    }
    if fitted.tried:
        metrics["partitions"] = fitted.tried
        metrics["epochs"] += fitted.spent[0]
        metrics["seconds"] += fitted.spent[1]
    if "probabilities" in tables:
        metrics["rule"] = RULE if roles["val"].numel() else LAST
        metrics["num_samples"] = card.config.training.num_samples
        for role in ("val", "test"):
            found, truth = tables["probabilities"][roles[role]], y[roles[role]]
            if truth.numel():
                metrics[f"{role}_accuracy"] = accuracy(found, truth)
                measures = class_measures(found, truth)
                metrics |= {f"{role}_{name}": value for name, value in measures.items()}
        if truth.numel():
            metrics["ece"] = calibration_error(found, truth)
    known = y >= 0
    if dataset.single_graph and known.any():
        grouping, between = model.partitioner.grouping(), model.interactions.detach().cpu()
        grouping = grouping.detach().cpu() if isinstance(grouping, Tensor) else grouping
        hard = interactions(tables["memberships"], between, grouping).argmax(1)
        metrics["nmi"] = nmi(y[known], hard[known])
    return metrics


def neighbourhood(graph: LargeGraph, start: int, count: int) -> Tensor:
    """So many nodes, ascending: those nearest to ``start``, then on from the first not reached."""
    reached, found = torch.zeros(graph.num_nodes, dtype=torch.bool), 0
    frontier = torch.tensor([start])
    while found < min(count, graph.num_nodes):
        if frontier.numel() == 0:
            frontier = (~reached).nonzero()[:1, 0]
        frontier = frontier[: count - found]
        reached[frontier] = True
        found += frontier.numel()
        around = graph.edges_into(frontier)[1].long().unique()
        frontier = around[~reached[around]]
    return reached.nonzero().flatten()


def describe_machine() -> dict[str, Any]:
    """Versions and hardware behind a number."""
    versions: dict[str, str | None] = dict.fromkeys(PACKAGES)
    for name in PACKAGES:
        # A source tree need not be installed.
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        **versions,
        "commit": commit(),
    }


def peak_memory() -> dict[str, float]:
    """The most memory this process has held at once, in MiB, and the GPU's if there is one."""
    # Linux counts in KiB, macOS in bytes.
    unit = 2**20 if sys.platform == "darwin" else 2**10
    found = {"peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit}
    if torch.cuda.is_available():
        found["peak_gpu_memory_mib"] = torch.cuda.max_memory_allocated() / 2**20
    return found


def commit() -> str | None:
    """Commit of the source tree, or VEPM_COMMIT; a plus if changed since, None if installed."""
    return os.environ.get("VEPM_COMMIT", "").strip() or _commit_of_tree()


@functools.cache
def _commit_of_tree() -> str | None:
    folder = Path(__file__).parent
    if not (folder.parents[1] / ".git").exists():
        return None
    git = functools.partial(subprocess.check_output, cwd=folder, text=True, stderr=subprocess.PIPE)
    try:
        head = git(["git", "rev-parse", "HEAD"]).strip()
        changes = git(["git", "status", "--porcelain", "--untracked-files=no", "."]).strip()
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"{head}+" if changes else head
