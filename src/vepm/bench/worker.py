"""A contender in a process of its own, so that memory is its own too.

``python -m vepm.bench.worker`` reads a case as a line of JSON, says when it is ready, and then
answers every further line with a turn.
"""

import functools
import json
import sys
from dataclasses import asdict
from pathlib import Path

import torch
from torch_geometric.data import Data

from vepm.bench.contenders import Case, Here
from vepm.bench.steps import Sizes


def save_graph(graph: Data, path: Path) -> None:
    """Keep what a training step reads."""
    fields = ("x", "edge_index", "y", "train_mask")
    torch.save({name: graph[name] for name in fields}, path)


def read_graph(path: str | Path) -> Data:
    """The graph that :func:`save_graph` wrote."""
    return Data(**torch.load(path, weights_only=True))


def main() -> None:
    """Train whenever asked."""
    request = json.loads(sys.stdin.readline())
    case = Case(**request["case"])
    if case.threads:
        torch.set_num_threads(case.threads)
    load = functools.partial(read_graph, request["graph"])
    contender = Here(load, case, Sizes(**request["sizes"]))
    print("ready", flush=True)
    for _ in sys.stdin:
        print(json.dumps(asdict(contender.turn())), flush=True)


if __name__ == "__main__":
    main()
