"""How a step is measured, without measuring one: memory, turns, sizes and the machine."""

import mmap
import os
import platform
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from benchmarks import memory
from benchmarks.memory import PeakMemory
from vepm import bench
from vepm.bench import Plan, attempt, machine, measure, ratios, run, steps
from vepm.bench.steps import METHODS, STEPS, Method, Step, build_model
from vepm.data import planted_graph
from vepm.scale import cuda_graphs

GRAPH = planted_graph(60, 3, average_degree=6, num_features=5, seed=0).graphs[0]
STATUS = Path("/proc/self/status")


@pytest.mark.skipif(not STATUS.exists(), reason="needs /proc")
def test_memory_of_the_system_comes_in_whole_pages() -> None:
    size = memory._status("VmSize")
    assert size > 0
    assert size % mmap.PAGESIZE == 0


def test_without_a_status_file_the_peak_of_the_process_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Path, "exists", lambda _: False)
    monkeypatch.setattr(memory, "peak_memory", lambda: {"peak_memory_mib": 1.5})
    assert memory._status("VmHWM") == 1.5 * 1024 * 1024


@pytest.mark.parametrize(("before", "peak", "found"), [(100, 130, 30), (100, 90, 0)])
def test_peak_is_what_came_on_top_of_what_was_in_use(
    before: int, peak: int, found: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {"VmRSS": before, "VmHWM": peak}
    monkeypatch.setattr(memory, "_status", known.__getitem__)
    monkeypatch.setattr(Path, "write_text", lambda *_: 1)
    assert PeakMemory().read() == found


def test_a_peak_that_cannot_be_reset_is_that_of_the_whole_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> None:
        raise OSError

    monkeypatch.setattr(memory, "_status", {"VmRSS": 100, "VmHWM": 130}.__getitem__)
    monkeypatch.setattr(Path, "write_text", refuse)
    assert PeakMemory().read() == 130


def test_memory_of_a_gpu_is_what_pytorch_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    for name in ("synchronize", "reset_peak_memory_stats"):
        monkeypatch.setattr(torch.cuda, name, lambda name=name: done.append(name))
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: 100)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 130)
    assert PeakMemory("cuda").read() == 30
    assert done == ["synchronize", "reset_peak_memory_stats"]


@pytest.fixture
def graph_file(tmp_path: Path) -> Path:
    path = tmp_path / "graph.pt"
    torch.save({name: GRAPH[name] for name in ("x", "edge_index", "y", "train_mask")}, path)
    return path


def test_the_step_that_captures_a_cuda_graph_is_the_last_that_is_not_timed(
    graph_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[str] = []

    def build(step: str, graph: Data, device: str) -> Step:
        assert graph.num_edges == GRAPH.num_edges
        return lambda: taken.append(f"{step} on {device}") or torch.zeros(())  # type: ignore[func-returns-value]

    monkeypatch.setattr(bench, "TURN_SECONDS", 0)
    measure(build, "joint", graph_file, Plan(repeats=2))
    timed = 2
    assert taken == ["joint on cpu"] * (cuda_graphs.WARMUP + 1 + timed)


def test_short_steps_are_repeated_in_each_round(graph_file: Path) -> None:
    calls: list[int] = []

    def step() -> Tensor:
        calls.append(1)
        time.sleep(0.02)
        return torch.zeros(())

    found = measure(lambda *_: step, "joint", graph_file, Plan(repeats=1))
    # For a quarter of a second, however long a machine sleeps, after three that are not timed.
    assert 2 <= len(calls) - bench.WARMUP <= 13
    assert found["median"] >= 0.02


@pytest.mark.parametrize(("device", "processes"), [("cpu", 1), ("cuda", 0)])
def test_only_a_cpu_needs_a_process_for_the_memory_of_each_method(
    device: str, processes: int, graph_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []

    def pool(*_: object) -> ThreadPoolExecutor:
        started.append(device)
        return ThreadPoolExecutor(1)

    monkeypatch.setattr(bench, "ProcessPoolExecutor", pool)
    monkeypatch.setattr(bench, "measure", lambda *_: {"median": 1.0})
    assert attempt(METHODS["gcn"].build, "joint", graph_file, Plan(device)) == {"median": 1.0}
    assert len(started) == processes


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Methods train in threads, which is enough for one at a time."""

    monkeypatch.setattr(bench, "ProcessPoolExecutor", lambda *_: ThreadPoolExecutor(1))
    monkeypatch.setattr(bench, "TURN_SECONDS", 0)


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize(("words", "said"), [(["too much\nand more"], "too much"), ([], "Lost")])
def test_an_error_is_said_in_its_first_line_or_by_its_name(
    words: list[str], said: str, graph_file: Path
) -> None:
    class Lost(RuntimeError):  # noqa: N818
        pass

    def build(*_: object) -> Step:
        raise Lost(*words)

    assert attempt(build, "joint", graph_file, Plan()) == {"error": said}


@pytest.mark.parametrize(("budget", "rounds"), [(0.0, 1), (100.0, 4)])
def test_rounds_are_as_many_as_asked_for_if_the_budget_lasts(
    budget: float, rounds: int, graph_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "TURN_SECONDS", 0)
    plan = Plan(repeats=4, budget=budget)
    found = measure(lambda *_: lambda: torch.zeros(()), "joint", graph_file, plan)
    assert len(found["rounds"]) == rounds


@pytest.mark.usefixtures("in_this_process")
def test_a_report_grows_row_by_row() -> None:
    methods = {"one": Method(lambda *_: lambda: torch.zeros(()))}
    reports = [*run(Plan(datasets=["KarateClub"], repeats=1), methods)]
    assert all(report["ratios"] == [] for report in reports)
    assert [row["step"] for row in reports[-1]["rows"]] == [*STEPS]
    assert len(reports) == len(STEPS) + 1


def test_rows_tell_of_all_rounds_and_of_the_peak_at_the_end(
    graph_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = iter([[3.0], [0.5, 1.0, 9.0], [2.5]])
    monkeypatch.setattr(bench, "time_call", lambda *_, **__: next(turns))
    peaks = iter([100.0, 107.5])
    monkeypatch.setattr(bench, "peak_memory", lambda: {"peak_memory_mib": next(peaks)})
    found = measure(lambda *_: lambda: torch.zeros(()), "joint", graph_file, Plan(repeats=3))
    assert found == {"rounds": [3.0, 1.0, 2.5], "peak_bytes": 7.5 * 2**20, "median": 2.5}


def test_a_report_says_how_busy_the_machine_was(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = iter([(1.0, 5.0, 15.0), (2.0, 5.0, 15.0)])
    monkeypatch.setattr(os, "getloadavg", lambda: next(busy))
    (report,) = run(Plan())
    assert report["load"] == [1.0, 2.0]
    assert report["rows"] == report["ratios"] == []
    usual = {"repeats": 10, "budget": 20.0, "threads": 0, "degree": 20, "features": 100}
    assert usual.items() <= report["settings"].items()


def test_generated_graphs_have_twenty_directed_edges_for_each_node() -> None:
    ((name, graph),) = bench._graphs(Plan(edges=[8000]))
    assert name == "generated-8000"
    assert (graph.num_nodes, graph.num_features, int(graph.y.max()) + 1) == (400, 100, 8)
    assert graph.num_edges == pytest.approx(8000, rel=0.1)


CPUINFO = "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\n\nmodel name\t: Another CPU\n"


@pytest.mark.parametrize(
    ("device", "system", "text", "name"),
    [
        ("cpu", "linux", CPUINFO, "Some CPU @ 2 GHz"),
        ("cpu", "linux", "processor\t: 0\n", platform.machine()),
        ("cpu", "darwin", CPUINFO, platform.machine()),
        ("cuda", "linux", CPUINFO, "Some GPU"),
    ],
)
def test_a_machine_is_named_after_what_does_the_work(
    device: str, system: str, text: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "describe_machine", lambda: {"gpu": "Some GPU"})
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(Path, "read_text", lambda _: text)
    found = machine(device)
    assert (found["device"], found["gpu"], found["cores"]) == (name, "Some GPU", os.cpu_count())


@pytest.mark.parametrize("peer", ["gat", "sage"])
def test_every_method_but_ours_is_a_peer(peer: str) -> None:
    place = {"graph": "g", "step": "joint"}
    ours = {**place, "method": "ours", "median": 1.0, "rounds": [1.0, 3.0, 2.0], "peak_bytes": 6}
    other = {**place, "method": peer, "median": 2.0, "rounds": [2.0, 4.0, 8.0], "peak_bytes": 8}
    assert ratios([ours, other]) == [{**place, "against": peer, "time": 0.5, "memory": 0.75}]


@pytest.mark.parametrize("step", STEPS)
def test_only_one_step_has_gradients_to_edge_weights_that_nothing_moves(
    step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    others: list[list[tuple[int, ...]]] = []
    monkeypatch.setattr(steps, "trainer", lambda *given: others.append([o.shape for o in given[2]]))
    METHODS["ours"].build(step, GRAPH, "cpu")
    assert others == [[(GRAPH.num_edges, 8)] if step == "weights" else []]


def shapes(build: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Shapes of the weights that a step moves, without biases."""
    found: list[torch.optim.Optimizer] = []
    monkeypatch.setattr(steps, "trainer", lambda _, optimizer, *__: found.append(optimizer))
    build()
    (group,) = found[0].param_groups
    assert float(group["lr"]) == pytest.approx(0.01)
    return [tuple(weight.shape) for weight in group["params"] if weight.dim() > 1]


def test_peers_are_as_wide_and_as_deep_as_what_is_trained_of_vepm(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def of(method: str, step: str) -> list[tuple[int, ...]]:
        return shapes(lambda: METHODS[method].build(step, GRAPH, "cpu"), monkeypatch)

    assert of("gcn", "predict") == [(64, 5), (3, 64)]
    assert of("gcn", "joint") == [(64, 5), (64, 64), (64, 64), (3, 64)]
    heads = [(1, 8, 8), (1, 8, 8), (64, 5)]
    assert of("gat", "weights") == [*heads, (1, 1, 3), (1, 1, 3), (3, 64)]
    assert len(of("gat", "joint")) == 12
    assert shapes(lambda: METHODS["ours"].build("joint", GRAPH, "cpu"), monkeypatch)


def test_vepm_is_built_with_as_many_communities_as_channels() -> None:
    model, _ = build_model(GRAPH)
    found = model(GRAPH.x, GRAPH.edge_index)
    assert found.z.shape == (60, 64)
    assert found.edge_weight.shape == (GRAPH.num_edges, 8)
    assert found.logits.shape == (60, 3)


def test_a_step_moves_what_the_loss_depends_on_and_nothing_else() -> None:
    weight, unused, other = (torch.tensor([n], requires_grad=True) for n in (3.0, 4.0, 5.0))
    optimizer = torch.optim.SGD([weight, unused], lr=0.5)
    step = steps.trainer(lambda: (weight.square() * other).sum(), optimizer, [other])
    found = step()
    assert (float(found), found.requires_grad) == (45.0, False)
    # The gradient is 2 x 3 x 5.
    assert (weight.item(), unused.item(), other.item()) == (-12.0, 4.0, 5.0)
    assert other.grad is None


@pytest.mark.parametrize("peer", ["gcn", "gat"])
@pytest.mark.parametrize("step", ["predict", "joint"])
def test_every_layer_of_a_peer_is_trained(
    peer: str, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Any] = []
    monkeypatch.setattr(steps, "trainer", lambda *found: given.extend(found))
    METHODS[peer].build(step, GRAPH, "cpu")
    loss, optimizer = given
    loss().backward()
    assert all(bool(weight.grad.any()) for weight in optimizer.param_groups[0]["params"])


def test_peers_have_no_encoder_to_train() -> None:
    assert [name for name, method in METHODS.items() if method.fits("pretrain", 1, 10)] == ["ours"]
    assert [name for name, m in METHODS.items() if m.fits("weights", 1, 10)] == ["ours", "gat"]


@pytest.mark.parametrize(
    ("edges", "peers"), [(10, ["gcn", "gat"]), (5_000_000, ["gcn", "gat"]), (5_000_001, [])]
)
def test_peers_are_left_out_where_their_messages_would_fill_the_memory(
    edges: int, peers: list[str]
) -> None:
    fitting = [name for name, method in METHODS.items() if method.fits("joint", 1, edges)]
    assert fitting == ["ours", *peers]
