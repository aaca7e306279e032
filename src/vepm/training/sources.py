"""Datasets as training and prediction read them: on a device, in parts that fit there."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from sklearn.model_selection import train_test_split
from torch import Tensor
from torch_geometric.data import Data

from vepm.data import Dataset
from vepm.data.canonical import is_sparse
from vepm.errors import InputError
from vepm.scale.batches import GRAPHS_AT_ONCE, GraphStore, single_graph
from vepm.scale.executor import Run, Source
from vepm.scale.large import LargeGraph
from vepm.tasks import TASKS
from vepm.training.card import ModelCard
from vepm.training.config import INEXACT, Config

FEWEST_TO_SPLIT = 10  # with fewer labels, none is set aside
FEWEST_NODES = 2  # nodes of the smallest graph; a single node has no variance to normalise by
GIB = 2**30
FLOAT = 4
BASE = 100 * 2**20  # memory of kernels and the like, for any graph
CHUNK = 3 * 2**29  # memory of a chunk in inference on a large graph
COPIES = 20  # tables of the size of the weights at the peak of training, measured
SAFE_SHARE = 0.5  # share of the available memory that a suggested batch size should need
FEWEST_SUGGESTED = 1000
MOST_RUNS = 64  # runs at once on a GPU; more do not use it better
MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")
CGROUPS = [  # files with the limit and the use of a container, in versions 2 and 1
    (_CGROUP / "memory.max", _CGROUP / "memory.current"),
    (_CGROUP / "memory/memory.limit_in_bytes", _CGROUP / "memory/memory.usage_in_bytes"),
]


def pick_device(name: str) -> torch.device:
    """``"auto"`` takes a GPU if there is one; ``"cpu"`` and ``"cuda"`` insist."""
    gpus = []
    if torch.cuda.is_available():
        gpus = ["cuda", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))]
    if name == "auto":
        name = "cuda" if gpus else "cpu"
    if name.startswith("cuda") and not gpus:
        raise InputError("device cuda was asked for, but no GPU is available; use auto or cpu")
    if name not in ("cpu", *gpus):
        raise InputError(f"there is no device {name!r}; use auto, cpu or cuda")
    return torch.device(name)


def set_aside(rows: Tensor, y: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Split the indices of labelled nodes or graphs into four fifths and one, by class.

    Of each class at least one is set aside, unless it is the only one; of fewer than ten labels or
    a single class, none.
    """
    counts = torch.bincount(y[rows])
    spare, classes = rows[counts[y[rows]] > 1], int((counts > 1).sum())
    if len(spare) < FEWEST_TO_SPLIT or classes < 2:
        return rows, rows[:0]
    size = max(len(spare) // 5, classes)
    labels = y[spare].numpy()
    _, aside = train_test_split(spare.numpy(), test_size=size, stratify=labels, random_state=seed)
    aside = torch.from_numpy(np.sort(aside))
    return rows[~torch.isin(rows, aside)].sort().values, aside


def in_batches(dataset: Dataset, device: torch.device, config: Config) -> Source:
    """The dataset's graphs as the settings take them: stored together, as one batch, or large."""
    if not TASKS[dataset.task].single_graph:
        return GraphStore(dataset.graphs, device)
    graph = dataset.graphs[0]
    if not 0 < config.training.batch_size < (graph.num_nodes or 0):
        return single_graph(graph, device)
    needs_whole = {
        f"partition {config.model.partition}": config.model.partition in ("random", "kinds"),
        "random inputs": config.model.inputs == "random",
        "the subsampled likelihood": config.training.likelihood == "subsampled",
    }
    for name in (name for name, needed in needs_whole.items() if needed):
        raise InputError(
            f"settings: {name} depends on the whole graph, and this one is trained by clusters "
            f"of {config.training.batch_size} nodes; choose another or set batch_size = 0"
        )
    return LargeGraph(graph, device)


def group_runs(dataset: Dataset, config: Config, runs: Sequence[Run], most: int) -> list[list[int]]:
    """Indices of the runs that can train at once, in groups of at most ``most``.

    Runs of a group take equally many steps per epoch. Clusters, likelihoods that sample nodes or
    edges, graphs with weighted edges and graphs of a single node are trained one run at a time.
    """
    single, size = TASKS[dataset.task].single_graph, config.training.batch_size
    graphs = dataset.graphs
    if single:
        apart = size > 0
    else:
        apart = min(g.num_nodes for g in graphs) < FEWEST_NODES or "edge_weight" in graphs[0]
    if most < 2 or apart or config.training.likelihood in INEXACT or is_sparse(graphs[0].x):
        return [[i] for i in range(len(runs))]
    groups: dict[int, list[int]] = {}
    for i, run in enumerate(runs):
        # Runs have their labels in common, or the steps that these take.
        labels = run.train_on.numel()
        if not single:
            labels = -(-labels // size) if size else min(labels, 1)
        groups.setdefault(labels, []).append(i)
    return [group[i : i + most] for group in groups.values() for i in range(0, len(group), most)]


def step_bytes(nodes: float, edges: float, features: int, config: Config) -> int:
    """Estimate of the peak memory of a training step, without the graph itself.

    The factors were measured; the estimate is within a factor of two of the peak, mostly above it.
    """
    model, passes = config.model, config.training.passes
    layers = model.bank_layers + model.composer_layers
    per_node = (
        5 * features
        + 6 * model.encoder_channels
        + 30 * model.num_communities
        + 8 * model.hidden_channels * layers / 2 * (1 + passes)
    )
    per_edge = model.num_metacommunities * (10 + 3 * passes)
    return int(FLOAT * (nodes * per_node + edges * per_edge)) + BASE


def large_bytes(nodes: int, edges: int, features: int, config: Config) -> int:
    """The same for training by clusters and inference in chunks."""
    model, batch_size = config.model, config.training.batch_size
    step = step_bytes(1.1 * batch_size, 1.1 * edges * batch_size / nodes, features, config)
    widths = 2 * (model.num_communities + model.hidden_channels)
    tables = model.encoder_channels + model.num_metacommunities + widths
    # Edges as 32-bit integers, and a few values per node while clusters are computed.
    return 4 * edges + nodes * (100 + FLOAT * tables) + max(step, CHUNK)


def available_bytes(device: torch.device) -> int:
    """Free memory of the device, within the limits of this process."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free)
    if MEMINFO.exists():
        lines = dict(line.split(":", 1) for line in MEMINFO.read_text().splitlines())
        found = [int(lines["MemAvailable"].split()[0]) * 1024]
    else:
        found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for limit, used in CGROUPS:
        if limit.exists() and used.exists() and (text := limit.read_text().strip()).isdigit():
            found.append(int(text) - int(used.read_text()))
    share = int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    return max(0, min(found)) // share


def require_memory(dataset: Dataset, card: ModelCard, device: torch.device) -> None:
    """Refuse a training that will not fit, naming the setting that makes it smaller."""
    single, batch_size = TASKS[dataset.task].single_graph, card.config.training.batch_size
    graphs = dataset.graphs if single else _largest(dataset, batch_size or len(dataset.graphs))
    sizes = nodes, edges, _ = _sizes(graphs)
    by_clusters = single and 0 < batch_size < nodes
    need = (large_bytes if by_clusters else step_bytes)(*sizes, card.config)
    available, weights = available_bytes(device), COPIES * FLOAT * card.num_weights()
    if need + weights <= available:
        return
    fits = SAFE_SHARE * available / need
    if weights > available:
        need = weights
        advice = f"choose smaller widths or fewer than {card.width:,} feature columns"
    elif single:
        size = max(int(min(batch_size or nodes, nodes) * fits), FEWEST_SUGGESTED)
        unit = 10 ** (len(str(size)) - 1)
        advice = f"train in smaller batches with --batch-nodes {size // unit * unit}"
    else:
        size = max(1, int(len(graphs) * fits))
        advice = f"train in smaller batches with --set batch_size={size}"
    raise InputError(
        f"{dataset.name}: training {card.num_weights():,} weights on {nodes:,} nodes and "
        f"{edges // 2:,} edges {'by clusters' if by_clusters else 'at once'} needs about "
        f"{need / GIB:.1f} GiB, and {available / GIB:.1f} GiB are free; {advice}, or try anyway "
        "with --no-memory-check"
    )


def most_runs_at_once(dataset: Dataset, config: Config, device: str = "auto") -> int:
    """How many runs to train at once: as many as fit on a GPU; a CPU gains nothing from it."""
    where = pick_device(device)
    if where.type != "cuda":
        return 1
    # Validation reads more graphs at once than a step.
    need = step_bytes(*_sizes(_largest(dataset, GRAPHS_AT_ONCE)), config)
    return max(1, min(MOST_RUNS, int(SAFE_SHARE * available_bytes(where) / need)))


def _largest(dataset: Dataset, count: int) -> list[Data]:
    return sorted(dataset.graphs, key=lambda graph: -int(graph.num_edges))[:count]


def _sizes(graphs: list[Data]) -> tuple[int, int, int]:
    """Nodes and edges of graphs, and columns of features or non-zeros per row of sparse ones."""
    nodes = sum(int(graph.num_nodes or 0) for graph in graphs)
    x = graphs[0].x
    width = -(-x.values().numel() // x.size(0)) if x.layout == torch.sparse_coo else x.size(1)
    return nodes, sum(int(graph.num_edges) for graph in graphs), width
