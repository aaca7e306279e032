"""The run folder, which :mod:`vepm.report` reads, and the numbers in it: measures and machines."""

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

import numpy as np
import torch
from safetensors.torch import save
from sklearn.metrics import normalized_mutual_info_score, roc_auc_score
from torch import Tensor

from vepm.data import Dataset
from vepm.data.canonical import canonical_kinds
from vepm.escaping import for_json
from vepm.files import write_bytes, write_csv, write_text
from vepm.nn import VEPM, Adjacency, interactions
from vepm.scale.batches import GraphStore, single_graph
from vepm.scale.chunks import affiliations, classify, posterior_table
from vepm.scale.executor import Source
from vepm.scale.large import LargeGraph
from vepm.tasks import TASKS
from vepm.training.fitted import Fitted
from vepm.training.prediction import Explanation, attribute, explain, probabilities, seeded
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
# Edges, evenly spaced, by which shares are ranked against kinds.
RANKED_EDGES = 200_000
FEWEST_JOINED = 50  # edges between training nodes below which their homophily is mostly chance


def write_run(
    folder: Path,
    dataset: Dataset,
    fitted: Fitted,
    roles: Tensors,
    extra: dict[str, Any],
    explained: Explanation | None = None,
) -> dict[str, Any]:
    """Write model, settings, metrics, history and outputs of a run; gives the metrics.

    ``roles`` are the indices of the ``train``, ``val`` and ``test`` nodes or graphs, ``extra`` more
    entries of ``metrics.json``. Of a large graph, outputs are those around a training node.
    """
    model, card, source = fitted.model, fitted.card, fitted.source
    if isinstance(source, LargeGraph) and source.num_nodes <= LARGEST:
        source = single_graph(card.prepare(dataset).graphs[0], model.activation.device)
    nodes = None
    if isinstance(source, LargeGraph):
        nodes = neighbourhood(source, next(iter(roles["train"].tolist()), 0), LARGEST)
        explained = _explain_excerpt(model, source, nodes, explained)
        sizes = {"nodes": source.num_nodes, "edges": source.num_edges // 2}
        extra = {**extra, "excerpt_of": sizes}
    found = explained or explain(model, source)
    tables = _tables(fitted, source, roles, found)
    metrics, x = _metrics(dataset, fitted, roles, tables), dataset.features
    names: dict[str, Any] = {
        "node_names": dataset.node_names and [*chain(*dataset.node_names)],
        "graph_names": dataset.graph_names,
        "feature_names": dataset.feature_names,
    }
    edges = _on_cpu({"edge_index": found.edge_index, "edge_weight": found.edge_weight})
    if nodes is not None:
        whole = {name: tables[name] for name in PREDICTIONS if name in tables}
        write_bytes(folder / "predictions.safetensors", save(whole))
        tables, x = {name: tables[name][nodes] for name in tables}, x.index_select(0, nodes)
        if names["node_names"]:
            names["node_names"] = [names["node_names"][i] for i in nodes.tolist()]
    elif roles["train"].numel() and card.config.model.partition != "even":
        # Parts of an even split differ in nothing.
        metrics["parts"] = _parts(dataset, model, edges, roles["train"])
    outputs = {**tables, **edges, "activation": model.activation.detach().cpu()}
    if x.numel() <= LARGEST_FEATURES:
        outputs["features"] = x.to_dense().contiguous()
    if isinstance(grouping := model.partitioner.grouping(), Tensor):
        outputs |= _on_cpu({"assignment": grouping})
    write_bytes(folder / "outputs.safetensors", save(outputs))
    save_model(folder / "model.safetensors", model, card)
    write_text(folder / "config.toml", card.config.to_toml())
    rows = ([row.get(name, "") for name in HISTORY_COLUMNS] for row in fitted.history)
    write_csv(folder / "history.csv", HISTORY_COLUMNS, rows)
    names = {key: listed for key, listed in names.items() if listed is not None}
    write_text(folder / "names.json", json.dumps(for_json(names)))
    return write_metrics(folder, metrics | extra)


def write_metrics(folder: Path, metrics: dict[str, Any]) -> dict[str, Any]:
    """Write ``metrics.json``; gives what is in it."""
    written: dict[str, Any] = for_json(metrics)
    write_text(folder / "metrics.json", json.dumps(written, indent=1))
    return written


@torch.no_grad()
def _explain_excerpt(
    model: VEPM, graph: LargeGraph, nodes: Tensor, explained: Explanation | None
) -> Explanation:
    """What ``explain`` gives, with the edges between some nodes alone."""
    if explained is None:
        model.eval()
        with seeded(model):
            z = affiliations(model, posterior_table(model, graph), sample=False)
            found = classify(model, graph, z)
        explained = Explanation(z, nodes, z, found.community_embeddings, found.logits)
    edges = Adjacency(graph.inside(nodes).to(graph.device), nodes.numel())
    shares = model.split_edges(explained.memberships[nodes].to(graph.device), edges)
    return explained._replace(edge_index=edges.edge_index, edge_weight=shares)


def _tables(fitted: Fitted, source: Source, roles: Tensors, found: Explanation) -> Tensors:
    """What is known of every node or graph."""
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
    return _on_cpu(tables)


def _on_cpu(tensors: Tensors) -> Tensors:
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}


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
    """The contents of ``metrics.json``; what would mean nothing is left out."""
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
                measures = TASKS[dataset.task].measures(found, truth)
                metrics |= {f"{role}_{name}": value for name, value in measures.items()}
        if truth.numel():
            metrics["ece"] = calibration_error(found, truth)
    known = y >= 0
    if dataset.single_graph and known.any():
        grouping, between = model.partitioner.grouping(), model.interactions.detach().cpu()
        grouping = grouping.detach().cpu() if isinstance(grouping, Tensor) else grouping
        hard = interactions(tables["memberships"], between, grouping).argmax(1)
        metrics["nmi"] = agreement(hard[known], y[known])
    return metrics


def _parts(dataset: Dataset, model: VEPM, edges: Tensors, train: Tensor) -> list[dict[str, Any]]:
    graph, kinds, ends = dataset.graphs[0], None, edges["edge_index"]
    if not dataset.single_graph:
        # Neither labels nor kinds are those of the nodes.
        train = train[:0]
    elif "edge_kind" in graph:
        # The split has both directions of every edge, a directed graph perhaps one.
        kinds = canonical_kinds(ends, graph.edge_index, graph.edge_kind)
    known = dataset.labels, train, kinds, dataset.kind_names
    return summarise_parts(model, ends, edges["edge_weight"], *known)


def neighbourhood(graph: LargeGraph, start: int, count: int) -> Tensor:
    """So many nodes, ascending: those nearest to one, and on from the first not reached."""
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


def accuracy(probabilities: Tensor, y: Tensor) -> float:
    """Share of labels [n] that the most probable class of [n, classes] hits."""
    return float((probabilities.argmax(1) == y).double().mean())


def calibration_error(probabilities: Tensor, y: Tensor, bins: int = 15) -> float:
    """Expected calibration error: how far confidence is from accuracy, over equal-width bins."""
    confidence, predicted = probabilities.double().max(1)
    hit = (predicted == y).double()
    bucket = (confidence * bins).long().clamp(max=bins - 1)
    gap = torch.zeros(bins, dtype=torch.double, device=hit.device)
    gap.index_add_(0, bucket, hit - confidence)
    return round(float(gap.abs().sum()) / max(y.numel(), 1), 12)


def agreement(communities: Tensor, y: Tensor) -> float:
    """Normalised mutual information of two groupings of the same nodes."""
    return float(normalized_mutual_info_score(y.cpu().numpy(), communities.cpu().numpy()))


@torch.no_grad()
def summarise_parts(
    model: VEPM,
    edge_index: Tensor,
    shares: Tensor,
    labels: Tensor,
    train: Tensor,
    kinds: Tensor | None = None,
    kind_names: tuple[str, ...] | None = None,
) -> list[dict[str, Any]]:
    """What each metacommunity's part of the edges is worth, given their shares [E, K].

    ``relevance`` is the weight the labels gave it in the composer, one on average, None without;
    ``share`` its share of all edges; ``homophily`` how often its edges join equal labels among the
    training nodes, None if few edges join two; ``kinds`` the share of its edges that is of each
    known kind. Labels are those of nodes [N], kinds those of edges [E, R].
    """
    relevance, shares = model.composer.relevance, shares.double()
    weights = [None] * shares.size(1) if relevance is None else relevance.weight.tolist()
    total = shares.sum(0).clamp_min(torch.finfo(torch.float64).tiny)
    known = torch.isin(edge_index, train).all(0)
    enough = int(known.sum()) >= 2 * FEWEST_JOINED
    equal = labels[edge_index[0, known]] == labels[edge_index[1, known]]
    among, joined = shares[known].sum(0), (shares[known] * equal[:, None]).sum(0)
    by_kind = {}
    if kinds is not None:
        by_kind = dict(zip(kind_names or (), kinds.double().t() @ shares, strict=True))
    return [
        {
            "relevance": weights[k],
            "share": float(total[k] / max(len(shares), 1)),
            "homophily": float(joined[k] / among[k]) if enough and among[k] > 0 else None,
            "kinds": {name: float(row[k] / total[k]) for name, row in by_kind.items()},
        }
        for k in range(shares.size(1))
    ]


def agreement_with_kinds(shares: Tensor, kinds: Tensor) -> tuple[float, float]:
    """Compare shares [E, K] with known kinds [E, R], which the model never saw.

    Gives the normalised mutual information of an edge's strongest part and its kind, over edges of
    one kind, and the ROC AUC with which the best part of each kind ranks its edges, on average.
    """
    single = kinds.sum(1) == 1
    parts = shares[single].argmax(1).numpy()
    information = normalized_mutual_info_score(kinds[single].int().argmax(1).numpy(), parts)
    every = max(1, len(shares) // RANKED_EDGES)
    some, truth = shares[::every].numpy(), kinds[::every].numpy()
    areas = [
        max(roc_auc_score(of_kind, part) for part in some.T)
        for of_kind in truth.T
        if of_kind.any() and not of_kind.all()
    ]
    return float(information), float(np.mean(areas)) if areas else float("nan")


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
