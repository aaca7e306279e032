"""Benchmark files as a page that says what holds and what does not."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import page
from benchmarks.bars import bars
from benchmarks.growth import conclude
from benchmarks.page import NONE, as_page
from vepm.errors import InputError

ROOT = Path(__file__).parents[2]
MACHINE = {
    "device": "a machine",
    "cores": 2,
    "threads": 1,
    "python": "3",
    "torch": "2",
    "torch_geometric": "2",
    "commit": None,
}


def row(graph: str, step: str, method: str, seconds: float, peak: int = 100) -> dict[str, Any]:
    edges = int(graph.split("-")[1]) if "-" in graph else 1000
    times = {"median": seconds, "rounds": [seconds]}
    place = {"graph": graph, "nodes": 10, "edges": edges, "step": step, "method": method}
    return {**place, **times, "peak_bytes": peak}


def cpu_report(*rows: dict[str, Any]) -> dict[str, Any]:
    settings = {"edges": [1000], "repeats": 3, "threads": 1}
    report = {"machine": MACHINE, "settings": settings, "copy_bandwidth": 1e9, "load": [0.1, 0.2]}
    return conclude({**report, "rows": list(rows)})


def gpu_report(*rows: dict[str, Any], share: float = 0.6) -> dict[str, Any]:
    kernel = {"what": "sum by given shares", "seconds": 1.0, "bytes": 10**9, "of_copy": share}
    more = {"kernels": [kernel], "checks": [{"ok": True}, {"ok": False}], "settings": {"rounds": 5}}
    return cpu_report(*rows) | more


def met(report: dict[str, Any]) -> dict[str, bool]:
    return {bar.what: bar.met for bar in bars(report)}


@pytest.mark.parametrize(("seconds", "holds"), [(8.0, True), (7.9, False)])
def test_the_literal_construction_must_be_so_much_slower(seconds: float, holds: bool) -> None:
    report = cpu_report(
        row("Cora", "pretrain", "ours", 1), row("Cora", "pretrain", "literal", seconds)
    )
    assert list(met(report).values()) == [holds]


@pytest.mark.parametrize(
    ("base", "variant", "seconds", "holds"),
    [
        ("diagonal", "matrix", 4.0, True),
        ("diagonal", "matrix", 4.1, False),
        ("ours", "posterior", 1.3, True),
        ("ours", "posterior", 1.4, False),
    ],
)
def test_variants_of_ours_may_cost_so_much(
    base: str, variant: str, seconds: float, holds: bool
) -> None:
    report = cpu_report(
        row("PubMed", "joint", base, 1),
        row("PubMed", "joint", variant, seconds),
        row("PubMed", "pretrain", variant, 1),
        row("Cora", "joint", variant, 9),
    )
    assert list(met(report).values()) == [holds]
    assert f"--methods {base} {variant}" in as_page({"cpu": report})


@pytest.mark.parametrize(("seconds", "peak", "holds"), [(1.0, 70, True), (1.1, 71, False)])
def test_attention_must_not_be_faster_or_smaller(seconds: float, peak: int, holds: bool) -> None:
    large = "generated-10000000"
    rows = [
        row("PubMed", "predict", "ours", seconds),
        row("PubMed", "predict", "gat", 1.0),
        row(large, "predict", "ours", 1.0, peak),
        row(large, "predict", "gat", 1.0, 100),
    ]
    for report in cpu_report(*rows), gpu_report(*rows):
        found = [held for what, held in met(report).items() if "GAT" in what]
        assert found == [holds, holds]


def test_a_peer_that_did_not_end_shows_nothing() -> None:
    place = {"graph": "generated-10000000", "nodes": 1, "edges": 1, "step": "joint"}
    failed = {**place, "method": "gat", "error": "exit code -9"}
    (bar,) = bars(cpu_report(row("generated-10000000", "joint", "ours", 1.0), failed))
    assert not bar.met
    assert bar.measured == "GAT did not end: exit code -9"


@pytest.mark.parametrize(("last", "holds"), [(100.0, True), (200.0, False)])
def test_growth_counts_over_all_sizes_and_shows_its_end(last: float, holds: bool) -> None:
    sizes = {"generated-1000": 1.0, "generated-10000": 1.0, "generated-100000": last}
    report = cpu_report(*(row(name, "joint", "ours", time) for name, time in sizes.items()))
    (bar,) = bars(report)
    assert bar.met == holds
    assert bar.what.startswith("CPU, 1,000 to 100,000 edges")
    assert ("1.00, 2.00 between the two largest" in bar.measured) == holds


def test_a_device_has_room_and_bandwidth() -> None:
    report = gpu_report(row("large", "joint", "ours", 1.0, 71 * 2**30), share=0.4)
    assert list(met(report).values()) == [False, False]
    report = gpu_report(row("large", "joint", "ours", 1.0, 69 * 2**30), share=0.5)
    assert list(met(report).values()) == [True, True]


def many_runs(ratio: float) -> dict[str, Any]:
    one = {"seconds": 1.0}
    case = {"dataset": "Cora", "runs": 20, "ratio": ratio, "together": one, "alone": [one]}
    return {"machine": MACHINE, "cases": [case]}


def by_clusters(mib: float) -> dict[str, Any]:
    stage = {"stage": "predict", "seconds": 1.0, "peak_memory_mib": mib}
    sizes = {"nodes": 5_000_000, "edges": 50_000_000, "recipe": "planted", "test_accuracy": 0.5}
    return {"machine": MACHINE, "stages": [stage], "peak_memory_mib": mib, **sizes}


def test_many_runs_and_parts_have_bars_too() -> None:
    assert [*met(many_runs(2.9)).values(), *met(many_runs(3.1)).values()] == [True, False]
    assert [*met(by_clusters(16_000)).values(), *met(by_clusters(17_000)).values()] == [True, False]


def test_the_page_shows_every_file() -> None:
    failed = {"graph": "Cora", "nodes": 1, "edges": 1, "step": "joint", "method": "gat"}
    reports = {
        "cpu": cpu_report(
            row("Cora", "pretrain", "ours", 1),
            row("Cora", "pretrain", "literal", 2),
            {**failed, "error": "out of memory"},
        ),
        "gpu": gpu_report(row("large", "joint", "ours", 1.0)),
        "together": many_runs(2.0),
        "large": by_clusters(1024.0),
    }
    text = as_page(reports)
    for words in (
        "| at least 8x | 2.0x | **no** | `cpu.json` |",
        "python -m benchmarks.cpu --sizes 1000 --repeats 3 --threads 1",
        "out of memory",
        "1 of 2 checks",
        "| Cora | 20 | 1.0 | 1.0 | 2.00x |",
        "test accuracy 0.500",
        "data:image/png;base64,",
        "load of the machine at the start and the end: 0.1 and 0.2",
    ):
        assert words in text


def test_a_folder_is_read_and_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["page", str(tmp_path)])
    page.main()
    assert capsys.readouterr().out.strip() == NONE
    (tmp_path / "large.json").write_text(json.dumps(by_clusters(1.0)))
    page.main()
    assert "## `large.json`" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["page", str(tmp_path / "none")])
    with pytest.raises(InputError, match="no such folder"):
        page.main()
