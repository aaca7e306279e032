"""Columns of a table as features: numbers, text, dates, constants."""

from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

from vepm.data import as_dataset, read
from vepm.errors import InputError

NODES = """id,team,age,city,joined,country,nick
a,red,31,Rome,2020-01-31,IT,ann
b,blue,40,Oslo,2021-12-01,IT,bob
c,red,25,,2019-07-15,IT,cid
d,blue,33,Rome,2020-02-28,IT,dot
"""


@pytest.fixture
def people(tmp_path: Path) -> Path:
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "edges.csv").write_text("source,target\na,b\nb,c\nc,d\n")
    return tmp_path


def test_text_is_one_hot_and_the_rest_is_named(
    people: Path, caplog: pytest.LogCaptureFixture
) -> None:
    dataset = read(people, label="team")
    assert dataset.class_names == ("blue", "red")
    assert dataset.feature_names == ("age", "city=Oslo", "city=Rome")
    assert dataset.graphs[0].x.tolist() == [[31, 0, 1], [40, 1, 0], [25, 0, 0], [33, 0, 1]]
    assert caplog.messages[0].endswith(
        "not used: column 'joined' (dates), column 'country' (constant), column 'nick' (different "
        "in every row)"
    )


def test_the_same_columns_in_networkx(people: Path) -> None:
    graph: nx.Graph[str] = nx.Graph([("a", "b"), ("b", "c"), ("c", "d")])
    header, *rows = (line.split(",") for line in NODES.split())
    for row in rows:
        values: dict[str, Any] = dict(zip(header, row, strict=True))
        values |= {"age": int(values["age"]), "label": values.pop("team")}
        graph.nodes[values.pop("id")].update(values)
    found, expected = as_dataset(graph, features=["age", "city"]), read(people, label="team")
    assert found.feature_names == expected.feature_names
    assert found.graphs[0].x.equal(expected.graphs[0].x)
    assert found.graphs[0].y.equal(expected.graphs[0].y)


def test_columns_can_be_chosen_and_dropped(people: Path) -> None:
    assert read(people, label="team", features=["city", "age"]).feature_names == (
        "city=Oslo",
        "city=Rome",
        "age",
    )
    assert read(people, label="team", drop=["city"]).feature_names == ("age",)
    # A column that is asked for is used, whatever it holds.
    assert read(people, features=["country"]).feature_names == ("country=IT",)
    asked: list[dict[str, Any]] = [{"features": ["height"]}, {"drop": ["height"]}]
    for options in asked:
        with pytest.raises(InputError, match="no column 'height' to use or drop; there are 'team'"):
            read(people, **options)
    with pytest.raises(InputError, match="no column 'group' with labels"):
        read(people, label="group")
    with pytest.raises(InputError, match="no column 'team' with labels"):
        read(people / "edges.csv", label="team")


def test_a_model_keeps_its_categories(people: Path) -> None:
    """Other rows, in which values are missing or constant, are encoded as those of training."""
    known = ("age", "city=Oslo", "city=Rome")
    nodes = "id,age,city\na,30,Rome\nb,30,Rome\n"
    (people / "nodes.csv").write_text(nodes)
    (people / "edges.csv").write_text("source,target\na,b\n")
    dataset = read(people, feature_names=known)
    assert dataset.feature_names == known
    assert dataset.graphs[0].x.tolist() == [[30, 0, 1], [30, 0, 1]]
    (people / "nodes.csv").write_text(nodes.replace("Rome", "7"))
    assert read(people, feature_names=known).feature_names == (*known, "city=7")


@pytest.mark.parametrize("constant", ["0", "1"])
def test_constants_are_left_out_but_not_of_bags_of_words(constant: str, people: Path) -> None:
    rows = [f"{node},{i},{constant}" for i, node in enumerate("abcd", 1)]
    (people / "nodes.csv").write_text("\n".join(["id,a,b", *rows]))
    assert read(people).feature_names == ("a",)
    words = [f"{node},{i == 1:d},{i == 2:d},0" for i, node in enumerate("abcd")]
    (people / "nodes.csv").write_text("\n".join(["id,w1,w2,w3", *words]))
    assert read(people).feature_names == ("w1", "w2", "w3")


def test_integers_of_thousands_of_digits(people: Path) -> None:
    long = "9" * 5000
    (people / "nodes.csv").write_text(f"id,f,label\na,1,x\nb,{long},y\nc,2,x\nd,3,x\n")
    with pytest.raises(InputError, match=r"row 3, column f: '9{40}' is not finite"):
        read(people)
    (people / "nodes.csv").write_text(f"id,label\na,1\nb,{long}\nc,1\nd,0\n")
    with pytest.raises(InputError, match="not an integer from 0"):
        read(people)
    graph = nx.path_graph(3)
    nx.set_node_attributes(graph, {0: 1, 1: 2, 2: 10**5000}, "f")
    with pytest.raises(InputError, match="attribute f: a int is not a number"):
        as_dataset(graph)


def test_text_of_too_many_values_is_left_out(tmp_path: Path) -> None:
    rows = [f"n{i},v{i // 2}" for i in range(2200)]
    (tmp_path / "nodes.csv").write_text("\n".join(["id,code", *rows]))
    (tmp_path / "edges.csv").write_text("source,target\nn0,n1\n")
    names = read(tmp_path).feature_names
    assert names is not None
    assert names[0] == "one"


def test_vectors_and_other_objects_in_networkx(caplog: pytest.LogCaptureFixture) -> None:
    graph = nx.path_graph(2)
    graph.nodes[0].update(place=np.array([0.0, 1.0]), owner={"a": 1})
    graph.nodes[1].update(place=[2.0, 3.0], owner={"a": 2})
    dataset = as_dataset(graph)
    assert dataset.feature_names == ("place_0", "place_1")
    assert "column 'owner' (neither numbers nor text)" in caplog.text


def test_text_that_would_fill_memory_is_left_out(
    people: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Two cities of four people make eight cells.
    monkeypatch.setattr("vepm.data.columns._MOST_CELLS", 8)
    assert read(people, label="team").feature_names == ("age", "city=Oslo", "city=Rome")
    monkeypatch.setattr("vepm.data.columns._MOST_CELLS", 7)
    assert read(people, label="team").feature_names == ("age",)


def test_a_column_of_vectors_is_a_column_for_each_entry() -> None:
    graph = nx.path_graph(3)
    for node in graph:
        graph.nodes[node].update(pair=[node, 2 * node], one=[5 * node + 1], none=[])
    dataset = as_dataset(graph)
    assert dataset.feature_names == ("pair_0", "pair_1", "one")
    assert dataset.graphs[0].x.tolist() == [[0, 0, 1], [1, 2, 6], [2, 4, 11]]
