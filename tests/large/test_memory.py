"""Memory is estimated before it is used, and what will not fit is refused with a way out."""

import json
import subprocess
import sys

import pytest
import torch
from torch_geometric.data import Data

from cli.running import refused, succeed
from training.toys import SMALL, run, toy
from vepm.data import as_dataset
from vepm.errors import InputError
from vepm.training import ModelCard, preset, sources
from vepm.training.sources import available_bytes, large_bytes, require_memory, step_bytes

CPU = torch.device("cpu")
MEASURE = """
import json, sys
from benchmarks.memory import PeakMemory
from vepm.data import load
from vepm.training import fit, preset
from vepm.training.sources import step_bytes

nodes, edges, changes = json.loads(sys.argv[1])
dataset = load(f"planted:nodes={nodes},edges={edges},features=16")
graph = dataset.graphs[0]
config = preset("tuned", "node").replace(
    pretrain_epochs=1, epochs=1, encoder_interval=1, **changes
)
rows = graph.train_mask.nonzero().flatten()
peak = PeakMemory()
fit(dataset, config, train_on=rows, validate_on=rows, device="cpu")
print(json.dumps((step_bytes(nodes, graph.num_edges, 16, config), peak.read())))
"""


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "available_bytes", lambda device: 2**20)


@pytest.mark.parametrize(
    "case", [(40_000, 400_000, {}), (80_000, 200_000, {"passes": 1, "hidden_channels": 64})]
)
def test_the_estimate_is_within_a_factor_of_two_of_the_peak(case: object) -> None:
    command = [sys.executable, "-c", MEASURE, json.dumps(case)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    estimate, peak = json.loads(done.stdout)
    assert 0.5 < estimate / peak < 2


@pytest.mark.usefixtures("little")
def test_what_does_not_fit_is_refused_with_the_option_to_use() -> None:
    with pytest.raises(InputError, match="--batch-nodes 1000,") as caught:
        run("node")
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="batch_size"):
        run("graph")
    with pytest.raises(InputError, match="by clusters needs about"):
        run("node", SMALL["node"].replace(batch_size=20))


@pytest.mark.usefixtures("little")
def test_the_refusal_can_be_overridden() -> None:
    assert run("node", check_memory=False).history


@pytest.mark.usefixtures("little", "no_page")
def test_the_command_refuses_and_can_be_told_not_to(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(str(tmp_path))
    words = ("train", "planted:nodes=200", "--set", "epochs=1", "--set", "pretrain_epochs=1")
    assert "try anyway with --no-memory-check" in refused(*words)
    succeed(*words, "--no-memory-check")


@pytest.fixture
def no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vepm.cli.jobs.write_report", lambda folder: folder / "report.html")


def test_estimates_grow_with_everything_that_costs() -> None:
    config = SMALL["node"]
    base = step_bytes(1e6, 1e7, 100, config)
    assert step_bytes(2e6, 1e7, 100, config) > base
    assert step_bytes(1e6, 2e7, 100, config) > base
    assert step_bytes(1e6, 1e7, 200, config) > base
    for name in ("hidden_channels", "encoder_channels", "num_communities", "num_metacommunities"):
        assert step_bytes(1e6, 1e7, 100, config.replace(**{name: 16, "num_communities": 16})) > base
    assert step_bytes(1e6, 1e7, 100, config.replace(passes=2)) > base


def test_clusters_need_less_than_the_whole_graph() -> None:
    config = SMALL["node"].replace(hidden_channels=64, batch_size=50_000)
    sizes = 5_000_000, 100_000_000, 16
    assert large_bytes(*sizes, config) < step_bytes(*sizes, config) / 2


def test_a_limit_of_the_container_counts(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path_factory.mktemp("cgroup")
    limit, used = folder / "max", folder / "current"
    limit.write_text(f"{3 * 2**20}\n")
    used.write_text(f"{2**20}\n")
    monkeypatch.setattr(sources, "CGROUPS", ((limit, used),))
    assert available_bytes(CPU) == 2 * 2**20
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert available_bytes(CPU) == 2**20
    limit.write_text("max\n")
    assert available_bytes(CPU) > 2**24


@pytest.mark.parametrize("task", ["node", "graph"])
def test_what_needs_as_much_as_is_free_passes_and_one_byte_more_does_not(
    task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = ModelCard.of(toy(task), SMALL[task])
    graphs = toy(task).graphs
    batch = SMALL[task].training.batch_size or len(graphs)
    largest = sorted(graphs, key=lambda graph: -graph.num_edges)[:batch]
    nodes, edges = (sum(getattr(g, f"num_{what}") for g in largest) for what in ("nodes", "edges"))
    need = step_bytes(nodes, edges, toy(task).num_features, SMALL[task])
    need += sources.COPIES * sources.FLOAT * card.num_weights()
    monkeypatch.setattr(sources, "available_bytes", lambda device: need)
    assert run(task).history
    monkeypatch.setattr(sources, "available_bytes", lambda device: need - 1)
    with pytest.raises(InputError, match="try anyway with --no-memory-check"):
        run(task)


@pytest.mark.parametrize(
    "widths",
    [
        {"hidden_channels": 2**20},
        {"encoder_channels": 2**20},
        {"num_communities": 2**20},
        dict.fromkeys(("num_communities", "num_metacommunities", "hidden_channels"), 2**20),
        {"hidden_channels": 2**20, "encoder_channels": 2**20, "num_communities": 2**20},
    ],
)
def test_huge_widths_are_refused_before_anything_is_allocated(
    widths: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "available_bytes", lambda device: 2**30)
    with pytest.raises(InputError, match="try anyway with --no-memory-check"):
        run("node", SMALL["node"].replace(**widths))


def test_weights_of_many_sparse_columns_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of some kilobytes may ask for a million rows of weights."""
    columns = torch.arange(0, 10**6, 25_000)
    x = torch.sparse_coo_tensor(
        torch.stack([torch.arange(40), columns]),
        torch.ones(40),
        (40, 10**6),
        check_invariants=True,
    )
    ring = torch.stack([torch.arange(40), torch.arange(40).roll(1)])
    dataset = as_dataset(Data(x=x, edge_index=ring, y=torch.arange(40) % 2))
    config = preset("tuned", "node")
    monkeypatch.setattr(sources, "available_bytes", lambda device: 4 * 2**30)
    with pytest.raises(InputError, match="fewer than 1,000,000 feature columns"):
        require_memory(dataset, ModelCard.of(dataset, config), CPU)
    small = config.replace(encoder_channels=8, hidden_channels=8)
    require_memory(dataset, ModelCard.of(dataset, small), CPU)


def test_estimates_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    config = SMALL["node"].replace(
        encoder_channels=7, num_communities=5, num_metacommunities=3, hidden_channels=12, passes=2
    )
    config = config.replace(bank_layers=2, composer_layers=4, batch_size=20)
    per_node, per_edge = 5 * 11 + 6 * 7 + 30 * 5 + 8 * 12 * 6 / 2 * 3, 3 * (10 + 3 * 2)
    base = 100 * 2**20
    assert step_bytes(100, 300, 11, config) == 4 * (100 * per_node + 300 * per_edge) + base
    tables = 7 + 2 * 5 + 3 + 2 * 12
    assert large_bytes(100, 300, 11, config) == 4 * 300 + 100 * (100 + 4 * tables) + 3 * 2**29
    # A step of a fifth of the graph and a tenth more, where that is larger than a chunk.
    monkeypatch.setattr(sources, "CHUNK", 0)
    step = int(4 * (22 * per_node + 66 * per_edge)) + base
    assert large_bytes(100, 300, 11, config) == 4 * 300 + 100 * (100 + 4 * tables) + step


def test_sizes_of_graphs_and_of_sparse_rows() -> None:
    sparse = torch.tensor([[1.0, 0, 2], [0, 0, 3], [1, 1, 1]]).to_sparse_coo().coalesce()
    edges = torch.tensor([[0, 1], [1, 0]])
    assert sources._sizes([Data(x=sparse, edge_index=edges)]) == (3, 2, 2)
    graph = Data(x=torch.ones(3, 5), edge_index=edges)
    assert sources._sizes([graph, graph]) == (6, 4, 5)


def test_as_many_runs_as_fit_in_half_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    data, config = toy("node"), SMALL["node"]
    assert sources.most_runs_at_once(data, config, "cpu") == 1
    graph = data.graphs[0]
    need = step_bytes(graph.num_nodes, graph.num_edges, data.num_features, config)
    monkeypatch.setattr(sources, "pick_device", lambda device: torch.device("cuda"))
    for free, count in ((7 * need, 3), (8 * need, 4), (need, 1), (1000 * need, 64)):
        monkeypatch.setattr(sources, "available_bytes", lambda device, free=free: free)
        assert sources.most_runs_at_once(data, config) == count


def test_the_suggested_batch_needs_half_of_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    data = toy("graph")
    config = SMALL["graph"].replace(batch_size=0)
    card, count = ModelCard.of(data, config), len(data.graphs)
    sizes = sources._sizes(data.graphs)
    free = step_bytes(*sizes, config) * 2 // 3
    monkeypatch.setattr(sources, "available_bytes", lambda device: free)
    with pytest.raises(InputError, match=f"--set batch_size={count // 3},") as caught:
        require_memory(data, card, CPU)
    nodes, edges, _ = sizes
    assert f"{nodes:,} nodes and {edges // 2:,} edges at once needs about 0.1 GiB" in str(
        caught.value
    )
