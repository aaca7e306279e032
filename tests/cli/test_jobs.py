"""What commands decide before they train, called directly."""

import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from cli.running import refused
from vepm.cli import bench, evaluate, folders, jobs, options
from vepm.data import Dataset, as_dataset, planted_graph
from vepm.errors import InputError, LostProcessError


def labelled(y: list[int], **masks: list[bool]) -> Dataset:
    given = {name: torch.tensor(mask) for name, mask in masks.items()}
    edges = torch.tensor([[0, 1], [1, 0]])
    return as_dataset(Data(x=torch.ones(len(y), 2), edge_index=edges, y=torch.tensor(y), **given))


def graphs(y: list[int]) -> Dataset:
    edges = torch.tensor([[0, 1], [1, 0]])
    return as_dataset(
        [Data(x=torch.ones(2, 1), edge_index=edges, y=torch.tensor([label])) for label in y]
    )


def test_which_names_are_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "cora").mkdir()
    for name, own in (
        ("mine", True),
        ("other", False),
        ("cora", False),
        ("other.csv", True),
        (f"a{os.sep}b", True),
        ("planted:nodes=9", False),
    ):
        assert jobs.own_path(name, tmp_path) == (Path(name) if own else None)


def test_options_of_own_data_are_not_for_known_sets() -> None:
    for wrong in ({"label": "x"}, {"features": "x"}, {"drop": "x"}, {"directed": True}):
        with pytest.raises(InputError, match="are for data of your own"):
            jobs.open_data("KarateClub", options.Given(**wrong))
    assert jobs.open_data("KarateClub", options.Given(strict=True)).name == "KarateClub"


def test_settings_come_from_a_preset_a_file_and_pairs(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text("[training]\nepochs = 7\npatience = 3\n")
    data = labelled([0, 1, 0])
    pairs = ["epochs=9", " conv =gin", 'pooling="mean"']
    found = jobs.settings(data, options.Given(config=file, settings=pairs, batch_nodes=5))
    assert (found.training.epochs, found.training.patience) == (9, 3)
    assert (found.model.conv, found.model.pooling) == ("gin", "mean")
    assert found.training.batch_size == 5
    with pytest.raises(InputError, match="--set epochs: write it as name=value"):
        jobs.settings(data, options.Given(settings=["epochs"]))


def test_a_fifth_is_set_aside_for_what_is_missing() -> None:
    y = [0, 1] * 50
    parts = jobs.roles(labelled(y))
    assert {name: part.numel() for name, part in parts.items()} == {
        "train": 64,
        "val": 16,
        "test": 20,
    }
    assert torch.cat(list(parts.values())).unique().numel() == 100
    tested = labelled(y, test_mask=[i < 30 for i in range(100)])
    assert [part.numel() for part in jobs.roles(tested).values()] == [56, 14, 30]
    both = labelled(
        y,
        val_mask=[30 <= i < 40 for i in range(100)],
        test_mask=[i < 30 for i in range(100)],
    )
    assert [part.numel() for part in jobs.roles(both).values()] == [60, 10, 30]
    assert [part.numel() for part in jobs.roles(graphs(y)).values()] == [64, 16, 20]
    none = labelled([0, 1, 0], train_mask=[False] * 3, test_mask=[True] * 3)
    with pytest.raises(InputError, match="no labelled node is there to train on"):
        jobs.roles(none)
    few = labelled([0, 1, 0])
    with pytest.raises(InputError, match="too few labels to set any aside for the test"):
        jobs.own_split(few, jobs.roles(few) | {"test": torch.arange(0)})


def test_lists_of_names() -> None:
    assert options.listed(" a, b,,a ,c") == ["a", "b", "c"]
    assert options.listed("") == []


def splits(data: Dataset, name: str = "", **more: Any) -> tuple[int, tuple[str, ...]]:
    given: dict[str, Any] = {"labels_per_class": None, "splits": None, "folds": None} | more
    found, rules = evaluate._splits(data, name, **given)
    return len(found), rules


def test_protocols_of_an_evaluation() -> None:
    data = planted_graph(100, 2, seed=0)
    assert splits(data) == (1, ("validation",))
    assert splits(data, labels_per_class=3) == (10, ("validation",))
    assert splits(data, labels_per_class=3, splits=4) == (4, ("validation",))
    assert splits(data, "few-labels", splits=2) == (2, ("validation",))
    assert splits(labelled([0, 1] * 50)) == (1, ("validation",))
    unvalidated = labelled([0, 1] * 5, test_mask=[i < 3 for i in range(10)])
    assert splits(unvalidated) == (1, ("last",))
    many = graphs([0, 1] * 20)
    assert splits(many, "gin", folds=5) == (5, ("gin", "fold-max", "last"))
    assert splits(many, "capsgnn", folds=4) == (4, ("capsgnn", "last"))
    with pytest.raises(InputError, match="--labels-per-class is for few-labels, not for"):
        splits(data, "public", labels_per_class=3)
    with pytest.raises(InputError, match="--splits counts random splits"):
        splits(data, splits=3)
    for labels in None, 3:
        with pytest.raises(InputError, match="--folds is for gin and capsgnn, not for protocol"):
            splits(data, folds=3, labels_per_class=labels)


def test_sizes_of_generated_graphs() -> None:
    assert bench._numbers("") == ()
    assert bench._numbers("4000,1e5") == (4000, 100_000)
    with pytest.raises(InputError, match="3999 edges are too few; give 4000 or more"):
        bench._numbers("5000,3999,17")
    with pytest.raises(InputError, match="is no list of numbers"):
        bench._numbers("many")
    assert bench._numbers(bench.SIZES) == (100_000, 1_000_000, 10_000_000)
    assert bench._numbers(bench.QUICK_SIZES) == (4000, 16_000)


def test_table_of_a_bench() -> None:
    place = {"graph": "g", "edges": 12345, "step": "finetune"}
    ours = place | {"method": "vepm", "median": 0.25, "peak_bytes": 3 * 2**20}
    report: dict[str, Any] = {
        "machine": {"device": "cpu"},
        "rows": [ours, ours | {"method": "gat", "median": 1.5}, place | {"method": "x"}],
        "ratios": [{"graph": "g", "step": "finetune", "against": "gat", "time": 0.5, "memory": 4}],
    }
    report["rows"][2]["error"] = "out of memory"
    cells = [list(column.cells) for column in bench.as_table(report).columns]
    assert cells[1] == ["12,345"] * 3
    assert cells[4] == ["250.0", "1,500.0", "out of memory"]
    assert cells[5] == ["", "2.00x", ""]
    assert cells[6] == ["3", "3", ""]
    assert cells[7] == ["", "0.25x", ""]
    sides = Counter(column.justify for column in bench.as_table(report).columns)
    assert sides == {"left": 3, "right": 5}


def test_how_to_continue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["vepm", "train", "my data"])
    assert folders.command_line() == "vepm train 'my data'"
    again = "stopped; to continue from run, give the same command again"
    for words, advice in (([], again), (["--overwrite"], f"{again} without --overwrite")):
        monkeypatch.setattr(sys, "argv", ["vepm", "train", *words])
        with (
            pytest.raises(LostProcessError, match=f"^gone; {advice}$"),
            folders.how_to_continue(Path("run")),
        ):
            raise LostProcessError("gone")


def test_only_what_a_run_wrote_is_removed(tmp_path: Path) -> None:
    (tmp_path / "figures").mkdir()
    (tmp_path / "cells").mkdir()
    kept = [tmp_path / "notes.txt", tmp_path / "figures" / "mine.svg"]
    for path in (*kept, tmp_path / "metrics.json", tmp_path / "figures" / "confusion.svg"):
        path.touch()
    folders.clear(tmp_path, folders.RUN)
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == sorted(kept)
    assert not (tmp_path / "cells").exists()


def test_a_folder_that_stays_empty_is_removed_again(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "run"
    with folders.own_folder(folder, folders.RUN):
        assert (folder / ".vepm").read_bytes() == b"vepm run\n"
    assert list(tmp_path.iterdir()) == []
    with folders.own_folder(folder, folders.RUN):
        (folder / "metrics.json").touch()
    assert (folder / ".vepm").read_bytes() == b"vepm run\n"
    other = folders.own_folder(folder, folders.RUN._replace(name="sweep"))
    with pytest.raises(InputError, match="and is not the folder of a sweep"), other:
        pass
    with pytest.raises(InputError, match="is an input, which would be lost"):
        folders.check_output(folder / "metrics.json", [None, folder / "metrics.json"])
    folders.check_output(folder / "other.json", [folder / "metrics.json"])


def test_baselines_say_that_they_use_no_weights(caplog: pytest.LogCaptureFixture) -> None:
    weighted = as_dataset((np.eye(3), np.array([[0, 2.0, 0], [2, 0, 1], [0, 1, 0]])))
    jobs.say_unweighted(weighted, [])
    jobs.say_unweighted(labelled([0, 1, 0]), ["gcn"])
    assert not caplog.messages
    jobs.say_unweighted(weighted, ["gcn", "gat"])
    assert caplog.messages[0].endswith("not used by gcn, gat: the weights of edges")


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "many", "²"])
@pytest.mark.parametrize("command", ["communities", "links"])
def test_a_number_of_communities_is_at_least_one_or_auto(command: str, text: str) -> None:
    assert "num_communities must be" in refused(command, "KarateClub", f"--communities={text}")
