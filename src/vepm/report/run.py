"""A finished run, read from its folder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from vepm import nn
from vepm.errors import InputError
from vepm.files import read_toml
from vepm.report.checks import OF_ITEMS, OF_NODES, SPLITS, check_outputs
from vepm.runs import schema
from vepm.tasks import TASKS

Array = NDArray[Any]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
BENCHMARKS = Path(__file__).parent / "assets" / "benchmarks.toml"
SOURCES = ("Planetoid", "TU collection")


@dataclass(frozen=True)
class Run:
    """Everything a report shows, as a run folder holds it.

    Labels, predictions, probabilities and masks are over *items*: nodes in a node task, graphs
    in a graph task. What a run has no use for is None.
    """

    folder: Path
    settings: Mapping[str, Any]
    """The contents of ``config.toml``."""
    metrics: Mapping[str, Any]
    """The contents of ``metrics.json``."""
    history: Mapping[str, Array]
    """Columns of ``history.csv``; ``phase`` is text, the others numbers, NaN where empty."""
    edge_index: Ints
    """Edges in both directions [2, E]."""
    edge_weight: Floats
    """Share of each edge in each metacommunity [E, K]."""
    memberships: Floats
    """Posterior mean of Z [N, C]."""
    activation: Floats
    """Activation of each community [C]."""
    labels: Ints | None
    """True class of each item, -1 where unknown."""
    prediction: Ints | None
    probabilities: Floats | None
    """Probability of each class [items, classes]."""
    community_embeddings: Floats | None
    """What each metacommunity knows of each node [N, K, D]."""
    log_odds: Floats | None
    """Log-odds of each item's prediction at the posterior mean."""
    log_odds_without: Floats | None
    """The same when one metacommunity at a time has no say [items, K]."""
    label_without: Ints | None
    """The class each item would get then [items, K]."""
    batch: Ints | None
    """Graph of each node [N], for graph tasks."""
    assignment: Floats | None
    """Share of each community in each metacommunity [C, K], where that was learned."""
    features: Floats | None
    """Node features [N, F]."""
    masks: Mapping[str, Bools]
    """Which items were in ``train``, ``val`` and ``test``."""
    class_names: tuple[str, ...]
    node_names: tuple[str, ...]
    graph_names: tuple[str, ...]
    feature_names: tuple[str, ...]

    @property
    def task(self) -> str:
        """``"node"`` or ``"graph"``."""
        return str(self.metrics["task"])

    @property
    def title(self) -> str:
        """Name of the dataset."""
        return str(self.metrics["dataset"])

    @property
    def member(self) -> Bools:
        """Who is a member of which metacommunity [N, K]."""
        return nn.members(_tensor(self.interaction), _tensor(self.batch)).numpy()

    @cached_property
    def interaction(self) -> Floats:
        """Each node's links by metacommunity [N, K], see :func:`vepm.nn.interactions`."""
        return interactions(self.memberships, self.activation, self.grouping, self.batch)

    @property
    def grouping(self) -> Floats | int:
        """How communities are grouped: an assignment [C, K], or the number of segments."""
        return self.num_metacommunities if self.assignment is None else self.assignment

    @property
    def confidence(self) -> Floats:
        """Probability of each item's likeliest class; one where there are no probabilities."""
        return np.ones(self.num_items) if self.probabilities is None else self.probabilities.max(1)

    @property
    def community_names(self) -> list[str]:
        """Communities numbered as in Python and in CSV files."""
        return [f"Community {k}" for k in range(self.num_metacommunities)]

    @property
    def items(self) -> str:
        """What is labelled, in the plural."""
        return f"{self.task}s"

    @property
    def num_nodes(self) -> int:
        """Number of nodes, of all graphs together."""
        return len(self.memberships)

    @property
    def num_metacommunities(self) -> int:
        """Number of parts K each edge is split into."""
        return self.edge_weight.shape[1]

    @property
    def num_items(self) -> int:
        """Number of nodes or graphs that may have labels."""
        return self.num_nodes if self.batch is None else len(self.graph_names)

    def labelled(self, split: str) -> Bools:
        """Which items of a split have labels."""
        if self.labels is None or split not in self.masks:
            return np.zeros(self.num_items, dtype=bool)
        return self.masks[split] & (self.labels >= 0)


def listed(names: Sequence[str]) -> str:
    """Names in a sentence: commas, and an "and" before the last."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def interactions(
    memberships: Floats, activation: Floats, grouping: Floats | int, batch: Ints | None = None
) -> Floats:
    """:func:`vepm.nn.interactions` of arrays: each node's links by metacommunity [N, K]."""
    return nn.interactions(*map(_tensor, (memberships, activation, grouping, batch))).numpy()


def _tensor(array: Any) -> Any:
    """A tensor of an array's numbers; a number, or None, as it is."""
    if not isinstance(array, np.ndarray):
        return array
    return torch.from_numpy(array.astype(np.float64 if array.dtype.kind == "f" else np.int64))


def read_run(folder: str | Path) -> Run:
    """Read a run folder.

    Args:
        folder: What ``vepm train`` or ``vepm communities`` wrote: ``config.toml``,
            ``metrics.json``, ``history.csv``, ``outputs.safetensors`` and perhaps
            ``names.json``.

    Raises:
        InputError: A file is missing, damaged, or at odds with the others.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"{folder}: no such run folder; `vepm train` writes one")
    for name in schema.FILES:
        # Reading a pipe or a device might never end.
        if (folder / name).exists() and not (folder / name).is_file():
            raise InputError(f"{folder / name}: not a file")
    metrics = schema.read_metrics(folder / schema.METRICS)
    outputs = schema.read_outputs(folder / schema.OUTPUTS)
    sizes = check_outputs(folder / schema.OUTPUTS, outputs, metrics["task"])
    names = schema.read_json(folder / schema.NAMES, required=False)
    names.setdefault("feature_names", metrics.get("feature_names"))
    numbers = [outputs[name] for name in ("y", "prediction") if name in outputs]
    largest = [int(found.max()) + 1 for found in numbers if found.size]
    classes = max(metrics.get("num_classes") or 0, sizes.get("classes", 0), *largest)
    found: dict[str, Any] = {
        "class_names": _names(metrics.get("class_names"), classes, "class"),
        "node_names": _names(names.get("node_names"), sizes["nodes"], "node"),
        "graph_names": _names(names.get("graph_names"), sizes["items"], "graph")[: sizes["items"]],
        "feature_names": _names(names["feature_names"], sizes.get("features", 0), "feature"),
    }
    return Run(
        folder=folder,
        settings=read_toml(folder / schema.CONFIG),
        metrics=metrics,
        history=schema.read_history(folder / schema.HISTORY),
        **found | _benchmark(metrics, found["class_names"], outputs.get("features")),
        **_fields(outputs, metrics["task"]),
    )


def _fields(outputs: Mapping[str, Array], task: str) -> dict[str, Any]:
    """Fields of a Run that come from arrays of the file."""
    fields: dict[str, Any] = dict.fromkeys((*OF_NODES, *OF_ITEMS))
    for name, (kinds, _) in (OF_NODES | OF_ITEMS).items():
        if name in outputs:
            fields[name] = outputs[name].astype(np.float64 if kinds == "f" else np.int64)
    masks = {split: fields.pop(f"{split}_mask") for split in SPLITS}
    fields["masks"] = {split: mask == 1 for split, mask in masks.items() if mask is not None}
    if TASKS[task].single_graph:
        fields["batch"] = None
    return {"labels": fields.pop("y"), **fields}


def _names(given: Any, count: int, kind: str) -> tuple[str, ...]:
    """The given names, printable, or numbered ones where they are absent or too few."""
    if not isinstance(given, list) or len(given) < count:
        return tuple(f"{kind} {number}" for number in range(count))
    return tuple("".join(c if c.isprintable() else " " for c in str(n)) for n in given)


def _benchmark(
    metrics: Mapping[str, Any], classes: tuple[str, ...], features: Array | None
) -> dict[str, Any]:
    """Names of classes and features of a benchmark whose files have only numbers."""
    known = read_toml(BENCHMARKS).get(str(metrics["dataset"]), {})
    if not str(metrics.get("source")).startswith(SOURCES):
        return {}
    found = {}
    if all(map(str.isdigit, classes)) and len(known.get("classes", ())) == len(classes):
        found["class_names"] = tuple(known["classes"])
    counts = {count: name for name, count in known.get("features", {}).items()}
    if features is not None and set(having := (features > 0).sum(0).tolist()) == set(counts):
        found["feature_names"] = tuple(counts[count] for count in having)
    return found
