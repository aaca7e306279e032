"""Models without features on other graphs: coordinates keep their meaning, or are refused."""

from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch_geometric.data import Data

from training.forging import forge
from training.toys import SMALL
from vepm import CommunityDetector, NodeClassifier
from vepm.data import as_dataset, scaling
from vepm.errors import InputError
from vepm.training import load_model

TEAMS, SIZE = 4, 40
NODES = TEAMS * SIZE
CONFIG = SMALL["node"].replace(pretrain_epochs=100, epochs=60)


def teams(seed: int = 0, prefix: str = "person-") -> Any:
    """Four teams that talk mostly among themselves, in random order, a quarter of them labelled."""
    inside, outside = 0.25, 0.01
    rates = np.full((TEAMS, TEAMS), outside) + (inside - outside) * np.eye(TEAMS)
    drawn = nx.stochastic_block_model([SIZE] * TEAMS, rates.tolist(), seed=seed)
    graph: nx.Graph[str] = nx.Graph()
    for i in np.random.default_rng(seed).permutation(NODES):
        label = drawn.nodes[i]["block"] if i % 4 == 0 else -1
        graph.add_node(f"{prefix}{i}", label=label)
    graph.add_edges_from((f"{prefix}{i}", f"{prefix}{j}") for i, j in drawn.edges)
    return graph


def part(graph: Any, share: float, seed: int = 0) -> Any:
    """The graph of some of the nodes, in another order."""
    kept = np.random.default_rng(seed).permutation(list(graph))[: int(share * len(graph))]
    found: nx.Graph[str] = nx.Graph()
    found.add_nodes_from((node, graph.nodes[node]) for node in kept.tolist())
    found.add_edges_from(graph.subgraph(kept.tolist()).edges)
    return found


def accuracy(clf: NodeClassifier, graph: Any) -> float:
    """Share of the nodes, named by their place in the teams, that are put in their team."""
    truth = [int(node.rpartition("-")[2]) // SIZE for node in graph]
    return float((clf.predict(graph) == np.array(truth)).mean())


@pytest.fixture(scope="module")
def clf() -> NodeClassifier:
    return NodeClassifier(config=CONFIG, device="cpu").fit(teams())


def test_the_same_graph_is_predicted_as_in_training(clf: NodeClassifier, tmp_path: Path) -> None:
    assert accuracy(clf, teams()) > 0.95
    clf.save(tmp_path)
    loaded = NodeClassifier.load(tmp_path, device="cpu")
    np.testing.assert_array_equal(loaded.predict_proba(teams()), clf.predict_proba(teams()))
    trained_on = as_dataset(teams()).graphs[0].x
    assert clf.card_.prepare(as_dataset(teams())).graphs[0].x.equal(trained_on)


@pytest.mark.parametrize("share", [1.0, 0.75, 0.5])
def test_nodes_that_remain_are_predicted_right(clf: NodeClassifier, share: float) -> None:
    graph = part(teams(), share)
    assert accuracy(clf, graph) > 0.95
    unaligned = as_dataset(graph)
    own = unaligned.graphs[0].x[:, -unaligned.num_positions :]
    aligned = clf.card_.prepare(unaligned).graphs[0].x[:, -unaligned.num_positions :]
    assert not torch.allclose(own, aligned, atol=0.1)


def test_new_nodes_are_predicted_right() -> None:
    whole = teams()
    clf = NodeClassifier(config=CONFIG, device="cpu").fit(part(whole, 0.75))
    new = [node not in part(whole, 0.75) for node in whole]
    truth = np.array([int(node.rpartition("-")[2]) // SIZE for node in whole])
    right = clf.predict(whole) == truth
    assert right[new].mean() > 0.9
    assert clf.score(whole) == right[[whole.nodes[v]["label"] >= 0 for v in whole]].mean()


def test_graphs_of_other_nodes_are_refused(clf: NodeClassifier) -> None:
    for graph, words in [
        (teams(prefix="stranger-"), "only 0 of its 160 nodes are known"),
        (teams(seed=1), r"only \d+% of the edges of training between its nodes exist"),
        (nx.compose(part(teams(), 0.25), teams(prefix="stranger-")), "only 40 of its 200 nodes"),
    ]:
        for call in ("predict", "predict_proba", "transform", "memberships", "score"):
            with pytest.raises(InputError, match=words) as caught:
                getattr(clf, call)(graph)
            assert "\n" not in str(caught.value)


def matrices(graph: Any) -> tuple[None, Any, list[int]]:
    labels = [graph.nodes[node]["label"] for node in graph]
    return None, nx.to_scipy_sparse_array(graph), labels


def test_without_ids_only_the_same_graph_will_do() -> None:
    graph = teams()
    clf = NodeClassifier(config=CONFIG, device="cpu").fit(matrices(graph))
    truth = [int(node.rpartition("-")[2]) // SIZE for node in graph]
    assert (clf.predict(matrices(graph)) == truth).mean() > 0.95
    _, adjacency, _ = matrices(graph)
    ends = torch.from_numpy(np.stack(sp.coo_array(adjacency).coords)).long()
    same = Data(edge_index=ends, num_nodes=NODES)
    np.testing.assert_array_equal(clf.predict(same), clf.predict(matrices(graph)))
    with pytest.raises(InputError, match="no ids and are 120, not the 160 of training"):
        clf.predict(matrices(part(graph, 0.75)))
    with pytest.raises(InputError, match=r"only \d+% of the edges"):
        clf.predict(matrices(part(graph, 1.0)))
    # One node gone and another come: all that follow have moved by one place.
    nodes = list(graph)
    graph.add_edge("late", nodes[0])
    graph.nodes["late"]["label"] = -1
    graph.remove_node(nodes[-10])
    with pytest.raises(InputError, match=r"only 89% of the edges"):
        clf.predict(matrices(graph))


def test_two_nodes_of_one_name_have_no_ids() -> None:
    graph: nx.Graph[Any] = nx.Graph([(1, "1"), ("1", 2), (2, 3)])
    found = scaling.Anchors.of(as_dataset(graph))
    assert found is not None
    assert found.names is None


def test_communities_are_found_in_the_same_place(tmp_path: Path) -> None:
    detector = CommunityDetector(config=CONFIG, device="cpu").fit(teams())
    detector.save(tmp_path)
    loaded = CommunityDetector.load(tmp_path, device="cpu")
    np.testing.assert_array_equal(loaded.predict(teams()), detector.labels_)
    of_node = dict(zip(teams(), detector.labels_.tolist(), strict=True))
    smaller = part(teams(), 0.75)
    again = [of_node[node] for node in smaller]
    assert (loaded.predict(smaller) == again).mean() > 0.9


def test_few_edges_are_kept(clf: NodeClassifier, monkeypatch: pytest.MonkeyPatch) -> None:
    assert clf.card_.anchors is not None
    assert clf.card_.anchors.edges.size(1) == teams().number_of_edges()
    monkeypatch.setattr(scaling, "MOST_EDGES", 100)
    found = scaling.Anchors.of(as_dataset(teams()))
    assert found is not None
    assert 50 < found.edges.size(1) <= 100
    found.align(as_dataset(part(teams(), 0.75)))
    with pytest.raises(InputError, match="of the edges of training"):
        found.align(as_dataset(teams(seed=1)))


def test_forged_anchors_are_refused(clf: NodeClassifier, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    text = torch.frombuffer(bytearray(b'["a", "b"]'), dtype=torch.uint8)
    for name, tensor, words in [
        ("coordinates", torch.ones(NODES, 3), r"anchors are \[160, 3\]"),
        ("coordinates", torch.ones(NODES), r"anchors are \[160\]"),
        ("coordinates", torch.ones(NODES, 16, dtype=torch.cfloat), "anchors are .*complex"),
        ("coordinates", torch.full((NODES, 16), torch.nan), "not finite"),
        ("coordinates", torch.ones(2, 16), "edges name nodes"),
        ("edges", torch.tensor([[0], [NODES]]).int(), "edges name nodes"),
        ("edges", torch.tensor([[-1], [0]]).int(), "edges name nodes"),
        ("edges", torch.ones(3, 4).int(), r"anchors are \[3, 4\]"),
        ("edges", torch.ones(2, 4), r"anchors are .*torch.float32"),
        ("names", text, "2 node ids for 160 nodes"),
        ("names", text[:3], "not a usable model|cannot be used"),
        ("names", text[1:4], "not a usable model|cannot be used"),
        ("names", torch.tensor(7).byte() + 48, "not a usable model|cannot be used"),
        ("names", torch.ones(3), "not a usable model|cannot be used"),
    ]:
        clf.save(tmp_path)
        forge(path, lambda found, _, n=name, t=tensor: found.update({f"anchors.{n}": t}))  # type: ignore[misc]
        with pytest.raises(InputError, match=words) as caught:
            load_model(path)
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)
