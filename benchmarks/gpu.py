"""What only a GPU can show: ``python -m benchmarks.gpu --output gpu.json``.

The most important sections run first. Each has a time limit, and every row is written as soon as
it is known, so that an interruption loses nothing.
"""

import argparse
import json
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional
from torch_geometric.data import Data

from benchmarks import gpu_capture, gpu_ddp, gpu_equality, gpu_kernels
from benchmarks.bandwidth import copy_bandwidth
from benchmarks.cpu import POSTERIOR
from benchmarks.growth import conclude
from vepm.bench import CLASSES, DEGREE, FEATURES, Plan, Row, compare, machine
from vepm.bench.steps import METHODS
from vepm.data import datasets, load, sample_graph
from vepm.files import write_text

LARGE = (2_400_000, 124_100_000)
"""Nodes and directed edges of the graph that must train on one device."""
PUBMED = (19_717, 88_648)
"""Nodes and edges of a graph as large as PubMed, in case PubMed itself is not available."""
MOST_EDGES = 10**7
"""Edges up to which GAT fits on the device."""
OURS = {"ours": METHODS["ours"]}

Found = Iterator[tuple[str, Row]]


def generate(nodes: int, edges: int, features: int = FEATURES) -> Data:
    """A graph of eight communities with about so many directed edges, drawn on the GPU."""
    generator = torch.Generator("cuda").manual_seed(0)
    y = torch.randint(CLASSES, (nodes,), generator=generator, device="cuda")
    activity = 0.5 + torch.rand(nodes, generator=generator, device="cuda")
    z = functional.one_hot(y, CLASSES) * activity[:, None]
    rate = edges / float(z.sum(0).double().square().sum())
    edge_index = sample_graph(z, z.new_full((CLASSES,), rate), seed=0)
    x = torch.randn(nodes, features, generator=generator, device="cuda")
    graph = Data(x=x, edge_index=edge_index, y=y, train_mask=activity < 0.6).to("cpu")
    del x, y, z, activity, edge_index
    torch.cuda.empty_cache()
    return graph


def time_steps(plan: Plan) -> Found:
    """Training steps of all methods on citation networks, or on a graph of PubMed's size."""
    here = {info.name for info in datasets(plan.data_dir) if info.available}
    for name in [name for name in ("Cora", "PubMed") if name in here]:
        for row in compare(name, load(name, plan.data_dir).graphs[0], plan, METHODS | POSTERIOR):
            yield "rows", row
    if "PubMed" not in here:
        for row in compare("pubmed-size", generate(*PUBMED), plan):
            yield "rows", row


def time_large(plan: Plan) -> Found:
    """Our steps on the large graph as a whole."""
    for row in compare("large", generate(*LARGE), plan, OURS):
        yield "rows", row


def time_scaling(plan: Plan) -> Found:
    """Steps on generated graphs; ours alone where attention would not fit."""
    attention = METHODS["gat"]._replace(fits=lambda step, nodes, edges: step != "pretrain")
    for edges in plan.edges:
        methods = OURS if edges > MOST_EDGES else {**OURS, "gat": attention}
        for row in compare(f"generated-{edges}", generate(edges // DEGREE, edges), plan, methods):
            yield "rows", row


def time_kernels(plan: Plan) -> Found:
    """The kernels alone on the large graph."""
    edge_index = generate(*LARGE, features=0).edge_index.cuda()
    for row in gpu_kernels.time_kernels(edge_index, LARGE[0], copy_bandwidth("cuda")):
        yield "kernels", row


def check(plan: Plan) -> Found:
    """Kernels, gradients and captured steps against plain double precision."""
    torch.manual_seed(0)
    for make in (
        gpu_equality.check_gradients,
        gpu_ddp.check_ddp,
        gpu_capture.check_capture,
        gpu_equality.check_kernels,
        gpu_equality.check_large_offsets,
    ):
        for row in make():
            yield "checks", row


SECTIONS: dict[str, tuple[Callable[[Plan], Found], int]] = {
    "steps": (time_steps, 180),
    "kernels": (time_kernels, 45),
    "large": (time_large, 90),
    "scaling": (time_scaling, 150),
    "checks": (check, 100),
}


def main() -> None:
    """Run the given sections and print their rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("gpu.json"))
    parser.add_argument("--sections", default=",".join(SECTIONS))
    parser.add_argument("--sizes", default="1e5,1e6,1e7,1e8", help="edges, separated by commas")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each step")
    parser.add_argument("--data-dir", type=Path, default=None)
    parser.add_argument("--commit", help="commit of the code, if its folder is not a repository")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("there is no CUDA device here")
    sizes = tuple(int(float(size)) for size in arguments.sizes.split(","))
    plan = Plan(
        "cuda", edges=sizes, repeats=arguments.rounds, budget=8.0, data_dir=arguments.data_dir
    )
    report: Row = {
        "machine": machine("cuda") | ({"commit": arguments.commit} if arguments.commit else {}),
        "settings": {"rounds": plan.repeats, "degree": DEGREE, "features": FEATURES},
        "copy_bandwidth": copy_bandwidth("cuda"),
        "rows": [],
        "kernels": [],
        "checks": [],
        "sections": {},
    }
    for name in arguments.sections.split(","):
        _run(name, plan, report, arguments.output)
    sys.exit(0 if all(row["ok"] for row in report["checks"]) else 1)


def _run(name: str, plan: Plan, report: Row, output: Path) -> None:
    section, limit = SECTIONS[name]
    started = time.perf_counter()
    outcome = "done"
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(limit)
    try:
        for kind, row in section(plan):
            report[kind].append(row)
            print(f"{time.perf_counter() - started:6.1f}s", _short(row), flush=True)
            write_text(output, json.dumps(conclude(report), indent=1, default=str))
    except Exception as error:
        # Time on a GPU is short: an error in one section must not stop the next.
        outcome = (str(error).splitlines() or [type(error).__name__])[0]
    finally:
        signal.alarm(0)
    seconds = time.perf_counter() - started
    report["sections"][name] = {"seconds": seconds, "outcome": outcome}
    print(f"== {name}: {outcome}, {seconds:.1f} s", flush=True)
    write_text(output, json.dumps(conclude(report), indent=1, default=str))
    torch.cuda.empty_cache()


def _too_long(*_: Any) -> None:
    raise TimeoutError("out of time")


def _short(row: Row) -> str:
    if "what" in row:
        return " ".join(f"{value:.3g}" if isinstance(value, float) else str(value)
                        for value in row.values())  # fmt: skip
    place = f"{row['graph']:20} {row['edges']:>10} {row['step']:9} {row['method']:8}"
    if "error" in row:
        return f"{place} {row['error']}"
    return f"{place} {1e3 * row['median']:9.2f} ms {row['peak_bytes'] / 2**30:7.2f} GiB"


if __name__ == "__main__":
    main()
