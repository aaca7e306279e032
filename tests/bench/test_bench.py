"""The command ``vepm bench``: what it measures, writes and refuses."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from benchmarks.growth import slopes
from benchmarks.memory import PeakMemory, _status
from cli.running import refused, succeed
from vepm.bench import (
    Plan,
    attempt,
    compare,
    ratios,
    run,
    time_call,
)
from vepm.bench.steps import METHODS, STEPS, Method
from vepm.cli.bench import as_table
from vepm.data import DatasetInfo, planted_graph

GRAPH = planted_graph(60, 3, average_degree=6, num_features=5, seed=0).graphs[0]


def row(edges: int, method: str, seconds: float, peak: int = 100) -> dict[str, Any]:
    place = {"graph": f"generated-{edges}", "edges": edges, "step": "joint", "method": method}
    return {**place, "median": seconds, "rounds": [seconds], "peak_bytes": peak}


def build_failing(step: str, graph: Data, device: str) -> Any:
    """A method whose fifth step, the second one timed, fails."""
    steps = iter(range(4))

    def train() -> Tensor:
        if next(steps, None) is None:
            raise RuntimeError("too much\nand more")
        torch.ones(2**23).sum()
        return torch.zeros(())

    return train


def build_dying(step: str, graph: Data, device: str) -> Any:
    os._exit(9)


def test_calls_are_repeated_until_repeats_or_seconds_are_used_up() -> None:
    calls: list[int] = []
    seconds = time_call(lambda: calls.append(1), "cpu", repeats=5)
    assert len(calls) == len(seconds) == 5
    assert len(time_call(lambda: calls.append(1), "cpu", repeats=5, budget=0)) == 1
    assert sum(time_call(lambda: calls.append(1), "cpu", budget=0.01)) >= 0.01


def test_peak_memory_sees_what_was_freed_again() -> None:
    def found() -> int:
        peak = PeakMemory()
        held = torch.ones(2**26)
        del held
        return peak.read()

    # The system may take pages of the process back meanwhile: one of a few tries must see it.
    assert any(found() > 2**27 for _ in range(5))


@pytest.fixture
def graph_file(tmp_path: Path) -> Path:
    path = tmp_path / "graph.pt"
    torch.save({name: GRAPH[name] for name in ("x", "edge_index", "y", "train_mask")}, path)
    return path


def test_a_method_that_fails_or_dies_has_its_error_and_the_others_go_on(graph_file: Path) -> None:
    builders = (build_failing, build_dying, METHODS["ours"].build)
    plan = Plan(repeats=3, threads=1)
    failing, dying, ours = (attempt(b, "predict", graph_file, plan) for b in builders)
    assert failing == {"error": "too much"}
    assert "terminated abruptly" in dying["error"]
    assert len(ours["rounds"]) == 3
    assert min(ours["rounds"]) <= ours["median"] < 60
    assert isinstance(ours["peak_bytes"], int)


def test_no_round_begins_after_the_budget(graph_file: Path) -> None:
    plan = Plan(repeats=9, budget=0, threads=1)
    found = attempt(METHODS["gcn"].build, "predict", graph_file, plan)
    assert len(found["rounds"]) == 1


def test_methods_that_a_graph_is_too_large_for_are_left_out() -> None:
    small = Method(build_dying, fits=lambda step, nodes, edges: nodes < 60)
    limited = METHODS["gcn"]._replace(fits=lambda step, nodes, edges: step == "joint")
    methods = {"small": small, "gcn": limited}
    (found,) = compare("toy", GRAPH, Plan(repeats=1, threads=1), methods)
    assert (found["graph"], found["step"], found["method"]) == ("toy", "joint", "gcn")
    assert (found["nodes"], found["edges"]) == (60, GRAPH.num_edges)


def test_large_graphs_are_left_to_the_methods_that_can_do_them() -> None:
    def names(step: str, edges: int) -> list[str]:
        return [name for name, method in METHODS.items() if method.fits(step, 1, edges)]

    assert names("pretrain", 10) == ["ours"]
    assert names("weights", 10**8) == ["ours", "gat"]
    assert names("joint", 10) == ["ours", "gcn", "gat"]
    assert names("joint", 10**7) == ["ours"]


def test_ratios_are_of_medians_and_slopes_over_sizes() -> None:
    rows = [row(10, "ours", 1.0, 50), row(10, "gat", 2.0, 100), row(1000, "ours", 10.0)]
    (ratio,) = ratios(rows)
    assert (ratio["time"], ratio["memory"], ratio["against"]) == (0.5, 0.5, "gat")
    assert slopes(rows) == {"joint": pytest.approx(0.5)}
    (flat,) = ratios([row(10, "ours", 1.0, 50), row(10, "gat", 2.0, 0)])
    assert flat["memory"] == 0
    rows[1] = {key: rows[1][key] for key in ("graph", "edges", "step", "method")}
    rows[1]["error"] = "out of memory"
    assert ratios(rows) == []
    report = {"machine": {"device": "one"}, "rows": rows, "ratios": []}
    assert as_table(report).row_count == 3


def test_every_method_learns() -> None:
    for method in METHODS.values():
        for step in [step for step in STEPS if method.fits(step, 60, 400)]:
            train = method.build(step, GRAPH, "cpu")
            losses = [float(train()) for _ in range(30)]
            assert sum(losses[-5:]) < sum(losses[:5])


def test_the_command_writes_what_it_prints(tmp_path: Path) -> None:
    out = tmp_path / "bench"
    words = ("bench", "--quick", "--threads", "1", "--repeats", "1", "--device", "cpu")
    printed = json.loads(succeed(*words, "--json", "--output", out).out)
    assert printed == json.loads((out / "bench.json").read_text())
    assert {r["method"] for r in printed["rows"]} == {"ours", "gcn", "gat"}
    assert {r["graph"] for r in printed["rows"]} == {"generated-4000", "generated-16000"}
    assert printed["settings"]["repeats"] == printed["settings"]["threads"] == 1
    assert len(printed["load"]) == 2


@pytest.mark.parametrize(
    ("words", "datasets", "edges", "repeats"),
    [
        ((), ["Cora"], [100_000, 1_000_000, 10_000_000], 10),
        (("--sizes", "5000,1e4", "--repeats", "7"), ["Cora"], [5000, 10_000], 7),
        (("--quick",), [], [4000, 16_000], 3),
        (("digits",), ["digits"], [], 10),
        (("digits", "--sizes", "6000"), ["digits"], [6000], 10),
    ],
)
def test_options_reach_the_plan(
    words: tuple[str, ...],
    datasets: list[str],
    edges: list[int],
    repeats: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plans: list[Plan] = []

    def note(plan: Plan) -> list[dict[str, Any]]:
        plans.append(plan)
        done = row(10, "ours", 1.0)
        return [{"machine": {"device": "one"}, "rows": [done], "ratios": []}]

    monkeypatch.setattr("vepm.bench.run", note)
    # PubMed is not at hand.
    info = DatasetInfo("Cora", "node", "", "", available=True)
    monkeypatch.setattr("vepm.data.datasets", lambda root: [info])
    succeed("bench", *words, "--device", "cpu", "--output", tmp_path)
    (plan,) = plans
    assert [*plan.datasets] == datasets
    assert [*plan.edges] == edges
    assert (plan.repeats, plan.device, plan.threads) == (repeats, "cpu", 0)


def test_a_plan_of_a_dataset_is_run_and_kept_row_by_row() -> None:
    plan = Plan(datasets=["KarateClub"], repeats=1, threads=1)
    kept: list[int] = []
    for report in run(plan, {"gcn": METHODS["gcn"]}):
        kept.append(len(report["rows"]))
    assert kept == [1, 2, 2]
    assert [(r["graph"], r["step"]) for r in report["rows"]] == [
        ("KarateClub", "predict"),
        ("KarateClub", "joint"),
    ]
    assert report["machine"]["device"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--sizes", "many"), "not a list of numbers"),
        (("--sizes", "5000,,"), "not a list of numbers"),
        (("--sizes", "10"), "too few"),
        (("digits", "digits-graphs"), "a set of graphs"),
        (("nowhere",), "nowhere"),
    ],
)
def test_bad_input_is_refused(words: tuple[str, ...], why: str, tmp_path: Path) -> None:
    assert why in refused("bench", *words, "--output", tmp_path)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_memory_is_read_from_the_system() -> None:
    # More is reserved than was ever used, and no less was ever used than is now.
    assert _status("VmSize") > _status("VmHWM") >= _status("VmRSS") > 0
