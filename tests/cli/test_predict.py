"""``vepm predict``: the numbers of the estimators, as CSV."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cli.running import QUICK, names_in, read_rows, refused, succeed
from cli.writing import GRAPHS, NODES, write_nodes, write_table
from vepm import GraphClassifier, NodeClassifier
from vepm.data import read


def probabilities_in(path: Path) -> np.ndarray:
    rows = read_rows(path)
    names = [name for name in rows[0] if name.startswith("p_")]
    return np.array([[float(row[name]) for name in names] for row in rows])


@pytest.mark.parametrize(
    ("data", "estimator", "letter", "count"),
    [
        ("pets", NodeClassifier, "n", NODES),
        ("shapes", GraphClassifier, "g", GRAPHS),
    ],
)
def test_predictions_are_the_estimators(
    data: str,
    estimator: type[NodeClassifier | GraphClassifier],
    letter: str,
    count: int,
    request: pytest.FixtureRequest,
) -> None:
    folder, model = request.getfixturevalue(data), request.getfixturevalue(f"{data}_run")
    outcome = succeed("predict", model, folder, "--device", "cpu")
    rows = read_rows(Path("predictions.csv"))
    loaded = estimator.load(model, "cpu")
    dataset = read(folder)
    assert outcome.out == f"{count} predictions in predictions.csv\n"
    assert [row["id"] for row in rows] == [f"{letter}{i}" for i in range(count)]
    assert [row["prediction"] for row in rows] == list(loaded.predict(dataset))
    found = probabilities_in(Path("predictions.csv"))
    np.testing.assert_allclose(found.sum(1), 1, atol=3e-6)
    np.testing.assert_allclose(found, loaded.predict_proba(dataset), atol=1e-6)
    assert list(rows[0])[2:] == [f"p_{name}" for name in dataset.class_names]


def test_samples_are_passed_on(pets: Path, pets_run: Path) -> None:
    succeed("predict", pets_run, pets, "--samples", "0", "-o", "new/mean.csv")
    succeed("predict", pets_run, pets, "--samples", "2", "-o", "new/drawn.csv")
    mean, drawn = (probabilities_in(Path("new") / name) for name in ("mean.csv", "drawn.csv"))
    model = NodeClassifier.load(pets_run, "cpu")
    np.testing.assert_allclose(mean, model.predict_proba(read(pets), 0), atol=1e-6)
    np.testing.assert_allclose(drawn, model.predict_proba(read(pets), 2), atol=1e-6)
    assert not np.array_equal(mean, drawn)


def test_any_name_but_a_dash_is_that_of_a_file(pets: Path, pets_run: Path) -> None:
    assert succeed("predict", pets_run, pets, "-o", "+").out == f"{NODES} predictions in +\n"
    assert len(read_rows(Path("+"))) == NODES


def test_new_nodes_need_no_labels(pets_run: Path) -> None:
    succeed("predict", pets_run, write_nodes(Path("unlabelled"), labels=False))
    assert {row["prediction"] for row in read_rows(Path("predictions.csv"))} <= {"cat", "dog"}


def with_columns(pets: Path, names: dict[str, str]) -> Path:
    """The pets with these columns, each filled from one of theirs."""
    rows = [[row[column] for column in names.values()] for row in read_rows(pets / "nodes.csv")]
    write_table(Path("other/nodes.csv"), ",".join(names), rows)
    Path("other/edges.csv").write_bytes((pets / "edges.csv").read_bytes())
    return Path("other")


def test_columns_are_matched_by_name(pets: Path, pets_run: Path) -> None:
    other = with_columns(pets, {"f1": "f1", "id": "id", "f0": "f0"})
    succeed("predict", pets_run, pets, "-o", "first.csv")
    succeed("predict", pets_run, other, "-o", "second.csv")
    assert Path("first.csv").read_bytes() == Path("second.csv").read_bytes()


def test_missing_and_unknown_columns_are_named(pets: Path, pets_run: Path) -> None:
    other = with_columns(pets, {"id": "id", "f1": "f1", "f2": "f0"})
    line = refused("predict", pets_run, other)
    assert "'f0' missing and 'f2' unknown to the model" in line
    assert not Path("predictions.csv").exists()


def without_every_fourth(folder: Path, rename: dict[str, str] | None = None) -> Path:
    """The graph without a quarter of its nodes, the others perhaps under new names."""
    for name, columns in (("nodes", ["id"]), ("edges", ["source", "target"])):
        kept = [
            [(rename or {}).get(row[column], row[column]) for column in columns]
            for row in read_rows(folder / f"{name}.csv")
            if all(int(row[column][1:]) % 4 for column in columns)
        ]
        write_table(Path(f"smaller/{name}.csv"), ",".join(columns), kept)
    return Path("smaller")


@pytest.mark.usefixtures("no_page")
def test_a_model_without_features_knows_the_nodes_that_remain() -> None:
    folder = write_nodes(Path("bare"), features=0)
    succeed(
        "train", folder, "-o", "run", *QUICK[2:], "--set", "epochs=60", "--set", "partition=learned"
    )
    succeed("predict", "run", folder, "-o", "whole.csv")
    succeed("predict", "run", without_every_fourth(folder), "-o", "part.csv")
    before = {row["id"]: row["prediction"] for row in read_rows(Path("whole.csv"))}
    after = {row["id"]: row["prediction"] for row in read_rows(Path("part.csv"))}
    assert len(after) == NODES * 3 // 4
    assert set(before.values()) == {"cat", "dog"}
    # A node may change with its neighbours, most of which may be gone; a wrong alignment of
    # coordinates changes half of them.
    assert sum(before[node] != found for node, found in after.items()) <= 1
    left = [f"n{i}" for i in range(NODES) if i % 4]
    renumbered = {node: f"n{i}" for i, node in enumerate(left)}
    line = refused("predict", "run", without_every_fourth(folder, renumbered), "-o", "other.csv")
    assert "reads coordinates of the graph it was trained on" in line
    assert not Path("other.csv").exists()


def test_standard_output_takes_the_table_and_nothing_else(pets: Path, pets_run: Path) -> None:
    succeed("predict", pets_run, pets)
    table = Path("predictions.csv").read_text()
    assert succeed("predict", pets_run, pets, "-o", "-").out == table
    assert names_in(Path()) == {"predictions.csv"}


def test_a_reader_that_goes_away_is_no_error_of_ours(pets: Path, pets_run: Path) -> None:
    words = [sys.executable, "-m", "vepm", "predict", str(pets_run), str(pets), "-o", "-"]
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(words, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (1, "")


def test_predictions_replace_no_device_pipe_or_link(pets: Path, pets_run: Path) -> None:
    os.mkfifo("pipe")
    Path("link").symlink_to("pipe")
    for output in ("pipe", "link", os.devnull, "/dev/stdout"):
        assert "not a file" in refused("predict", pets_run, pets, "-o", output)
    assert Path("pipe").is_fifo()
    assert Path(os.devnull).is_char_device()


def test_predictions_do_not_replace_what_they_are_made_from(pets_run: Path) -> None:
    data = write_nodes(Path("data"))
    before = {path: path.read_bytes() for path in (*data.iterdir(), *pets_run.iterdir())}
    for output in ("data/nodes.csv", "data/../data/edges.csv", pets_run / "model.safetensors"):
        assert "is an input, which would be lost" in refused(
            "predict", pets_run, data, "-o", output
        )
    succeed("predict", pets_run, data, "-o", "data/predictions.csv")
    assert {path: path.read_bytes() for path in before} == before
