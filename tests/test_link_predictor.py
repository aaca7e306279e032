"""Links: probabilities, missing ones, surprising ones, and the communities behind."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch_geometric.data import Data

from vepm import LinkPredictor
from vepm.data import as_dataset, planted_graph
from vepm.errors import InputError
from vepm.estimators import pairs as pairs_module
from vepm.estimators.pairs import (
    candidates,
    draw_non_edges,
    ranked,
    split_edges,
    surroundings,
)

PLANTED = planted_graph(200, 4, overlap=0.02, average_degree=12, num_features=8, seed=3)
GRAPH = PLANTED.graphs[0]


def predictor(**options: Any) -> LinkPredictor:
    settings: dict[str, Any] = {"num_communities": 4, "pretrain_epochs": 120, "device": "cpu"}
    return LinkPredictor(**settings | options)


@pytest.fixture(scope="module")
def model() -> LinkPredictor:
    return predictor().fit(PLANTED)


def test_pairs_of_one_community_are_likelier(model: LinkPredictor) -> None:
    y = GRAPH.y
    same = [
        (int(i), int(j)) for i, j in torch.combinations(torch.arange(200))[:4000] if y[i] == y[j]
    ]
    other = [
        (int(i), int(j)) for i, j in torch.combinations(torch.arange(200))[:4000] if y[i] != y[j]
    ]
    assert model.predict_proba(same).mean() > 5 * model.predict_proba(other).mean()
    assert model.score() == model.scores_["auc"] > 0.75
    found = model.score(None, same + other, [1] * len(same) + [0] * len(other))
    assert found > 0.8


def test_probabilities_are_calibrated(model: LinkPredictor) -> None:
    """Over all pairs they sum to about as many edges as there are."""
    every = torch.combinations(torch.arange(200)).tolist()
    edges = GRAPH.num_edges / 2
    assert model.predict_proba(every).sum() == pytest.approx(edges, rel=0.3)
    assert model.scores_["calibration_error"] < 0.15


def test_probability_and_shares_by_hand(model: LinkPredictor) -> None:
    z, activation = model.transform(PLANTED), model.model_.activation.detach().numpy()
    parts = activation * z[3] * z[7]
    found = model.explain_pairs([(3, 7)])
    np.testing.assert_allclose(found.share, [parts / parts.sum()], rtol=1e-5)
    c = model.calibration_
    strength = np.log([(activation * z[i] ** 2).sum() for i in (3, 7)]).sum() / 2
    likeness = np.log(parts.sum()) - strength
    graph = model.card_.prepare(PLANTED).graphs[0]
    around = surroundings(graph.x, graph.edge_index)
    degree = np.bincount(graph.edge_index[0], minlength=200)
    logit = c["likeness"] * likeness + c["strength"] * strength
    logit += c["features"] * around[3] @ around[7]
    logit += c["degree"] * np.log1p(degree[[3, 7]]).sum() + c["intercept"] + c["log_odds"]
    np.testing.assert_allclose(found.probability, [1 / (1 + np.exp(-logit))], rtol=1e-5)
    np.testing.assert_allclose(found.surprise, -np.log2(found.probability))
    both_ways = model.predict_proba([(7, 3), (3, 7)])
    assert both_ways[0] == pytest.approx(both_ways[1], rel=1e-5)


@pytest.mark.parametrize("layout", [torch.strided, torch.sparse_coo])
def test_surroundings_by_hand(layout: torch.layout) -> None:
    """The limit of personalised PageRank over rows of length one, less their mean."""
    x = torch.tensor([[3.0, 4.0], [0.0, 2.0], [1.0, 0.0]])
    edges = torch.tensor([[0, 1], [1, 0]])
    rows = torch.nn.functional.normalize(x) - torch.nn.functional.normalize(x).mean(0)
    # Nodes 0 and 1 have themselves and each other as neighbours, node 2 itself alone.
    walk = torch.tensor([[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0, 1]])
    h = rows
    for _ in range(10):
        h = 0.8 * walk @ h + 0.2 * rows
    table = x if layout == torch.strided else x.to_sparse_coo()
    np.testing.assert_allclose(
        surroundings(table, edges), torch.nn.functional.normalize(h), rtol=1e-4, atol=1e-6
    )


def test_wide_features_keep_their_cosines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three topics fit into 256 columns as well as into 600."""
    random = torch.Generator().manual_seed(0)
    x = torch.rand(400, 3, generator=random) @ torch.rand(3, 600, generator=random)
    edges = torch.tensor([[0, 1], [1, 0]])
    monkeypatch.setattr(pairs_module, "WIDTH", 600)
    exact = surroundings(x, edges)
    monkeypatch.undo()
    reduced = surroundings(x, edges)
    assert reduced.shape == (400, 256)
    np.testing.assert_allclose(reduced @ reduced.T, exact @ exact.T, atol=1e-2)


def test_surroundings_help_where_features_tell_and_edges_are_few() -> None:
    sparse = planted_graph(300, 3, overlap=0.02, average_degree=3, num_features=30, seed=5)
    parts = split_edges(sparse.graphs[0], 0.1, 0.2, 0)
    model = predictor(num_communities=3, pretrain_epochs=30).fit_edges(sparse, parts)
    assert model.calibration_["features"] > 0
    with_features = model.scores_["auc"]
    model.calibration_ |= {"features": 0.0}
    nodes = model.nodes(replace(sparse, graphs=[parts.graph]))
    without = ranked(lambda pairs: nodes.log_odds(pairs, model.calibration_), parts.test)
    assert with_features > roc_auc_score(*without)


def test_missing_links_are_the_likeliest_of_the_candidates(model: LinkPredictor) -> None:
    found = model.missing_links(top=15)
    joined = set(map(tuple, GRAPH.edge_index.T.tolist()))
    assert len(set(found.nodes)) == 15
    assert not joined & set(found.nodes)
    assert (np.diff(found.probability) <= 0).all()
    near = {
        pair
        for part in candidates(GRAPH.edge_index, model.transform(PLANTED))
        for pair in zip(*part.tolist(), strict=True)
    }
    best = sorted(near, key=lambda pair: -model.predict_proba([pair])[0])[0]
    assert found.nodes[0] == best


def test_edges_across_communities_are_surprising(model: LinkPredictor) -> None:
    found = model.surprising_edges()
    assert len(found.nodes) == GRAPH.num_edges / 2
    assert (np.diff(found.surprise) <= 0).all()
    across = [GRAPH.y[i] != GRAPH.y[j] for i, j in found.nodes]
    assert np.mean(across[:30]) > np.mean(across)
    assert model.surprising_edges(top=3).nodes == found.nodes[:3]


def test_new_nodes_get_affiliations_without_training() -> None:
    """A node that joins ten of one community belongs where they do."""
    model = predictor(feature_norm="standard").fit(PLANTED)
    friends = torch.where(GRAPH.y == 1)[0][:10]
    new = torch.stack([torch.full((10,), 200), friends])
    grown = Data(
        x=torch.cat([GRAPH.x, GRAPH.x[friends].mean(0, keepdim=True)]),
        edge_index=torch.cat([GRAPH.edge_index, new, new.flip(0)], dim=1),
    )
    before = [p.clone() for p in model.model_.parameters()]
    strangers = [(200, int(i)) for i in torch.where(GRAPH.y != 1)[0]]
    others = [(200, int(i)) for i in torch.where(GRAPH.y == 1)[0][10:]]
    assert (
        model.predict_proba(others, grown).mean() > 2 * model.predict_proba(strangers, grown).mean()
    )
    assert model.transform(grown).shape == (201, 4)
    assert all(torch.equal(p, q) for p, q in zip(before, model.model_.parameters(), strict=True))


def test_a_saved_model_says_the_same_of_a_graph_that_it_is_given(
    model: LinkPredictor, tmp_path: Path
) -> None:
    model.save(tmp_path)
    loaded = LinkPredictor.load(tmp_path, device="cpu")
    pairs = [(0, 1), (5, 90)]
    np.testing.assert_array_equal(loaded.predict_proba(pairs, PLANTED), model.predict_proba(pairs))
    assert loaded.scores_ == model.scores_
    with pytest.raises(InputError, match="give one as X"):
        loaded.missing_links()
    earlier = [
        line
        for line in (tmp_path / "links.toml").read_text().splitlines()
        if not line.startswith(("features", "degree"))
    ]
    (tmp_path / "links.toml").write_text("\n".join(earlier))
    assert LinkPredictor.load(tmp_path).calibration_ == model.calibration_ | {
        "features": 0.0,
        "degree": 0.0,
    }
    (tmp_path / "links.toml").write_text("[scores]\n")
    with pytest.raises(InputError, match="holds no calibration"):
        LinkPredictor.load(tmp_path)


def test_nodes_go_by_name() -> None:
    club = nx.relabel_nodes(nx.karate_club_graph(), lambda i: f"member {i}")
    found = predictor(pretrain_epochs=20).fit(club)
    assert found.predict_proba([("member 0", "member 9")]).shape == (1,)
    assert set(found.missing_links(top=5).nodes[0]) <= set(club)
    with pytest.raises(InputError, match="the graph has no node 'nobody'"):
        found.predict_proba([("member 0", "nobody")])
    with pytest.raises(InputError, match="list of pairs"):
        found.predict_proba([1, 2])


def test_masked_training_hides_edges() -> None:
    """What differs from the balanced likelihood is what the encoder sees, not the settings else."""
    losses = [
        [row["loss"] for row in predictor(likelihood=kind, pretrain_epochs=3).fit(PLANTED).history_]
        for kind in ("masked", "balanced")
    ]
    assert losses[0] != losses[1]
    assert len(losses[0]) == len(losses[1]) == 3


@pytest.mark.parametrize("seed", range(3))
def test_held_out_edges_and_non_edges(seed: int) -> None:
    parts = split_edges(GRAPH, 0.05, 0.1, seed)
    edges = set(map(tuple, GRAPH.edge_index.T.tolist()))
    once = len(edges) // 2
    assert parts.graph.num_edges == 2 * (once - int(0.05 * once) - int(0.1 * once))
    seen = set(map(tuple, parts.graph.edge_index.T.tolist()))
    assert seen == {(j, i) for i, j in seen} < edges
    for (held, others), share in ((parts.val, 0.05), (parts.test, 0.1)):
        assert held.shape == others.shape == (2, int(share * once))
        pairs = set(map(tuple, held.T.tolist()))
        assert pairs < edges
        assert not pairs & seen
        drawn = set(map(tuple, others.T.tolist()))
        assert len(drawn) == others.shape[1]
        assert not drawn & edges
        assert all(i < j for i, j in drawn)


def test_non_edges_are_drawn_evenly() -> None:
    random = np.random.default_rng(0)
    graph = Data(edge_index=torch.tensor([[0, 1], [1, 0]]), num_nodes=5)
    counts: dict[tuple[int, ...], int] = {}
    for _ in range(900):
        for pair in draw_non_edges(graph, 2, random).T.tolist():
            counts[tuple(pair)] = counts.get(tuple(pair), 0) + 1
    assert len(counts) == 9
    assert all(150 < count < 250 for count in counts.values())


def test_graphs_with_too_few_edges_or_non_edges_are_refused() -> None:
    path = Data(x=torch.ones(3, 1), edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))
    with pytest.raises(InputError, match="2 edges are too few"):
        predictor().fit(path)
    clique = nx.complete_graph(20)
    with pytest.raises(InputError, match="too few pairs without an edge"):
        predictor().fit(clique)


def test_candidates_are_pairs_at_distance_two_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs_module, "PAIRS_AT_ONCE", 50)
    monkeypatch.setattr(pairs_module, "STRONGEST", 2)
    graph = nx.gnm_random_graph(30, 60, seed=1)
    once = torch.tensor(list(graph.edges)).T
    strength = np.zeros((30, 1), dtype=np.float32)
    strength[[0, 29]] = 1
    edges = torch.cat([once, once.flip(0)], dim=1)
    chunks = [set(zip(*part.tolist(), strict=True)) for part in candidates(edges, strength)]
    lengths = dict(nx.all_pairs_shortest_path_length(graph))
    near = {(i, j) for i in range(30) for j in range(i + 1, 30) if lengths[i].get(j) == 2}
    assert len(chunks) > 3
    assert set().union(*chunks[:-1]) == near
    assert chunks[-1] <= {(0, 29)}


def test_evidence_is_the_same_in_chunks_and_finite_without_any(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    random = np.random.default_rng(0)
    z = np.vstack([random.random((9, 3)), np.zeros((1, 3))])
    rows, degree = random.random((10, 4)), random.random(10)
    nodes = pairs_module.Nodes([*range(10)], torch.zeros(2, 0), z, 2 * z, rows, degree)
    pairs = np.stack(np.triu_indices(10, 1))
    found = nodes.evidence(pairs)
    i, j = pairs[:, 0]
    cosine = z[i] @ z[j] / np.linalg.norm(z[i]) / np.linalg.norm(z[j])
    strength = np.log(2 * np.linalg.norm(z[i]) * np.linalg.norm(z[j]))
    wanted = [np.log(cosine), strength, rows[i] @ rows[j], degree[i] + degree[j]]
    np.testing.assert_allclose(found[0], wanted)
    assert np.isfinite(found).all()
    monkeypatch.setattr(pairs_module, "AT_ONCE", 7)
    np.testing.assert_array_equal(nodes.evidence(pairs), found)


def test_features_of_a_graph_without_any_come_from_the_edges_that_train() -> None:
    """Coordinates of the whole graph would tell which edges are held out."""
    dataset = as_dataset(nx.karate_club_graph(), task="node")
    model = predictor(pretrain_epochs=2)
    parts = split_edges(dataset.graphs[0], 0.05, 0.1, 0)
    model.fit_edges(dataset, parts)
    degree = torch.bincount(parts.graph.edge_index[0], minlength=34)
    assert model.card_.anchors is not None
    whole = dataset.graphs[0].x[:, -16:]
    assert not torch.allclose(model.card_.anchors.coordinates, whole)
    assert not torch.allclose(dataset.graphs[0].x[:, 1], degree.float().log1p())


def test_communities_may_interact() -> None:
    """Shares of a pair halve what two communities have to do with each other."""
    model = predictor(interactions="matrix", pretrain_epochs=3).fit(PLANTED)
    z, between = model.transform(PLANTED), model.model_.interactions.detach().numpy()
    found = model.explain_pairs([(3, 7)])
    parts = (z[3] * (between @ z[7]) + z[7] * (between @ z[3])) / 2
    np.testing.assert_allclose(found.share, [parts / parts.sum()], rtol=1e-4)
    assert parts.sum() == pytest.approx(z[3] @ between @ z[7], rel=1e-4)
