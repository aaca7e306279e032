import json
import os
import urllib.error
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from vepm.data import Dataset, datasets, load
from vepm.data.canonical import canonical_edges
from vepm.errors import InputError
from vepm.tasks import MASK_NAMES

ROOT = os.environ.get("VEPM_DATA")
needs_data = pytest.mark.skipif(not ROOT, reason="VEPM_DATA does not name a data folder")


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise urllib.error.URLError("no network in tests")

    monkeypatch.setattr("urllib.request.urlopen", refuse)


def assert_canonical(dataset: Dataset) -> None:
    for graph in dataset.graphs:
        num_nodes = graph.x.size(0)
        edge_index, found = canonical_edges(graph.edge_index, num_nodes)
        assert found == []
        assert graph.edge_index.equal(edge_index)
        assert graph.x.dtype == torch.float32
        assert graph.x.shape == (num_nodes, dataset.num_features)
        assert torch.isfinite(graph.x).all()
        assert graph.y.dtype == torch.long
        assert graph.y.shape == ((num_nodes,) if dataset.task == "node" else (1,))
        assert graph.y.max() < dataset.num_classes == len(dataset.class_names)
    if dataset.task == "node":
        masks = [dataset.graphs[0][name] for name in ("train_mask", "val_mask", "test_mask")]
        assert torch.stack(masks).sum(dim=0).max() <= 1
    if dataset.feature_names is not None:
        assert len(dataset.feature_names) == dataset.num_features


@pytest.mark.parametrize("name", ["digits", "digits-graphs", "KarateClub", "planted"])
def test_bundled_sets_load_anywhere_and_repeat(name: str, tmp_path: Path) -> None:
    first, second = load(name.upper(), tmp_path / "nowhere"), load(name)
    assert first.name == name
    assert_canonical(first)
    for one, other in zip(first.graphs, second.graphs, strict=True):
        assert one.x.equal(other.x)
        assert one.edge_index.equal(other.edge_index)


def test_digits() -> None:
    data = load("digits").graphs[0]
    sizes = [int(data[name].sum()) for name in ("train_mask", "val_mask", "test_mask")]
    assert sizes == [200, 300, 1297]
    assert data.y[data.train_mask].bincount().tolist() == [20] * 10
    assert data.x.min() == 0
    assert data.x.max() == 1
    row, col = data.edge_index
    assert (data.y[row] == data.y[col]).float().mean() > 0.9


def test_digits_graphs() -> None:
    dataset = load("digits-graphs")
    assert torch.cat([graph.y for graph in dataset.graphs]).bincount().tolist() == [60] * 10
    x = torch.cat([graph.x for graph in dataset.graphs])
    assert x.amin(dim=0).tolist() == [1 / 16, -1, -1]
    assert x.amax(dim=0).tolist() == [1, 1, 1]
    degree = torch.cat([graph.edge_index[1].bincount() for graph in dataset.graphs])
    assert degree.max() == 8


def test_karate_club() -> None:
    data = load("karateclub").graphs[0]
    assert int(data.train_mask.sum()) == 4
    assert int(data.test_mask.sum()) == 30


def test_unknown_names_are_refused_with_the_closest() -> None:
    with pytest.raises(InputError, match="unknown dataset 'Corra'; did you mean 'Cora'") as caught:
        load("Corra")
    assert "vepm datasets" in str(caught.value)
    with pytest.raises(InputError, match="unknown dataset 'xyzzy'; `vepm datasets`"):
        load("xyzzy")


def test_missing_files_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"ind\.cora\.x, .*ind\.cora\.test\.index into ") as caught:
        load("Cora", tmp_path)
    assert str(tmp_path / "Cora" / "raw") in str(caught.value)
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match=r"PTC: .*cannot be fetched from anywhere; put PTC_A\.txt"):
        load("PTC", tmp_path)
    monkeypatch.setenv("VEPM_DATA", str(tmp_path / "elsewhere"))
    with pytest.raises(InputError, match="elsewhere"):
        load("WikiCS")


def test_a_root_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot be fetched"):
        load("MUTAG", tmp_path / "file")


def test_the_default_root_is_in_the_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("VEPM_DATA", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(InputError, match=str(tmp_path / ".cache" / "vepm" / "data")):
        load("WikiCS")


def write_tu(root: Path, name: str, **changes: str) -> Path:
    """Three small graphs: a path of 3, a pair listed with a self-loop and twice, a lone node."""
    files = {
        "A": "1, 2\n2, 1\n2, 3\n3, 2\n4, 5\n5, 4\n4, 4\n4, 5\n",
        "graph_indicator": "1\n1\n1\n2\n2\n3\n",
        "graph_labels": "1\n-1\n1\n",
        **changes,
    }
    raw = root / name / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    for part, text in files.items():
        (raw / f"{name}_{part}.txt").write_text(text)
    return root


def test_tu_labels(tmp_path: Path) -> None:
    write_tu(tmp_path, "MUTAG", node_labels="0\n5\n0\n9\n9\n5\n", node_attributes="1.5\n" * 6)
    dataset = load("mutag", tmp_path)
    assert_canonical(dataset)
    assert dataset.class_names == ("-1", "1")
    assert dataset.feature_names == ("label_0", "label_5", "label_9")
    assert [graph.y.item() for graph in dataset.graphs] == [1, 0, 1]
    assert dataset.graphs[0].x.argmax(dim=1).tolist() == [0, 1, 0]
    assert [graph.edge_index.size(1) for graph in dataset.graphs] == [4, 2, 0]
    assert dataset.folds is None
    assert sorted(path.name for path in (tmp_path / "MUTAG").iterdir()) == ["raw"]


def test_tu_degrees_and_constants(tmp_path: Path) -> None:
    write_tu(tmp_path, "IMDB-BINARY")
    imdb = load("IMDB-B", tmp_path)
    assert imdb.feature_names == ("degree_0", "degree_1", "degree_2")
    assert imdb.graphs[0].x.argmax(dim=1).tolist() == [1, 2, 1]
    write_tu(tmp_path, "REDDIT-MULTI-5K")
    reddit = load("RDT-M", tmp_path)
    assert_canonical(reddit)
    assert reddit.graphs[2].x.tolist() == [[1.0]]


def test_folds(tmp_path: Path) -> None:
    write_tu(tmp_path, "IMDB-MULTI")
    folder = tmp_path / "IMDB-MULTI" / "10fold_idx"
    folder.mkdir()
    for i in range(1, 11):
        (folder / f"train_idx-{i}.txt").write_text("0\n2\n")
        (folder / f"test_idx-{i}.txt").write_text("1\n")
    folds = load("IMDB-MULTI", tmp_path).folds
    assert folds is not None
    assert [part.tolist() for part in folds[9]] == [[0, 2], [1]]
    (folder / "test_idx-3.txt").write_text("3\n")
    with pytest.raises(InputError, match=r"test_idx-3\.txt: an index is outside 0 to 2"):
        load("IMDB-MULTI", tmp_path)
    (folder / "test_idx-3.txt").write_text("2\n")
    with pytest.raises(InputError, match="or twice in the fold"):
        load("IMDB-MULTI", tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"A": ""}, "is empty"),
        ({"A": "1, x\n"}, "not integers"),
        ({"A": "1\n2\n"}, "1 columns where 2 belong"),
        ({"A": "1, 9\n"}, "edge 0 joins 0 and 8"),
        ({"A": "1, 4\n"}, "joins nodes of two graphs"),
        ({"graph_indicator": "1\n1\n1\n3\n3\n2\n"}, "does not count the 3 graphs"),
        ({"graph_labels": "1\n2\n"}, "does not count the 2 graphs"),
        ({"node_labels": "1\n2\n"}, "2 labels for 6 nodes"),
    ],
)
def test_bad_tu_files_are_refused(tmp_path: Path, changes: dict[str, str], message: str) -> None:
    write_tu(tmp_path, "NCI1", **{"node_labels": "0\n" * 6, **changes})
    with pytest.raises(InputError, match=message):
        load("NCI1", tmp_path)


def test_missing_files_are_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tu(tmp_path / "server", "IMDB-BINARY")
    content = BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for path in (tmp_path / "server" / "IMDB-BINARY" / "raw").iterdir():
            archive.write(path, f"IMDB-BINARY/{path.name}")
    asked: list[str] = []

    def serve(url: str, timeout: float) -> BytesIO:
        asked.append(url)
        return BytesIO(content.getvalue())

    monkeypatch.setattr("urllib.request.urlopen", serve)
    assert len(load("IMDB-BINARY", tmp_path / "root").graphs) == 3
    load("IMDB-BINARY", tmp_path / "root")
    assert len(asked) == 1
    assert asked[0].endswith("/IMDB-BINARY.zip")
    assert [path.name for path in (tmp_path / "root" / "IMDB-BINARY").iterdir()] == ["raw"]


def wikics() -> dict[str, Any]:
    masks = [[True, False, False, False]] * 10 + [[False, True, False, False]] * 10
    return {
        "features": [[0.5, 1.0], [1.0, 0.0], [0.0, 0.0], [2.0, 2.0]],
        "labels": [0, 1, 1, 0],
        "links": [[1, 1, 0], [2], [], []],
        "train_masks": masks,
        "val_masks": masks[::-1],
        "stopping_masks": [[False] * 4] * 20,
        "test_mask": [False, False, True, True],
    }


def write_wikics(root: Path, text: str) -> Path:
    (root / "WikiCS" / "raw").mkdir(parents=True)
    (root / "WikiCS" / "raw" / "data.json").write_text(text)
    return root


def test_wikics(tmp_path: Path) -> None:
    dataset = load("wikics", write_wikics(tmp_path, json.dumps(wikics())))
    assert_canonical(dataset)
    assert dataset.graphs[0].edge_index.tolist() == [[1, 0, 2, 1], [0, 1, 1, 2]]
    assert dataset.splits is not None
    assert len(dataset.splits) == 20
    train, val, test = dataset.splits[19]
    assert train.tolist() == [False, True, False, False]
    assert val.tolist() == [True, False, False, False]
    assert test.tolist() == [False, False, True, True]
    assert dataset.graphs[0].train_mask.equal(dataset.splits[0][0])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not the WikiCS layout"),
        ("[]", "not the WikiCS layout"),
        ("{}", "not the WikiCS layout"),
        (json.dumps(wikics() | {"features": [[1.0], [1.0, 2.0]]}), "not the WikiCS layout"),
        (json.dumps(wikics() | {"links": [[9], [], [], []]}), "edge 0 joins 0 and 9"),
        (json.dumps(wikics() | {"labels": [0, 1]}), r"y is \[2\]"),
    ],
)
def test_bad_wikics_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load("WikiCS", write_wikics(tmp_path, text))


def test_pickles_that_are_not_the_published_ones_are_never_opened(tmp_path: Path) -> None:
    raw = tmp_path / "Cora" / "raw"
    raw.mkdir(parents=True)
    for part in ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index"):
        (raw / f"ind.cora.{part}").write_bytes(b"cos\nsystem\n(S'touch harm'\ntR.")
    with pytest.raises(InputError, match=r"ind\.cora\.x: is not the published file"):
        load("Cora", tmp_path)


def test_the_list_says_what_is_there(tmp_path: Path) -> None:
    write_tu(tmp_path, "IMDB-MULTI")
    available = {info.name: info.available for info in datasets(tmp_path)}
    assert available["digits"]
    assert available["IMDB-MULTI"]
    assert not available["Cora"]
    assert not available["acm"]
    assert len(available) == 47
    assert all(info.description and info.source for info in datasets(tmp_path))


def write_geom_gcn(root: Path, features: list[str], **changes: str) -> None:
    """Three linked pages, the last of them first, with ten splits."""
    raw = root / "WebKB" / "texas" / "raw"
    raw.mkdir(parents=True)
    rows = [f"{i}\t{features[i]}\t{i % 2}" for i in (2, 0, 1)]
    files = {
        "node_feature_label": "\n".join(["node_id\tfeature\tlabel", *rows, ""]),
        "graph_edges": "node_id\tnode_id\n0\t1\n1\t1\n2\t1\n1\t2\n",
    }
    for part, text in (files | changes).items():
        (raw / f"out1_{part}.txt").write_text(text)
    for i in range(10):
        masks = {name: np.arange(3) == (i + k) % 3 for k, name in enumerate(MASK_NAMES)}
        np.savez(raw / f"texas_split_0.6_0.2_{i}.npz", **masks)


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        (["0,1", "1,0", "1,1"], [[0, 1], [1, 0], [1, 1]]),
        (["2", "0,1", "1"], [[0, 0, 1], [1, 1, 0], [0, 1, 0]]),
    ],
)
def test_geom_gcn(features: list[str], expected: list[list[int]], tmp_path: Path) -> None:
    write_geom_gcn(tmp_path, features)
    dataset = load("Texas", tmp_path)
    assert_canonical(dataset)
    graph = dataset.graphs[0]
    assert graph.x.tolist() == expected
    assert graph.y.tolist() == [0, 1, 0]
    assert graph.edge_index.tolist() == [[1, 0, 2, 1], [0, 1, 1, 2]]
    assert dataset.splits is not None
    assert [split[0].tolist().index(True) for split in dataset.splits] == [0, 1, 2] * 3 + [0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"node_feature_label": "id\n0\t1\n"}, "not the layout of Geom-GCN"),
        ({"node_feature_label": "id\n5\t1\t0\n"}, "not numbered from 0"),
        ({"graph_edges": "id id\n0\tx\n"}, "not integers in columns"),
        ({"graph_edges": "id id\n0\t9\n"}, "joins 0 and 9"),
    ],
)
def test_bad_geom_gcn_files_are_refused(
    changes: dict[str, str], message: str, tmp_path: Path
) -> None:
    write_geom_gcn(tmp_path, ["0,1", "1,0", "1,1"], **changes)
    with pytest.raises(InputError, match=message):
        load("texas", tmp_path)


def test_email(tmp_path: Path) -> None:
    raw = tmp_path / "EmailEUCore" / "raw"
    raw.mkdir(parents=True)
    (raw / "email-Eu-core.txt").write_text("0 1\n2 1\n")
    (raw / "email-Eu-core-department-labels.txt").write_text("0 7\n1 3\n2 7\n")
    dataset = load("EmailEUCore", tmp_path)
    assert dataset.class_names == ("3", "7")
    assert dataset.graphs[0].edge_index.tolist() == [[1, 0, 2, 1], [0, 1, 1, 2]]
    (raw / "email-Eu-core-department-labels.txt").write_text("1 7\n0 3\n2 7\n")
    with pytest.raises(InputError, match="do not count up from 0"):
        load("EmailEUCore", tmp_path)


def test_archives_of_edge_lists(tmp_path: Path) -> None:
    arrays: dict[str, Any] = {
        "edges": np.array([[0, 1], [1, 2]]),
        "node_features": np.eye(3),
        "node_labels": np.array([0, 1, 1]),
        "train_masks": np.eye(3, dtype=bool)[:2],
    }
    folder = tmp_path / "heterophilous-filtered"
    folder.mkdir()
    np.savez(folder / "squirrel_filtered.npz", **arrays)
    dataset = load("squirrel_filtered", tmp_path)
    assert_canonical(dataset)
    assert dataset.graphs[0].edge_index.tolist() == [[1, 0, 2, 1], [0, 1, 1, 2]]
    assert dataset.splits is not None
    assert len(dataset.splits) == 2
    for bad in (np.array([[0, 1, 2]]), np.array([[0.0, 1.0]]), np.array([[0, 9]])):
        np.savez(folder / "squirrel_filtered.npz", **(arrays | {"edges": bad}))
        with pytest.raises(InputError, match=r"squirrel_filtered\.npz"):
            load("squirrel_filtered", tmp_path)


@needs_data
@pytest.mark.parametrize(
    ("name", "nodes", "edges", "features", "classes", "splits"),
    [
        ("amazon-photo", 7650, 119081, 745, 8, 1),
        ("citeseer-full", 4230, 5337, 602, 6, 1),
        ("dblp-full", 17716, 52867, 1639, 4, 1),
        ("facebook-pages", 22470, 170823, 4714, 4, 1),
        ("reed98-year", 962, 18812, 730, 6, 1),
        ("tolokers", 11758, 519000, 10, 2, 10),
        ("uat", 1190, 13599, 239, 4, 1),
        ("ukfaculty", 81, 577, 18, 4, 1),
        ("ukfaculty-weighted", 81, 577, 18, 4, 1),
        ("highschool2013", 327, 5818, 18, 9, 1),
        ("highschool2013-unweighted", 327, 5818, 18, 9, 1),
        ("cornell", 183, 277, 1703, 5, 10),
        ("texas", 183, 279, 1703, 5, 10),
        ("wisconsin", 251, 450, 1703, 5, 10),
        ("Actor", 7600, 26659, 932, 5, 10),
        ("chameleon_filtered", 890, 8854, 2325, 5, 10),
        ("squirrel_filtered", 2223, 46998, 2089, 5, 10),
        ("minesweeper", 10000, 39402, 7, 2, 10),
        ("EmailEUCore", 1005, 16064, 18, 42, 1),
        ("fb_414", 159, 1693, 16, 0, 1),
    ],
)
def test_sets_of_one_graph(
    name: str, nodes: int, edges: int, features: int, classes: int, splits: int
) -> None:
    dataset = load(name)
    assert dataset.name == name
    graph = dataset.graphs[0]
    assert graph.x.shape == (nodes, features)
    assert graph.edge_index.size(1) == 2 * edges
    assert dataset.num_classes == classes
    assert len(dataset.splits or (0,)) == splits
    assert ("memberships" in graph) == (classes == 0)
    assert not dataset.directed
    assert ("edge_weight" in graph) == (name in ("ukfaculty-weighted", "highschool2013"))


@needs_data
def test_a_directed_set() -> None:
    dataset = load("ukfaculty-directed")
    assert dataset.directed
    assert dataset.graphs[0].edge_index.size(1) == 817


@needs_data
@pytest.mark.parametrize(
    ("name", "nodes", "edges", "features", "classes", "sizes"),
    [
        ("Cora", 2708, 5278, 1433, 7, [140, 500, 1000]),
        ("Citeseer", 3327, 4552, 3703, 6, [120, 500, 1000]),
        ("Pubmed", 19717, 44324, 500, 3, [60, 500, 1000]),
    ],
)
def test_citation_networks(
    name: str, nodes: int, edges: int, features: int, classes: int, sizes: list[int]
) -> None:
    dataset = load(name)
    assert_canonical(dataset)
    data: Data = dataset.graphs[0]
    assert data.x.shape == (nodes, features)
    assert data.edge_index.size(1) == 2 * edges
    assert dataset.num_classes == classes
    assert [int(data[m].sum()) for m in ("train_mask", "val_mask", "test_mask")] == sizes


@needs_data
@pytest.mark.parametrize(
    ("name", "graphs", "mean_edges", "features", "classes", "has_folds"),
    [
        ("MUTAG", 188, 19.8, 7, 2, True),
        ("PTC", 344, 26.0, 19, 2, True),
        ("PTC_MR", 344, 14.7, 18, 2, False),
        ("NCI1", 4110, 32.3, 37, 2, True),
        ("PROTEINS", 1113, 72.8, 3, 2, True),
        ("IMDB-B", 1000, 96.5, 65, 2, True),
        ("IMDB-M", 1500, 65.9, 59, 3, True),
        ("RDT-B", 2000, 497.8, 1, 2, False),
    ],
)
def test_tu_sets(
    name: str, graphs: int, mean_edges: float, features: int, classes: int, has_folds: bool
) -> None:
    dataset = load(name)
    assert_canonical(dataset)
    total = sum(graph.edge_index.size(1) for graph in dataset.graphs) / 2
    assert len(dataset.graphs) == graphs
    assert total / graphs == pytest.approx(mean_edges, abs=0.06)
    assert (dataset.num_features, dataset.num_classes) == (features, classes)
    assert (dataset.folds is not None) == has_folds
