"""Sentences, tables and excerpts of a page, at the bounds of their rules."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from vepm.report import communities, page, payload, read_run, summary
from vepm.report.payload import build_payload, take_excerpt
from vepm.report.run import Run, listed

from .writing import write_graph_run, write_node_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return read_run(write_node_run(tmp_path_factory.mktemp("node") / "run", nodes=30))


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return read_run(write_graph_run(tmp_path_factory.mktemp("graph") / "run"))


def with_metrics(run: Run, **entries: Any) -> Run:
    return replace(run, metrics={**run.metrics, **entries})


def with_support(run: Run, support: list[float]) -> Run:
    """As many metacommunities as numbers, each with that support at every item."""
    odds = np.zeros(run.num_items)
    count = len(support)
    return replace(
        run,
        log_odds=odds,
        log_odds_without=odds[:, None] - np.array(support),
        label_without=np.zeros((run.num_items, count), dtype=np.int64),
        edge_weight=np.eye(count)[np.arange(run.edge_index.shape[1]) % count],
    )


@pytest.mark.parametrize(
    ("support", "words"),
    [
        ([6.0, 2, 1, 1], "Community 0 carries most of the evidence"),
        ([5.9, 2.1, 1, 1], "Communities 0 and 1 carry most of the evidence"),
        ([-1.0, 5, 1, -5], "Communities 1 and 3 carry most of the evidence"),
        ([1.0, 1, 1, 1], "The evidence is spread over all 4 communities"),
        ([1.0, 1], "The evidence is spread over all 2 communities"),
        ([3.0, 1], "Community 0 carries most of the evidence"),
        ([0.0, 0], ""),
        ([1.0], ""),
    ],
)
def test_where_the_evidence_lies(run: Run, support: list[float], words: str) -> None:
    second = summary.conclusion(with_support(run, support))[1]
    assert second.startswith(f"{words}; " if words else f"{(run.confidence < 0.6).sum()} node")


@pytest.mark.parametrize(
    ("accuracy", "rivals", "words"),
    [
        (
            0.75,
            {"gcn": 0.75},
            "75.0 % of the test nodes are classified correctly, 0.0 points above",
        ),
        (0.75, {"gcn": 0.5, "gat": 0.8}, "5.0 points below gat, the best baseline."),
        (0.75, {"gcn": 0.5, "odd": "?"}, "25.0 points above gcn."),
        (0.75, {}, "75.0 % of the test nodes are classified correctly."),
    ],
)
def test_conclusions(run: Run, accuracy: float, rivals: dict[str, Any], words: str) -> None:
    baselines = {name: {"test_accuracy": found} for name, found in rivals.items()}
    changed = with_metrics(run, test_accuracy=accuracy, baselines=baselines)
    assert words in summary.conclusion(changed)[0]
    scores = summary.headline(changed)["scores"]
    assert scores.get("VEPM") == (accuracy if rivals else None)


def test_uncertain_items_are_counted(run: Run) -> None:
    assert run.probabilities is not None
    sure = np.tile([0.6, 0.4, 0.0], (30, 1))
    for unsure, words in ((0, "0 nodes are"), (1, "1 node is"), (2, "2 nodes are")):
        given = sure.copy()
        given[:unsure] = [0.59, 0.41, 0.0]
        found = summary.conclusion(replace(run, probabilities=given))[1]
        assert found.endswith(f"{words} uncertain (under 60 %).")


def test_first_epoch_and_none(run: Run) -> None:
    assert summary.headline(with_metrics(run, best_epoch=0))["best_epoch"] == 0
    without = {key: value for key, value in run.metrics.items() if key != "best_epoch"}
    assert summary.headline(replace(run, metrics=without))["best_epoch"] is None
    found = summary.headline(run)
    assert run.labels is not None
    assert found["tested"] == int((run.masks["test"] & (run.labels >= 0)).sum())
    assert found["validated"] == int((run.masks["val"] & (run.labels >= 0)).sum())
    for wrong in (True, "0.5", float("nan"), None):
        assert summary.number_in({"value": wrong}, "value") is None
    assert summary.number_in({"value": 1}, "value") == 1.0


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ([1.0, 1.4, None], "All communities have about the same weight"),
        ([1.0, 1.5, 1.2], "An edge of 1 counts 1.5 times as much as an edge of 0."),
        ([1.0, 99.0, 1.2], "counts 99.0 times"),
        ([1.0, 100.0, 1.2], "counts over a hundred times"),
        ([2.0, 2.9], "All communities have about the same weight"),
        ([2.0, 3.0], "An edge of 1 counts 1.5 times as much as an edge of 0."),
        ([2.0, 199.0], "counts 99.5 times"),
        ([2.0, 200.0], "counts over a hundred times"),
        ([1.0, None, 0.0], ""),
    ],
)
def test_what_the_weights_of_parts_say(run: Run, weights: list[float | None], words: str) -> None:
    rows = [{"name": str(k), "relevance": weight} for k, weight in enumerate(weights)]
    found = summary.part_verdict(run, rows)
    assert words in found
    assert bool(found) == bool(words)


def test_confusion_counts_tested_items(run: Run) -> None:
    labels = np.array([0, 0, 0, 1, 1, 2, 2, -1, 0, 1], dtype=np.int64)
    guess = np.array([1, 1, 0, 0, 0, 1, 2, 1, 2, 1], dtype=np.int64)
    few = replace(run, labels=labels, prediction=guess, masks={"test": np.arange(10) != 8})
    confusion = summary.test_confusion(replace(few, memberships=run.memberships[:10]))
    assert confusion is not None
    assert confusion.tolist() == [[1, 2, 0], [2, 1, 0], [0, 1, 1]]


def test_sizes_in_one_line(run: Run, graphs: Run) -> None:
    edges = run.edge_index.shape[1] // 2
    assert summary.size_line(run) == (
        f"30 nodes · {edges} edges · 3 classes · 3 communities of 6 affiliations"
    )
    whole = with_metrics(run, excerpt_of={"nodes": 12345, "edges": 67890})
    assert summary.size_line(whole).startswith("an excerpt of 12,345 nodes · 67,890 edges · 3")
    assert summary.size_line(graphs).startswith(f"24 graphs · {graphs.num_nodes} nodes · ")
    same = replace(run, memberships=run.memberships[:, :3])
    assert summary.size_line(same).endswith(" · 3 communities")


def test_names_in_a_sentence() -> None:
    assert [listed([*"abc"[:n]]) for n in range(4)] == ["", "a", "a and b", "a, b and c"]


def test_payload_by_hand(run: Run) -> None:
    excerpt = take_excerpt(run)
    found = build_payload(run, excerpt)
    json.dumps(found)
    edges = {(int(a), int(b)) for a, b in run.edge_index.T if a < b}
    pairs = list(zip(found["edges"]["source"], found["edges"]["target"], strict=True))
    assert sorted(pairs) == sorted(edges)
    assert found["density"] == pytest.approx(len(edges) / (30 * 29 / 2))
    for (a, b), share in zip(pairs, found["edges"]["share"], strict=True):
        place = run.edge_index.T.tolist().index([a, b])
        assert share == [round(100 * float(part)) for part in run.edge_weight[place]]
    assert found["unsure"] == 60
    assert found["partOf"] == [0, 0, 1, 1, 2, 2]
    assert found["items"]["split"] == [1 + i % 3 for i in range(30)]
    assert run.probabilities is not None
    for row, given in zip(found["items"]["probabilities"], run.probabilities, strict=True):
        assert row == [[int(c), round(100 * float(given[c]), 1)] for c in np.argsort(-given)]
    support, odds = run.support, run.log_odds_without
    assert support is not None
    assert odds is not None
    fall, percent, _ = found["items"]["support"][4][1]
    assert fall == pytest.approx(support[4, 1], abs=0.006)
    assert percent == pytest.approx(100 / (1 + np.exp(-odds[4, 1])), abs=0.06)
    assert found["activation"] == pytest.approx(run.activation, rel=5e-3)


def test_a_page_starts_at_a_node_whose_neighbours_differ(run: Run) -> None:
    main = run.interaction.argmax(axis=1)
    best, scores = -1.0, []
    for node in range(30):
        others = main[[b for a, b in run.edge_index.T if a == node]]
        part = np.bincount(others, minlength=3) / max(len(others), 1)
        scores.append(-sum(p * np.log(p) for p in part if p > 0) * np.log1p(len(others)))
        best = max(best, scores[-1])
    assert scores[build_payload(run, take_excerpt(run))["start"]] == pytest.approx(best)


def test_excerpts_of_graphs_are_of_tested_ones_least_sure_first(
    graphs: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(payload, "FEWEST_NODES", 1)
    assert graphs.batch is not None
    sizes = np.bincount(graphs.batch)
    tested = [int(g) for g in np.argsort(graphs.confidence) if graphs.masks["test"][g]]
    for count in (1, 2, 3):
        budget = int(sizes[tested[:count]].sum())
        monkeypatch.setattr(payload, "MOST_NODES", budget)
        found = take_excerpt(graphs)
        assert found.items.tolist() == sorted(tested[:count])
        assert len(found.nodes) == budget == len(found.graph)
        names = build_payload(graphs, found)["items"]["name"]
        assert names == [graphs.graph_names[g] for g in sorted(tested[:count])]
        one_less = budget - 1
        monkeypatch.setattr(payload, "MOST_NODES", one_less)
        assert take_excerpt(graphs).items.tolist() == sorted(tested[: max(count - 1, 1)])


def test_excerpts_shrink_until_the_edges_fit(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payload, "FEWEST_NODES", 5)
    sizes = []
    for most in (10_000, 40, 1):
        monkeypatch.setattr(payload, "MOST_EDGES", most)
        found = take_excerpt(run)
        assert found.edges.shape[1] <= most or len(found.nodes) == 5
        sizes.append(len(found.nodes))
    # Of 30 nodes four fifths are kept again and again, rounded down.
    assert sizes[0] == 30
    assert set(sizes) <= {30, 24, 19, 15, 12, 9, 7, 5}
    assert sizes == sorted(sizes, reverse=True)


def test_rows_of_the_table_of_communities(run: Run) -> None:
    rows = communities.community_rows(run)
    main, member = run.interaction.argmax(axis=1), run.member
    for k, row in enumerate(rows):
        assert row["nodes"] == int((main == k).sum())
        assert row["members"] == int(member[:, k].sum())
        assert row["edge_mass"] == pytest.approx(run.edge_weight[:, k].sum() / 2)
        several = [i for i in range(30) if member[i, k] and member[i].sum() >= 2]
        assert row["overlapping"] == pytest.approx(len(several) / member[:, k].sum())
        strongest = sorted(np.flatnonzero(main == k), key=lambda i: -run.interaction[i, k])[:6]
        assert [node for node, _ in row["typical_nodes"]] == strongest
        assert sum(label["share"] for label in row["labels"]) == pytest.approx(1)


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        ([0.6, 0.4], "mostly a"),
        ([0.5, 0.5], "mostly a and b"),
        ([0.25, 0.25, 0.25, 0.25], "mostly a, b and c"),
        ([0.19] * 5, "height"),
    ],
)
def test_nicknames(parts: list[float], name: str) -> None:
    labels = [{"name": n, "share": s} for n, s in zip("abcde", parts, strict=False)]
    features = [("feature 3", 2.0), ("height", 1.0), ("weight", 0.5)]
    assert communities._nickname(labels, features) == name


def test_grey_levels_and_grids() -> None:
    assert communities.images(np.array([[0.0, 4.0, 8.0], [16.0, np.nan, -1.0]])) == ["048", "f00"]
    assert communities.images(np.zeros((1, 2))) == ["00"]
    names = [f"pixel_{i}_{j}" for i in range(2) for j in range(3)]
    assert communities.pixel_grid(names) == (2, 3)
    for wrong in ([], names[:5], names[::-1], [*names, "age"]):
        assert communities.pixel_grid(wrong) is None


def test_which_of_two_runs_is_better() -> None:
    right = np.zeros((2, 20), dtype=bool)
    right[0, :12] = True
    right[1, 6:8] = True
    lines = page._conclusion(right[::-1], ["one", "other"], "nodes")
    assert lines[0] == "Of 20 test nodes, other gets 60.0 % right and one 10.0 %."
    # Ten of ten fall to one side by chance with probability 2 / 1024.
    assert lines[1].startswith("The difference of 50.0 points is larger than chance (p = 0.002, ")
    assert "on the 10 nodes" in lines[1]
    right[1, 12:17] = True
    assert "no larger than chance" in page._conclusion(right, ["one", "other"], "nodes")[1]
    same = page._conclusion(right[[0, 0]], ["one", "other"], "nodes")[1]
    assert "0.0 points is no larger than chance (p = 1, " in same


def test_disagreements_say_who_said_what(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "MOST_ROWS", 2)
    plain = replace(run, probabilities=None)
    found = page._disagreements([run, plain], ["one", "other"], np.array([3, 5, 8]))
    assert found["columns"] == ["node", "label", "one", "other"]
    assert len(found["rows"]) == 2
    assert run.prediction is not None
    assert run.labels is not None
    name, label, said, other = found["rows"][1]
    assert (name, label) == (run.node_names[5], run.class_names[run.labels[5]])
    guess = run.class_names[run.prediction[5]]
    assert (said, other) == (f"{guess} ({100 * run.confidence[5]:.0f} %)", guess)


def test_only_settings_that_differ_are_listed(run: Run) -> None:
    other = replace(run, settings={"seed": 1, "model": run.settings["model"], "new": {"a": 2}})
    found = dict(page._differences([run, other]))
    assert found == {"general.seed": ["0", "1"], "new.a": ["–", "2"]}
