"""Estimate of the memory that a training needs, compared with what is available."""

import os
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from vepm.data import Dataset
from vepm.errors import InputError
from vepm.tasks import TASKS

GIB = 2**30
FLOAT = 4
BASE = 100 * 2**20
"""What kernels and the like take for any graph."""
CHUNK = 3 * 2**29
"""Memory of a chunk in inference on a large graph."""
SAFE_SHARE = 0.5
"""Share of the available memory that the suggested batch size should need."""
FEWEST_SUGGESTED = 1000
MEMINFO = Path("/proc/meminfo")
CGROUPS = (
    (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")),
    (
        Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
        Path("/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ),
)


class Widths(NamedTuple):
    """The sizes of a model that decide how much memory a step takes."""

    hidden: int
    layers: int
    """Layers of the bank and the composer."""
    encoder: int
    communities: int
    metacommunities: int
    passes: int
    """Forward passes per step."""


def step_bytes(nodes: float, edges: float, features: int, widths: Widths) -> int:
    """Estimate of the peak memory of a training step, beside the graph itself.

    The factors were measured: how much each width adds to the peak of a process. The estimate is
    within a factor of two of the peak, mostly above it.

    Args:
        nodes: Nodes of the batch.
        edges: Its directed edges.
        features: Width of the features.
        widths: Sizes of the model.
    """
    per_node = (
        5 * features
        + 6 * widths.encoder
        + 30 * widths.communities
        + 8 * widths.hidden * widths.layers / 2 * (1 + widths.passes)
    )
    per_edge = widths.metacommunities * (10 + 3 * widths.passes)
    return int(FLOAT * (nodes * per_node + edges * per_edge)) + BASE


def large_bytes(nodes: int, edges: int, features: int, widths: Widths, batch_size: int) -> int:
    """The same for training by clusters and inference in chunks."""
    step = step_bytes(1.1 * batch_size, 1.1 * edges * batch_size / nodes, features, widths)
    tables = widths.encoder + 2 * widths.communities + widths.metacommunities + 2 * widths.hidden
    # Edges as 32-bit integers, and a few values per node while clusters are computed.
    return 4 * edges + nodes * (100 + FLOAT * tables) + max(step, CHUNK)


def available_bytes(device: torch.device) -> int:
    """Free memory of the device, within the limits of this process."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free)
    found = [_free_in_system()]
    for limit, used in CGROUPS:
        if limit.exists() and used.exists() and (text := limit.read_text().strip()).isdigit():
            found.append(int(text) - int(used.read_text()))
    share = int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    return max(0, min(found)) // share


def _free_in_system() -> int:
    if MEMINFO.exists():
        lines = dict(line.split(":", 1) for line in MEMINFO.read_text().splitlines())
        return int(lines["MemAvailable"].split()[0]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def require_memory(dataset: Dataset, widths: Widths, batch_size: int, device: torch.device) -> None:
    """Refuse a training that will not fit, naming the setting that makes it smaller.

    Args:
        dataset: The graphs.
        widths: Sizes of the model.
        batch_size: Graphs per step or, for a single graph, nodes; 0 for all.
        device: Where the training runs.

    Raises:
        InputError: if it needs more memory than is available.
    """
    graphs, single = dataset.graphs, TASKS[dataset.task].single_graph
    if not single:
        graphs = sorted(graphs, key=lambda graph: -int(graph.num_edges))[: batch_size or None]
    nodes = sum(int(graph.num_nodes or 0) for graph in graphs)
    edges = sum(int(graph.num_edges) for graph in graphs)
    features = _width(graphs[0].x)
    by_clusters = single and 0 < batch_size < nodes
    if by_clusters:
        need = large_bytes(nodes, edges, features, widths, batch_size)
    else:
        need = step_bytes(nodes, edges, features, widths)
    available = available_bytes(device)
    if need <= available:
        return
    fits = SAFE_SHARE * available / need
    if single:
        option = f"--batch-nodes {_round(min(batch_size or nodes, nodes) * fits)}"
    else:
        option = f"--set batch_size={max(1, int(len(graphs) * fits))}"
    raise InputError(
        f"{dataset.name}: training on {nodes:,} nodes and {edges // 2:,} edges "
        f"{'by clusters' if by_clusters else 'at once'} needs about {need / GIB:.1f} GiB, and "
        f"{available / GIB:.1f} GiB are free; train in smaller batches with {option}, or try "
        "anyway with --no-memory-check"
    )


def _width(x: Tensor) -> int:
    """Columns of the features, or non-zeros per row of sparse ones."""
    return -(-x.values().numel() // x.size(0)) if x.layout == torch.sparse_coo else x.size(1)


def _round(number: float) -> int:
    """The number rounded down to one digit and zeros, but not below the smallest suggestion."""
    size = max(int(number), FEWEST_SUGGESTED)
    unit = 10 ** (len(str(size)) - 1)
    return size // unit * unit
