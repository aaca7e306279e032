"""The benchmark itself: what it measures, writes and refuses."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from vepm.bench.contenders import Case, Here, Turn, race, summarise
from vepm.bench.figure import draw_scaling
from vepm.bench.measure import PeakMemory, copy_bandwidth, time_call
from vepm.bench.runner import Plan, cases, generate, graphs, ratios, run, slopes
from vepm.bench.steps import METHODS, Sizes
from vepm.bench.table import as_table
from vepm.cli import app
from vepm.errors import InputError


def row(edges: int, method: str, seconds: float, peak: int = 100) -> dict[str, Any]:
    place = {"graph": f"generated-{edges}", "edges": edges, "step": "joint", "method": method}
    times = {"median": seconds, "best": seconds, "cpu": seconds, "rounds": [seconds]}
    return {**place, **times, "peak_bytes": peak}


def test_time_is_the_median_of_the_repeats_that_fit_the_budget() -> None:
    calls: list[int] = []
    assert time_call(lambda: calls.append(1), repeats=5, warmup=2).repeats == 5
    assert len(calls) == 7
    assert time_call(lambda: calls.append(1), repeats=5, warmup=0, budget=0).repeats == 1


def test_ours_keeps_memory_as_training_does_and_others_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[str] = []

    @contextlib.contextmanager
    def kept_pages() -> Iterator[None]:
        calls.append("keep")
        yield
        calls.append("give back")

    monkeypatch.setattr("vepm.bench.contenders.kept_pages", kept_pages)
    graph = generate(60, 1000)
    for method, expected in [("gat", []), ("ours", ["keep", "give back"])]:
        contender = Here(lambda: graph, Case("weights", method), Sizes(num_communities=8))
        assert calls == expected[:1]
        contender.close()
        assert calls == expected


def test_peak_memory_sees_what_was_freed_again() -> None:
    peak = PeakMemory()
    held = torch.ones(2**24)
    del held
    assert peak.read() > 2**25


def test_copies_have_a_bandwidth() -> None:
    assert copy_bandwidth("cpu", 2**20) > 1e6


def test_generated_graphs_have_the_size_asked_for() -> None:
    graph = generate(1000, 20_000)
    assert graph.num_nodes == 1000
    assert graph.num_edges == pytest.approx(20_000, rel=0.2)
    assert not graph.is_directed()
    assert graph.train_mask.any()


def test_benchmarks_that_are_not_here_are_left_out(tmp_path: Path) -> None:
    plan = Plan(edges=(2000,), datasets=("Cora",), data_dir=tmp_path)
    assert [name for name, _ in graphs(plan)] == ["generated-2000"]


def test_ratios_and_slopes() -> None:
    rows = [row(10, "ours", 1.0, 50), row(10, "gat", 2.0, 100), row(1000, "ours", 10.0)]
    (ratio,) = ratios(rows)
    assert (ratio["time"], ratio["memory"], ratio["against"]) == (0.5, 0.5, "gat")
    assert slopes(rows) == {"joint": pytest.approx(0.5)}
    (flat,) = ratios([row(10, "ours", 1.0, 50), row(10, "gat", 2.0, 0)])
    assert flat["memory"] == 0
    rows[1] = {key: rows[1][key] for key in ("graph", "edges", "step", "method")}
    rows[1]["error"] = "out of memory"
    assert ratios(rows) == []


def test_a_case_has_a_process_and_a_peak_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vepm.bench.runner.METHODS", {"predict": ("ours",)})
    (found,) = run(Plan(datasets=(), edges=(2000,), repeats=1, threads=1))["rows"]
    assert (found["step"], found["method"], len(found["rounds"])) == ("predict", "ours", 1)
    assert found["median"] > 0
    assert found["peak_bytes"] > 0


def test_methods_are_left_out_where_they_cannot_end() -> None:
    assert "literal" in cases(100, 1000)["weights"]
    assert all("literal" not in methods for methods in cases(10**6, 1000).values())
    assert "gat" in cases(10**6, 10**7)["predict"]
    assert cases(10**6, 10**7)["joint"] == ["ours"]


def test_a_failed_case_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("vepm.bench.contenders.sys.executable", "false")
    report = run(Plan(datasets=(), edges=(2000,), repeats=1))
    assert {r["error"] for r in report["rows"]} == {"exit code 1"}
    assert as_table(report).row_count == len(report["rows"])
    draw_scaling(report, tmp_path / "empty.png")
    assert (tmp_path / "empty.png").stat().st_size > 0


class Scripted:
    """A contender that takes as long as it is told to, then falls out."""

    def __init__(self, *seconds: float) -> None:
        self.seconds = list(seconds)

    def turn(self) -> Turn:
        if not self.seconds:
            raise RuntimeError("fell over\nand more")
        return Turn(self.seconds.pop(0), 0.0, 1)

    def close(self) -> None: ...


def test_contenders_take_turns_until_they_fall_out() -> None:
    results = race({"a": Scripted(1.0, 2.0, 9.0), "b": Scripted(3.0)}, rounds=2, budget=60)
    assert results["b"] == "fell over"
    turns = results["a"]
    assert not isinstance(turns, str)
    assert summarise(turns)["rounds"] == [1.0, 2.0]
    assert summarise(turns)["median"] == 1.5
    assert len(race({"a": Scripted(1.0, 2.0)}, rounds=2, budget=-1)["a"]) == 1


def test_ratios_are_taken_round_by_round() -> None:
    ours, gat = row(10, "ours", 1.0), row(10, "gat", 1.0)
    # The machine is three times slower in the second round, for both.
    ours["rounds"], gat["rounds"] = [1.0, 3.0, 1.0], [2.0, 6.0, 2.0]
    (ratio,) = ratios([ours, gat])
    assert ratio["time"] == 0.5


def test_the_report_is_kept_after_every_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[int] = []
    monkeypatch.setattr("vepm.bench.runner.METHODS", {"predict": ("ours", "gat")})
    plan = Plan(datasets=(), edges=(2000,), repeats=1, isolate=False)
    run(plan, keep=lambda report: kept.append(len(report["rows"])))
    assert kept == [1, 2]


def test_the_command_writes_json_and_a_figure(tmp_path: Path) -> None:
    command = ["bench", "--quick", "--threads", "1", "--repeats", "1", "--output", str(tmp_path)]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert "GAT" in result.output or "gat" in result.output
    report = json.loads((tmp_path / "bench.json").read_text())
    assert {r["method"] for r in report["rows"]} == {"ours", "literal", "gat"}
    assert report["settings"]["repeats"] == 1
    assert report["settings"]["threads"] == 1
    assert set(report["slopes"]) == set(METHODS)
    assert report["copy_bandwidth"] > 0
    assert (tmp_path / "scaling.png").stat().st_size > 1000


def test_options_reach_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plans: list[Plan] = []

    def note(plan: Plan, progress: object, keep: object) -> dict[str, Any]:
        plans.append(plan)
        rows = [row(2000, "ours", 1.0)]
        return {
            "machine": {"device": "a"},
            "copy_bandwidth": 1,
            "rows": rows,
            "ratios": [],
            "slopes": {},
        }

    monkeypatch.setattr("vepm.bench.runner.run", note)
    command = ["bench", "--sizes", "2000,1e4", "--repeats", "7", "--device", "cpu", "--json"]
    result = CliRunner().invoke(app, [*command, "--output", str(tmp_path)])
    assert json.loads(result.output)["rows"][0]["edges"] == 2000
    (plan,) = plans
    assert (plan.edges, plan.repeats, plan.device) == ((2000, 10_000), 7, "cpu")
    assert plan.isolate
    assert tuple(plan.datasets) == ("Cora", "PubMed")


@pytest.mark.parametrize("sizes", ["many", "10", "5000,,"])
def test_sizes_that_are_none_are_refused(sizes: str) -> None:
    result = CliRunner().invoke(app, ["bench", "--sizes", sizes])
    assert isinstance(result.exception, InputError)
    assert str(result.exception).startswith("sizes")
