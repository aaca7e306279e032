import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vepm.errors import InputError
from vepm.report import read_run, write_report
from vepm.report.page import plan_drawings

from .writing import (
    Array,
    change,
    rewrite_metrics,
    write_graph_run,
    write_node_run,
    write_unsupervised_run,
)


def metrics(**changes: Any) -> str:
    return json.dumps({"dataset": "a", "task": "node", **changes})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_node_run(tmp_path / "run", nodes=30)


def test_reads_everything(folder: Path) -> None:
    run = read_run(folder)
    assert run.num_nodes == 30
    assert run.num_metacommunities == 3
    assert run.settings["model"]["num_metacommunities"] == 3
    assert run.class_names == ("red", "green", "blue")
    assert run.node_names[2] == "node 2"
    assert np.isnan(run.history["task"][0])
    assert run.history["phase"][-1] == "finetune"
    assert set(run.masks) == {"train", "val", "test"}


def test_classes_that_the_probabilities_do_not_have_are_refused(folder: Path) -> None:
    rewrite_metrics(folder, num_classes=65_000)
    with pytest.raises(InputError, match="have 65000 classes and the probabilities 3"):
        read_run(folder)


def test_many_classes_need_no_table_of_all_pairs(folder: Path) -> None:
    """A forged label may be any class; a table of all pairs of these would take gigabytes."""
    labels = np.arange(30) % 3
    labels[2:27:3] = 65_000
    guesses = np.where(np.arange(30) % 2, 0, labels)
    guesses[29] = -1
    change(folder, y=labels, prediction=guesses, probabilities=None, log_odds=None)
    run = read_run(folder)
    assert "confusion" not in plan_drawings(run)


def test_no_such_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such run folder"):
        write_report(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "name", ["metrics.json", "config.toml", "history.csv", "outputs.safetensors", "names.json"]
)
def test_a_pipe_in_the_place_of_a_file_is_refused(name: str, folder: Path) -> None:
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    with pytest.raises(InputError, match=f"{name}: .*not a file"):
        read_run(folder)


@pytest.mark.parametrize(
    "name", ["config.toml", "metrics.json", "history.csv", "outputs.safetensors"]
)
def test_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(
        InputError, match=f"{name}: (missing|not a readable TOML file .No such file)"
    ):
        read_run(folder)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.toml", "a = ", "not a readable TOML file"),
        ("metrics.json", "{", "not JSON"),
        ("metrics.json", "[]", "JSON object"),
        ("metrics.json", '{"task": "node"}', "no 'dataset'"),
        ("metrics.json", '{"dataset": "a", "task": "edge"}', "none of node, graph"),
        ("metrics.json", metrics(test_accuracy=-0.5), "test_accuracy is -0.5"),
        ("metrics.json", metrics(test_accuracy="high"), "test_accuracy is 'high'"),
        ("metrics.json", metrics(num_classes=10**12), "num_classes is 1000000000000"),
        ("metrics.json", metrics(excerpt_of=[1]), "excerpt_of is"),
        ("metrics.json", metrics(nmi=10**400), "more than 64 bits"),
        ("history.csv", "epoch,loss\n1,2\n", "no column 'phase'"),
        (
            "history.csv",
            "phase,epoch\npretrain,one\n",
            "not a table of numbers .could not convert .*'one'",
        ),
        ("outputs.safetensors", "short", "not a whole safetensors file"),
    ],
)
def test_damaged_file_is_named(folder: Path, name: str, content: str, message: str) -> None:
    (folder / name).write_text(content)
    with pytest.raises(InputError, match=message) as caught:
        read_run(folder)
    assert "\n" not in str(caught.value)
    assert name in str(caught.value)


def test_pickle_is_refused(folder: Path) -> None:
    (folder / "outputs.safetensors").write_bytes(pickle.dumps({"memberships": [1]}))
    with pytest.raises(InputError, match="not a whole safetensors file"):
        read_run(folder)


SIGNALLING = np.full((30, 6), 0x7FA00000, dtype=np.uint32).view(np.float32)
"""NaN of the kind that warns when it is converted."""


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"memberships": None}, "no array 'memberships'"),
        ({"activation": np.ones((2, 2))}, "activation has 2 dimensions"),
        ({"activation": np.ones(2)}, "activation is .2,., with 2 instead of 6 communities"),
        ({"edge_weight": np.ones((1, 3))}, "edge_weight is .* instead of .* edges"),
        ({"memberships": np.ones((5, 6))}, "with 30 instead of 5 nodes"),
        (
            {"edge_index": np.full((2, 1), 99), "edge_weight": np.ones((1, 3))},
            "edge_index holds numbers outside 0 to 29",
        ),
        ({"memberships": np.full((30, 6), np.nan)}, "memberships holds values that are not"),
        ({"memberships": SIGNALLING}, "memberships holds values that are not"),
        ({"memberships": np.full((30, 6), -1.0)}, "memberships holds values that are not"),
        ({"memberships": np.full((30, 6), 1e39)}, "memberships holds values that are not"),
        ({"probabilities": np.full((30, 3), 2.0)}, "probabilities holds values that are not"),
        ({"prediction": np.zeros(4, dtype=int)}, "prediction is .* instead of 30 nodes"),
        ({"features": np.ones((4, 2))}, "features is .4, 2., with 4 instead of 30 nodes"),
        ({"prediction": np.zeros((30, 2), dtype=int)}, "prediction has 2 dimensions, not 1"),
        ({"probabilities": np.zeros(30)}, "probabilities has 1 dimensions, not 2"),
        ({"prediction": np.zeros(30)}, "prediction holds float64"),
        ({"edge_weight": np.ones((1, 3), dtype=int)}, "edge_weight holds int64"),
        ({"label_without": np.zeros((30, 2), dtype=int)}, "2 instead of 3 metacommunities"),
    ],
)
def test_arrays_at_odds_are_named(
    folder: Path, changes: dict[str, Array | None], message: str
) -> None:
    change(folder, **changes)
    with pytest.raises(InputError, match=message):
        read_run(folder)


@pytest.mark.parametrize(("parts", "right"), [(0, False), (1, True), (6, True), (7, False)])
def test_a_run_of_six_communities_has_one_to_six_parts(
    parts: int, right: bool, tmp_path: Path
) -> None:
    folder = write_unsupervised_run(tmp_path / "run")
    edges = read_run(folder).edge_index.shape[1]
    change(folder, edge_weight=np.ones((edges, parts)))
    if right:
        assert read_run(folder).num_metacommunities == parts
    else:
        with pytest.raises(InputError, match="cannot be right; train again"):
            read_run(folder)


def test_graph_run_without_batch(tmp_path: Path) -> None:
    folder = write_graph_run(tmp_path / "run")
    change(folder, batch=None)
    with pytest.raises(InputError, match="no array 'batch'"):
        read_run(folder)


def test_control_characters_in_names_become_spaces(folder: Path) -> None:
    names = {"node_names": [f"a\x00b{n}" for n in range(30)]}
    (folder / "names.json").write_text(json.dumps(names))
    assert read_run(folder).node_names[4] == "a b4"
