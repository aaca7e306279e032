"""Memory and time of a graph of millions of nodes, generated and trained on by clusters.

``python -m benchmarks.large --output results/bench/large.json`` takes long; ``--nodes`` and
``--edges`` make it shorter.
"""

import argparse
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vepm.bench import machine
from vepm.data import load
from vepm.files import write_text
from vepm.measures import accuracy
from vepm.runs import peak_memory
from vepm.training import fit, preset, probabilities

COMMUNITIES = 8
FEATURES = 16
LABELS = 1000


class Stages:
    """Seconds of each stage and the peak memory so far."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Measure what is done inside."""
        started = time.perf_counter()
        yield
        self.add(name, time.perf_counter() - started)

    def add(self, name: str, seconds: float, **more: Any) -> None:
        """Record a stage, and the peak memory at its end."""
        self.rows.append({"stage": name, "seconds": seconds, **peak_memory(), **more})
        print(json.dumps(self.rows[-1]), flush=True)

    def on_epoch(self, phase: str, epoch: int, epochs: int, row: dict[str, Any]) -> None:
        """Record an epoch."""
        kept = ("loss", "train_accuracy", "val_accuracy", "val_loss")
        figures = {name: row[name] for name in kept if name in row}
        self.add(f"{phase} epoch {epoch}", row["seconds"], **figures)


def run(nodes: int, edges: int, batch_nodes: int, epochs: int) -> dict[str, Any]:
    """Generate a graph, pretrain, finetune and predict every node.

    Args:
        nodes: Nodes of the graph.
        edges: About how many edges it has.
        batch_nodes: Nodes of a step.
        epochs: Epochs of each phase.
    """
    stages = Stages()
    recipe = f"planted:nodes={nodes},edges={edges},communities={COMMUNITIES}"
    recipe += f",features={FEATURES},labels={min(LABELS, nodes // (20 * COMMUNITIES))}"
    config = preset("tuned", "node").replace(
        num_communities=COMMUNITIES,
        num_metacommunities=COMMUNITIES,
        hidden_channels=64,
        batch_size=batch_nodes,
        pretrain_epochs=epochs,
        epochs=epochs,
        passes=1,
        num_samples=0,
    )
    with stages.stage("generate"):
        dataset = load(recipe)
    graph = dataset.graphs[0]
    train, val, test = (
        graph[f"{role}_mask"].nonzero().flatten() for role in ("train", "val", "test")
    )
    with stages.stage("cluster and train"):
        fitted = fit(
            dataset, config, train_on=train, validate_on=val, device="cpu", progress=stages.on_epoch
        )
    with stages.stage("predict"):
        found = probabilities(fitted.model, fitted.source)
    return {
        "recipe": recipe,
        "nodes": nodes,
        "edges": int(graph.edge_index.size(1)) // 2,
        "settings": config.to_dict(),
        "stages": stages.rows,
        "test_accuracy": accuracy(found[test], graph.y[test]),
        **peak_memory(),
        "machine": machine("cpu"),
    }


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5_000_000)
    parser.add_argument("--edges", type=int, default=50_000_000)
    parser.add_argument("--batch-nodes", type=int, default=250_000)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args()
    report = run(given.nodes, given.edges, given.batch_nodes, given.epochs)
    write_text(given.output, json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
