"""How much memory a training will need, and whether there is so much."""

import os
from pathlib import Path

import torch
from torch import Tensor

from vepm.data import Dataset
from vepm.errors import InputError
from vepm.training.config import Config

GIB = 2**30
FLOAT = 4
BESIDES = 100 * 2**20
"""What kernels and the like take whatever the graph."""
CHUNK = 3 * 2**29
"""What a chunk of inference on a large graph takes."""
SAFE_SHARE = 0.5
"""Of the memory there is, what the suggested size of a batch should need."""
FEWEST_SUGGESTED = 1000
MEMINFO = Path("/proc/meminfo")
CGROUPS = (
    (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")),
    (
        Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
        Path("/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ),
)


def step_bytes(nodes: float, edges: float, features: int, config: Config) -> int:
    """About what the largest step of training holds at once, beside the graph as it was given.

    The factors were measured: how much each width adds to the peak of a process. The estimate is
    within a factor of two of the peak, mostly above it.

    Args:
        nodes: Nodes of the batch.
        edges: Its directed edges.
        features: Width of the features.
        config: The settings.
    """
    model, passes = config.model, config.training.passes
    states = model.hidden_channels * (model.bank_layers + model.composer_layers) / 2
    per_node = (
        5 * features
        + 6 * model.encoder_channels
        + 30 * model.num_communities
        + 8 * states * (1 + passes)
    )
    per_edge = model.num_metacommunities * (10 + 3 * passes)
    return int(FLOAT * (nodes * per_node + edges * per_edge)) + BESIDES


def large_bytes(nodes: int, edges: int, features: int, config: Config) -> int:
    """The same for training by clusters and inference in chunks."""
    model, wanted = config.model, config.training.batch_size
    step = step_bytes(1.1 * wanted, 1.1 * edges * wanted / nodes, features, config)
    tables = model.encoder_channels + 2 * model.num_communities + model.num_metacommunities
    tables += 2 * model.hidden_channels
    # Edges in half the space, and a few numbers of each node while clusters are sought.
    return 4 * edges + nodes * (100 + FLOAT * tables) + max(step, CHUNK)


def available_bytes(device: torch.device) -> int:
    """Memory of the device that nobody uses, within what this process may have."""
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


def require_memory(dataset: Dataset, config: Config, device: torch.device) -> None:
    """Refuse a training that will not fit, naming the setting that makes it smaller.

    Raises:
        InputError: if more memory would be needed than there is.
    """
    graphs = dataset.graphs
    if dataset.task == "graph":
        size = config.training.batch_size or len(graphs)
        graphs = sorted(graphs, key=lambda graph: -int(graph.num_edges))[:size]
    nodes = sum(int(graph.num_nodes or 0) for graph in graphs)
    edges = sum(int(graph.num_edges) for graph in graphs)
    wanted = config.training.batch_size
    by_clusters = dataset.task == "node" and 0 < wanted < nodes
    estimate = large_bytes if by_clusters else step_bytes
    need = estimate(nodes, edges, _width(graphs[0].x), config)
    there = available_bytes(device)
    if need <= there:
        return
    if dataset.task == "graph":
        option = f"--set batch_size={max(1, int(len(graphs) * SAFE_SHARE * there / need))}"
    else:
        option = f"--batch-nodes {_round(min(wanted or nodes, nodes) * SAFE_SHARE * there / need)}"
    raise InputError(
        f"{dataset.name}: training on {nodes:,} nodes and {edges // 2:,} edges "
        f"{'by clusters' if by_clusters else 'at once'} needs about {need / GIB:.1f} GiB, and "
        f"{there / GIB:.1f} GiB are free; train in smaller batches with {option}, or try anyway "
        "with --no-memory-check"
    )


def _width(x: Tensor) -> int:
    """Columns of the features, or as many as there are non-zeros in a row of sparse ones."""
    return -(-x.values().numel() // x.size(0)) if x.layout == torch.sparse_coo else x.size(1)


def _round(number: float) -> int:
    """A number of one digit and zeros, not above the given one if that is not tiny."""
    size = max(int(number), FEWEST_SUGGESTED)
    unit = 10 ** (len(str(size)) - 1)
    return size // unit * unit
