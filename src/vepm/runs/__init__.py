"""The run folder: what a finished run leaves in it, which :mod:`vepm.report` reads."""

import json
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from vepm.data import Dataset
from vepm.data.edges import canonical_kinds
from vepm.escaping import for_json
from vepm.files import write_bytes, write_csv, write_text
from vepm.nn import VEPM, Adjacency, interactions
from vepm.runs import metrics as measuring
from vepm.scale.batches import GraphBatch, GraphStore, single_graph
from vepm.scale.chunks import affiliations, classify, posterior_table
from vepm.scale.large import LargeGraph
from vepm.tasks import TASKS
from vepm.training.model_file import save_model
from vepm.training.prediction import Explanation, attribute, explain, probabilities, seeded
from vepm.training.state import Fitted

Tensors = dict[str, Tensor]

HISTORY_COLUMNS = (
    *("phase", "epoch", "loss", "task", "edges", "kl", "disagreement"),
    *("train_accuracy", "val_accuracy", "val_loss", "learning_rate", "seconds"),
)
LARGEST = 20_000
"""Nodes of a graph that is looked at as a whole, and of the excerpt of a larger one."""
LARGEST_FEATURES = 10_000_000
"""Entries of the feature matrix above which outputs leave it out."""
RULE = (
    "the epoch of best validation accuracy, then lowest validation loss; test labels were not used"
)
LAST = "the last epoch; there were no validation labels"


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
    entries of ``metrics.json``, ``explained`` what ``explain`` gives, if it is known already.
    """
    source, names = fitted.source, _names(dataset)
    if isinstance(source, LargeGraph) and source.num_nodes <= LARGEST:
        prepared = fitted.card.prepare(dataset).graphs[0]
        source = single_graph(prepared, fitted.model.activation.device)
    if isinstance(source, LargeGraph):
        whole, outputs, nodes = _large_outputs_of(dataset, fitted, source, roles)
        metrics = _metrics(dataset, fitted, roles, whole)
        metrics["excerpt_of"] = {"nodes": source.num_nodes, "edges": source.num_edges // 2}
        if "node_names" in names:
            names["node_names"] = [names["node_names"][i] for i in nodes.tolist()]
        write_bytes(folder / "predictions.safetensors", save(whole))
    else:
        outputs = _outputs_of(dataset, fitted, source, roles, explained)
        metrics = _metrics(dataset, fitted, roles, outputs)
        # Parts of an even split differ in nothing.
        if roles["train"].numel() and fitted.card.config.model.partition != "even":
            found = _parts(dataset, fitted.model, outputs, roles["train"])
            metrics["parts"] = [part._asdict() for part in found]
    write_bytes(folder / "outputs.safetensors", save(outputs))
    save_model(folder / "model.safetensors", fitted.model, fitted.card)
    write_text(folder / "config.toml", fitted.card.config.to_toml())
    rows = ([row.get(name, "") for name in HISTORY_COLUMNS] for row in fitted.history)
    write_csv(folder / "history.csv", HISTORY_COLUMNS, rows)
    write_text(folder / "names.json", json.dumps(for_json(names)))
    written: dict[str, Any] = for_json({**metrics, **extra})
    write_text(folder / "metrics.json", json.dumps(written, indent=1))
    return written


def _metrics(dataset: Dataset, fitted: Fitted, roles: Tensors, outputs: Tensors) -> dict[str, Any]:
    """The contents of ``metrics.json``; what would mean nothing is left out."""
    card, model, y = fitted.card, fitted.model, fitted.source.y.cpu()
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
        "epochs": len(fitted.history) + fitted.spent[0],
        "seconds": sum(row["seconds"] for row in fitted.history) + fitted.spent[1],
        **measuring.peak_memory(),
        **{f"num_{role}": rows.numel() for role, rows in roles.items()},
        "device": str(model.activation.device),
        "versions": measuring.describe_machine(),
        "warnings": list(fitted.warnings),
    }
    if fitted.tried:
        metrics["partitions"] = fitted.tried
    if "probabilities" in outputs:
        metrics["rule"] = RULE if roles["val"].numel() else LAST
        metrics["num_samples"] = card.config.training.num_samples
        for role in ("val", "test"):
            rows = roles[role]
            if rows.numel():
                found, truth = outputs["probabilities"][rows], y[rows]
                metrics[f"{role}_accuracy"] = measuring.accuracy(found, truth)
                measures = TASKS[dataset.task].measures(found, truth)
                metrics |= {f"{role}_{name}": value for name, value in measures.items()}
        if roles["test"].numel():
            metrics["ece"] = measuring.calibration_error(found, truth)
    known = y >= 0
    if dataset.single_graph and known.any():
        heads = model.partitioner.num_metacommunities
        grouping = _assignment(model).get("assignment", heads)
        between = model.interactions.detach().cpu()
        hard = interactions(outputs["memberships"], between, grouping).argmax(1)
        metrics["nmi"] = measuring.agreement(hard[known], y[known])
    return metrics


def _parts(dataset: Dataset, model: VEPM, outputs: Tensors, train: Tensor) -> list[measuring.Part]:
    edges = (outputs["edge_index"], outputs["edge_weight"], outputs["y"])
    if not dataset.single_graph:
        # Of graphs, neither labels nor kinds are those of the nodes.
        return measuring.summarise_parts(model, *edges, train[:0])
    graph = dataset.graphs[0]
    if "edge_kind" not in graph:
        return measuring.summarise_parts(model, *edges, train)
    # The split has both directions of every edge, a directed graph perhaps one.
    kinds = canonical_kinds(edges[0], graph.edge_index, graph.edge_kind)
    return measuring.summarise_parts(model, *edges, train, kinds, dataset.kind_names)


def _names(dataset: Dataset) -> dict[str, Any]:
    nodes = dataset.node_names
    found = {
        "node_names": None if nodes is None else chain.from_iterable(nodes),
        "graph_names": dataset.graph_names,
        "feature_names": dataset.feature_names,
    }
    return {key: list(names) for key, names in found.items() if names is not None}


def _outputs_of(
    dataset: Dataset,
    fitted: Fitted,
    source: GraphBatch | GraphStore,
    roles: Tensors,
    explained: Explanation | None,
) -> Tensors:
    """All arrays of a run on graphs that are looked at as a whole."""
    model = fitted.model
    found = explained or explain(model, source)
    outputs = {
        "edge_index": found.edge_index,
        "edge_weight": found.edge_weight,
        "memberships": found.memberships,
        **_known(dataset, model, source.y, roles),
    }
    if roles["train"].numel():
        samples = fitted.card.config.training.num_samples
        proba = probabilities(model, source, samples, seed=fitted.card.seed)
        outputs |= {
            "community_embeddings": found.community_embeddings,
            "embeddings": found.embeddings,
            "probabilities": proba,
            "prediction": proba.argmax(1),
            **attribute(model, source, proba.argmax(1))._asdict(),
        }
    if not isinstance(source, GraphBatch):
        outputs["batch"] = torch.arange(len(source)).repeat_interleave(source.nodes.cpu())
    return _on_cpu(outputs)


@torch.no_grad()
def _large_outputs_of(
    dataset: Dataset, fitted: Fitted, graph: LargeGraph, roles: Tensors
) -> tuple[Tensors, Tensors, Tensor]:
    """What is known of every node of a large graph, the arrays of an excerpt, and its nodes.

    The excerpt is the neighbourhood of a training node.
    """
    model, train = fitted.model.eval(), roles["train"]
    with seeded(model):
        z = affiliations(model, posterior_table(model, graph), sample=False)
        found = classify(model, graph, z) if train.numel() else None
    nodes = neighbourhood(graph, int(train[0]) if train.numel() else 0, LARGEST)
    edges = Adjacency(graph.inside(nodes).to(graph.device), nodes.numel())
    whole = {"memberships": z}
    excerpt = {
        "edge_index": edges.edge_index,
        "edge_weight": model.split_edges(z[nodes].to(graph.device), edges),
        **_known(dataset, model, graph.y, roles, nodes),
    }
    if found is not None:
        samples, proba = fitted.card.config.training.num_samples, model.probabilities(found.logits)
        if samples:
            proba = probabilities(model, graph, samples, fitted.card.seed)
        whole |= {"probabilities": proba, "prediction": proba.argmax(1)}
        excerpt["community_embeddings"] = found.community_embeddings[nodes]
        excerpt["embeddings"] = found.logits[nodes]
    excerpt |= {name: table[nodes] for name, table in whole.items()}
    return _on_cpu(whole), _on_cpu(excerpt), nodes


def neighbourhood(graph: LargeGraph, start: int, count: int) -> Tensor:
    """So many nodes, ascending: those nearest to one, and on from the first not reached."""
    reached = torch.zeros(graph.num_nodes, dtype=torch.bool)
    frontier = torch.tensor([start])
    found = 0
    while found < min(count, graph.num_nodes):
        if frontier.numel() == 0:
            frontier = (~reached).nonzero()[:1, 0]
        frontier = frontier[: count - found]
        reached[frontier] = True
        found += frontier.numel()
        around = graph.edges_into(frontier)[1].long().unique()
        frontier = around[~reached[around]]
    return reached.nonzero().flatten()


def _assignment(model: VEPM) -> Tensors:
    """Which metacommunity each community belongs to [C, K], where that was learned."""
    grouping = model.partitioner.grouping()
    return {"assignment": grouping.detach().cpu()} if isinstance(grouping, Tensor) else {}


def _known(
    dataset: Dataset, model: VEPM, y: Tensor, roles: Tensors, nodes: Tensor | None = None
) -> Tensors:
    """Activations; labels, roles and, unless they are too many, given features of all or some."""
    known = {"y": y}
    for role, rows in roles.items():
        none = torch.zeros(y.numel(), dtype=torch.bool)
        known[f"{role}_mask"] = none.index_fill(0, rows, True)
    if nodes is not None:
        known = {name: values[nodes] for name, values in known.items()}
    x = dataset.features if nodes is None else dataset.features.index_select(0, nodes)
    if x.numel() <= LARGEST_FEATURES:
        known["features"] = x.to_dense()
    return known | {"activation": model.activation} | _assignment(model)


def _on_cpu(tensors: Tensors) -> Tensors:
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
