"""What only a GPU can show: ``python -m vepm.bench.gpu --output gpu.json``.

Sections run in the order of their weight. Each has its seconds, and every row is written as
soon as it is known, so that an end before the end loses nothing.
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

from vepm.bench import gpu_equality, gpu_kernels, gpu_ranks, gpu_recordings
from vepm.bench.contenders import first_line
from vepm.bench.measure import copy_bandwidth, machine
from vepm.bench.runner import DEGREE, FEATURES, Plan, Row, conclude, generate, graphs, races
from vepm.bench.steps import STEPS
from vepm.files import write_text

LARGE = (2_400_000, 124_100_000)
"""Nodes and directed edges of the graph that must train on one device."""
PUBMED = (19_717, 88_648)
"""Nodes and edges of a graph as large as PubMed, for where that is not."""

Found = Iterator[tuple[str, Row]]


def time_steps(plan: Plan) -> Found:
    """Training steps beside their peers on citation networks, or on one of PubMed's size."""
    seen = False
    for name, graph in graphs(Plan(device="cuda", edges=(), data_dir=plan.data_dir)):
        seen = True
        yield from (("rows", row) for row in races(name, graph, plan))
    if not seen:
        graph = generate(*PUBMED, "cuda")
        yield from (("rows", row) for row in races("pubmed-size", graph, plan))


def time_large(plan: Plan) -> Found:
    """Our steps on the large graph in its full shape."""
    graph = generate(*LARGE, "cuda")
    only_ours = dict.fromkeys(STEPS, ("ours",))
    for row in races("large", graph, plan, methods=only_ours):
        yield "rows", row


def time_scaling(plan: Plan) -> Found:
    """Steps on generated graphs; ours alone where attention would not fit."""
    for edges in plan.edges:
        graph = generate(edges // DEGREE, edges, "cuda")
        few = dict.fromkeys(STEPS, ("ours",) if edges > 10**7 else ("ours", "gat"))
        few["pretrain"] = ("ours",)
        for row in races(f"generated-{edges}", graph, plan, methods=few):
            yield "rows", row
        del graph
        torch.cuda.empty_cache()


def time_kernels(plan: Plan) -> Found:
    """The kernels alone on the large graph."""
    edge_index = generate(*LARGE, "cuda", features=0).edge_index.cuda()
    for row in gpu_kernels.time_kernels(edge_index, LARGE[0], copy_bandwidth("cuda")):
        yield "kernels", row


def check(plan: Plan) -> Found:
    """The kernels and their gradients against gathers in double precision."""
    torch.manual_seed(0)
    for make in (
        gpu_equality.check_fused,
        gpu_equality.check_gradients,
        gpu_ranks.check_ranks,
        gpu_recordings.check_recordings,
        gpu_equality.check_kernels,
        gpu_equality.check_large_offsets,
    ):
        for row in make():
            yield "checks", row


SECTIONS: dict[str, tuple[Callable[[Plan], Found], int]] = {
    "steps": (time_steps, 120),
    "kernels": (time_kernels, 45),
    "large": (time_large, 60),
    "scaling": (time_scaling, 75),
    "checks": (check, 100),
}


def main() -> None:
    """Run the sections asked for and print what they say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("gpu.json"))
    parser.add_argument("--sections", default=",".join(SECTIONS))
    parser.add_argument("--sizes", default="1e5,1e6,1e7,1e8", help="edges, with commas between")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of turns at each step")
    parser.add_argument("--data-dir", type=Path, default=None)
    parser.add_argument("--commit", help="commit of the code, where its folder cannot tell")
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
        # Whatever ends one section must not cost the next its turn on a device on loan.
        outcome = first_line(error)
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
