"""The goals of the benchmarks, and which of them are met."""

import math
import operator
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from vepm.bench.steps import STEPS

Report = dict[str, Any]

LARGE_EDGES = 10_000_000
FEW_COMMUNITIES = 16
"""Communities with which the matrix of interactions is measured."""
VARIANTS = {
    "matrix": (
        "diagonal",
        FEW_COMMUNITIES / 4,
        f"with a matrix of interactions over the diagonal, {FEW_COMMUNITIES} communities",
        tuple(STEPS),
    ),
    "posterior": (
        "ours",
        1.3,
        "with posterior shares and a learned grouping over a softmax and segments",
        ("pretrain", "joint"),
    ),
}
"""Variants of ours: what each is held against, how many times as long its steps may take, words,
and the steps. With a learned grouping the predictor's own steps learn more than with segments."""
GIB = 2**30


@dataclass(frozen=True)
class Bar:
    """A goal, and what was measured."""

    what: str
    bar: str
    measured: str
    met: bool


def bars(report: Report) -> list[Bar]:
    """The goals that a report has numbers for."""
    if "cases" in report:
        return list(_many_runs(report))
    if "stages" in report:
        return list(_by_clusters(report))
    where = "GPU" if on_gpu(report) else "CPU"
    found = [] if on_gpu(report) else [*_against_literal(report)]
    found += [*_variants(report, where), *_against_attention(report, where)]
    found += [*_growth(report, where)]
    return found + ([*_one_device(report), *_bandwidth(report)] if on_gpu(report) else [])


def on_gpu(report: Report) -> bool:
    """Whether the steps ran on a GPU."""
    return "kernels" in report


def _ratios(report: Report, graph: str, against: str) -> dict[str, Report]:
    return {
        row["step"]: row
        for row in report["ratios"]
        if (row["graph"], row["against"]) == (graph, against)
    }


def _against_literal(report: Report) -> Iterator[Bar]:
    for step, graph, least in (
        ("pretrain", "Cora", 8),
        ("pretrain", "PubMed", 100),
        ("weights", "Cora", 30),
    ):
        row = _ratios(report, graph, "literal").get(step)
        if row is not None:
            times = 1 / row["time"]
            what = f"CPU, {graph}: {step} step, literal construction over ours"
            yield Bar(what, f"at least {least}x", f"{times:.1f}x", times >= least)


def _variants(report: Report, where: str) -> Iterator[Bar]:
    rounds = {
        (row["step"], row["method"]): row["rounds"]
        for row in report["rows"]
        if row["graph"] == "PubMed" and "rounds" in row
    }
    for step, method in rounds:
        base, most, words, steps = VARIANTS.get(method, ("", 0.0, "", ()))
        if step in steps and (step, base) in rounds:
            times = statistics.median(
                map(operator.truediv, rounds[step, method], rounds[step, base])
            )
            what = f"{where}, PubMed: {step} step {words}"
            yield Bar(what, f"at most {most:.1f}x", f"{times:.2f}x", times <= most)


def _against_attention(report: Report, where: str) -> Iterator[Bar]:
    for step, row in _ratios(report, "PubMed", "gat").items():
        what = f"{where}, PubMed: time of the {step} step over GAT's"
        yield Bar(what, "at most 1.0x", f"{row['time']:.2f}x", row["time"] <= 1)
    large = f"generated-{LARGE_EDGES}"
    ratios = _ratios(report, large, "gat")
    for row in report["rows"]:
        if (row["graph"], row["method"]) != (large, "gat"):
            continue
        what = f"{where}, {LARGE_EDGES:,} edges: peak memory of the {row['step']} step over GAT's"
        ratio = ratios[row["step"]]["memory"] if row["step"] in ratios else math.inf
        measured = f"GAT did not end: {row['error']}" if "error" in row else f"{ratio:.2f}x"
        yield Bar(what, "at most 0.7x", measured, ratio <= 0.7)


def _growth(report: Report, where: str) -> Iterator[Bar]:
    for step, slope in report["slopes"].items():
        points = growth_points(report, step)
        last = _steepness(*points[-2:])
        range_ = f"{points[0][0]:,} to {points[-1][0]:,} edges"
        what = f"{where}, {range_}: exponent of the {step} step's time"
        measured = f"{slope:.2f}, {last:.2f} between the two largest"
        yield Bar(what, "at most 1.1", measured, slope <= 1.1)


def growth_points(report: Report, step: str) -> list[tuple[int, float]]:
    """Edges and our seconds on the generated graphs, the smallest first."""
    return sorted(
        (row["edges"], row["median"])
        for row in report["rows"]
        if row["graph"].startswith("generated")
        and (row["step"], row["method"]) == (step, "ours")
        and "median" in row
    )


def _steepness(low: tuple[int, float], high: tuple[int, float]) -> float:
    return math.log(high[1] / low[1]) / math.log(high[0] / low[0])


def _one_device(report: Report) -> Iterator[Bar]:
    for row in report["rows"]:
        if row["graph"] == "large" and "peak_bytes" in row:
            peak = row["peak_bytes"] / GIB
            pairs = row["edges"] / 2e6
            what = (
                f"GPU, {row['nodes'] / 1e6:.1f} million nodes, {pairs:.0f} million undirected "
                f"edges: peak memory of the {row['step']} step on the whole graph"
            )
            yield Bar(what, "at most 70 GiB", f"{peak:.1f} GiB", peak <= 70)


def _bandwidth(report: Report) -> Iterator[Bar]:
    for row in report["kernels"]:
        if row["what"] == "sum by given shares":
            what = f"GPU, that graph: {row['what']}, bytes a second over those of a copy"
            measured = f"{row['of_copy']:.0%} ({row['bytes'] / 1e9:.1f} GB)"
            yield Bar(what, "at least 50%", measured, row["of_copy"] >= 0.5)


def _many_runs(report: Report) -> Iterator[Bar]:
    for case in report["cases"]:
        what = f"{report['machine']['device']}, {case['dataset']}: {case['runs']} runs over one"
        yield Bar(what, "at most 3x its time", f"{case['ratio']:.2f}x", case["ratio"] <= 3)


def _by_clusters(report: Report) -> Iterator[Bar]:
    peak = report["peak_memory_mib"] / 1024
    size = f"{report['nodes'] / 1e6:.1f} million nodes, {report['edges'] / 1e6:.1f} million edges"
    what = f"CPU, {size}: peak memory of training by mini-batches"
    yield Bar(what, "at most 16 GiB", f"{peak:.1f} GiB", peak <= 16)
