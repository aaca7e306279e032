"""Cells: run once, skipped when done, rerun when damaged, shared between equals."""

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from paper.toys import MAPS, SAME_RUNS, write_toys
from vepm.data import Dataset, load
from vepm.errors import InputError
from vepm.evaluation import Compute, RunResult, VEPMMethod
from vepm.evaluation.executor import Cell as RunOf
from vepm.paper.cells import Finding, Task, _checksum, copy_cell, read_cell, write_cell
from vepm.paper.experiments import Choice, catalogue
from vepm.paper.plan import EVERY_PRESET, Square, check_names, select, squares, tasks_of
from vepm.paper.results import gather
from vepm.paper.runner import Ended, Ending, open_dataset, perform_batch, run

ONE = Compute("cpu", jobs=1)


@pytest.fixture(scope="module")
def toys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_toys(tmp_path_factory.mktemp("toys"))


@pytest.fixture(scope="module")
def nowhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


def planned(toys: Path, *names: str, quick: bool = False) -> list[Square]:
    return [s for name in names for s in squares(catalogue(toys)[name], quick)]


@pytest.fixture(scope="module")
def finished(toys: Path, nowhere: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    ended = run(planned(toys, "table-1"), folder, nowhere, ONE)
    assert ended.ran == 6
    return folder


def test_a_cell_says_where_it_came_from(finished: Path) -> None:
    path = finished / "table-1/cells/gcn/planted/public-0-seed-2.json"
    body = json.loads(path.read_text())
    assert (body["experiment"], body["row"], body["column"]) == ("table-1", "GCN", "planted")
    assert body["task"]["settings"]["epochs"] == 3
    assert body["task"]["seed"] == 2
    assert body["machine"]["torch"]
    assert len(body["result"]["curve"]["test_accuracy"]) == 3


def test_finished_cells_are_not_rerun(toys: Path, nowhere: Path, finished: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in finished.rglob("*.json")}
    ended = run(planned(toys, "table-1"), finished, nowhere, ONE)
    assert (ended.ran, ended.found) == (0, 6)
    assert {path: path.stat().st_mtime_ns for path in finished.rglob("*.json")} == before


@pytest.mark.parametrize("damage", ["cut", "changed", "other", "empty", "list"])
def test_damaged_cells_are_rerun(toys: Path, nowhere: Path, finished: Path, damage: str) -> None:
    path = finished / "table-1/cells/gcn/planted/public-0-seed-1.json"
    text = path.read_text()
    changed = {
        "cut": text[: len(text) // 2],
        "changed": text.replace('"seed": 1, "curve"', '"seed": 7, "curve"'),
        "other": text.replace('"fingerprint": "', '"fingerprint": "0'),
        "empty": "",
        "list": "[]",
    }[damage]
    assert changed != text
    path.write_text(changed)
    ended = run(planned(toys, "table-1"), finished, nowhere, ONE)
    assert (ended.ran, ended.found) == (1, 5)
    assert json.loads(path.read_text())["result"]["curve"] == json.loads(text)["result"]["curve"]


FORGERIES: dict[str, dict[str, Any]] = {
    "numbers": {"numbers": []},
    "text for a number": {"numbers": {"accuracy": "high"}},
    "result": {"result": [1]},
    "other task": {"task": {"seed": 1}},
    "commit": {"commit": ["a"]},
    "arrays": {"arrays": 3},
}
RESULTS: dict[str, dict[str, Any]] = {
    "missing curve": {"curve": {}},
    "no curve of the test": {"curve": {"val_accuracy": [0.5] * 3, "val_loss": [0.5] * 3}},
    "text in a curve": {"curve": {"test_accuracy": ["x"] * 3}},
    "curves of two lengths": {"curve": {"test_accuracy": [0.5], "val_accuracy": [0.5, 0.5]}},
    "epoch": {"best_epoch": 99},
    "accuracy": {"test_accuracy": None},
    "measures": {"measures": {"sampled_accuracy": "x"}},
    "unknown field": {"extra": 1},
}


@pytest.mark.parametrize("forgery", [*FORGERIES, *RESULTS])
def test_forged_cells_with_a_checksum_are_rerun(
    toys: Path, nowhere: Path, finished: Path, forgery: str
) -> None:
    path = finished / "table-1/cells/gcn/planted/public-0-seed-1.json"
    text = path.read_text()
    body = json.loads(text)
    body.pop("checksum")
    if forgery in RESULTS:
        body["result"] |= RESULTS[forgery]
    else:
        body |= FORGERIES[forgery]
    path.write_text(json.dumps(body | {"checksum": _checksum(body)}))
    plan = planned(toys, "table-1")
    assert gather(catalogue(toys)["table-1"], plan, finished, Ended(), False).values[0].seeds == 2
    ended = run(plan, finished, nowhere, ONE)
    assert (ended.ran, ended.found) == (1, 5)
    assert json.loads(path.read_text())["result"]["curve"] == json.loads(text)["result"]["curve"]


def test_other_settings_are_other_cells(
    toys: Path, nowhere: Path, finished: Path, tmp_path: Path
) -> None:
    changed = tmp_path / "toys"
    changed.mkdir()
    text = (toys / "table-1.toml").read_text().replace("epochs = 3 }", "epochs = 4 }", 1)
    (changed / "table-1.toml").write_text(text)
    fingerprints = {
        cell.task.fingerprint
        for folder in (toys, changed)
        for square in planned(folder, "table-1")
        for cell in square.cells
    }
    # GCN changed on both datasets, VEPM on none: 12 cells, and 6 more.
    assert len(fingerprints) == 18


def test_a_setting_that_came_later_counts_where_it_is_used() -> None:
    plain, off, on = (
        tasks_of(Choice("CiteSeer", "vepm", settings=settings))[0]
        for settings in ({}, {"class_balance_weight": 0.0}, {"alignment": 1.0})
    )
    assert plain.fingerprint == off.fingerprint != on.fingerprint
    assert plain.config == off.config != on.config
    assert plain.config.training.class_balance_weight == 0
    assert on.config.training.class_balance_weight == 1


ROOT = Path(__file__).parents[2] / "results"


def test_every_committed_cell_is_found_by_its_plan() -> None:
    planned = {
        ROOT / cell.path: cell.task.fingerprint
        for experiment in catalogue().values()
        for square in squares(experiment, presets=EVERY_PRESET)
        for cell in square.cells
    }
    committed = sorted(ROOT.glob("*/cells/*/*/*.json"))
    assert len(committed) > 1000
    lost = [str(path) for path in committed if path not in planned]
    assert lost == []
    bodies = {path: json.loads(path.read_text()) for path in committed}
    stale = [str(p) for p, body in bodies.items() if body["fingerprint"] != planned[p]]
    assert stale == []
    # Arrays are too large to be committed; cells can be read without.
    assert all(read_cell(path, planned[path]) for path in committed)


def test_equal_runs_of_other_experiments_serve(toys: Path, nowhere: Path, finished: Path) -> None:
    elsewhere = planned(toys, "table-1", "table-2")
    ended = run(planned(toys, "table-2"), finished, nowhere, ONE, elsewhere)
    assert (ended.ran, ended.found) == (1, 3)
    copied = json.loads((finished / "table-2/cells/again/planted/public-0-seed-0.json").read_text())
    assert (copied["experiment"], copied["row"]) == ("table-2", "again")


def test_a_cell_without_its_arrays_counts_and_serves(tmp_path: Path) -> None:
    (tmp_path / "figure-1.toml").write_text(MAPS)
    first, second = squares(catalogue(tmp_path)["figure-1"])
    write_cell(tmp_path, first.cells[0], Finding({"accuracy": 0.5}, {"z": torch.ones(2)}), 1.0)
    path = tmp_path / first.cells[0].path
    path.with_suffix(".safetensors").unlink()
    record = read_cell(path, first.cells[0].task.fingerprint)
    assert record is not None
    assert record.numbers == {"accuracy": 0.5}
    copied = replace(second.cells[0], task=first.cells[0].task)
    copy_cell(record, tmp_path, copied)
    assert read_cell(tmp_path / copied.path, copied.task.fingerprint) is not None
    path.with_suffix(".safetensors").write_bytes(b"other")
    assert read_cell(path, first.cells[0].task.fingerprint) is None


def test_other_presets_have_no_more_seeds_than_the_paper() -> None:
    planned = squares(catalogue()["table-4"], presets=EVERY_PRESET)
    seeds = {s.row: len(s.cells) // 10 for s in planned if s.row.startswith("VEPM, ")}
    assert set(seeds.values()) == {1}
    assert len(next(s for s in planned if s.row == "VEPM").cells) == 30


def test_a_method_whose_package_is_not_installed_stops_nothing(
    nowhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "table-1.toml").write_text(SAME_RUNS.replace('"statistics"', '"metis"'))
    experiment = catalogue(tmp_path)["table-1"]
    monkeypatch.setitem(sys.modules, "pymetis", None)
    ended = run(squares(experiment), tmp_path, nowhere, ONE)
    assert (ended.ran, len(ended.failed)) == (3, 1)
    results = gather(experiment, squares(experiment), tmp_path, ended, quick=False)
    assert "METIS needs pymetis: pip install 'vepm[metis]'" in results.values[1].reason


def test_quick_runs_never_pass_for_real_ones(toys: Path, nowhere: Path, finished: Path) -> None:
    real = {cell.task.fingerprint for s in planned(toys, "table-1") for cell in s.cells}
    quick = planned(toys, "table-1", quick=True)
    assert not real & {cell.task.fingerprint for s in quick for cell in s.cells}


def test_missing_data_spoil_their_column_only(toys: Path, nowhere: Path, finished: Path) -> None:
    chosen = planned(toys, "table-1")
    ended = run(chosen, finished, nowhere, ONE)
    assert list(ended.missing) == ["Cora"]
    assert "ind.cora.x" in ended.missing["Cora"]
    results = gather(catalogue(toys)["table-1"], chosen, finished, ended, quick=False)
    here, gone = results.at("GCN", "planted"), results.at("GCN", "Cora here")
    assert here is not None
    assert gone is not None
    assert here.main is not None
    assert here.main.n == 3
    assert gone.main is None
    assert gone.reason == "data not here"


def test_a_failing_cell_stops_nothing(
    toys: Path, nowhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("out of luck")

    monkeypatch.setattr(VEPMMethod, "train_batch", fail)
    chosen = planned(toys, "table-1")
    ended = run(chosen, tmp_path, nowhere, ONE)
    assert ended.ran == 3
    assert set(ended.failed.values()) == {"RuntimeError: out of luck"}
    results = gather(catalogue(toys)["table-1"], chosen, tmp_path, ended, quick=False)
    value = results.at("VEPM (toy)", "planted")
    assert value is not None
    assert "out of luck" in value.reason


def test_cells_of_one_setting_train_as_one_batch(
    toys: Path, nowhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches: list[list[Task]] = []

    def noting(tasks: list[Task], root: Path | None, device: str) -> list[Ending]:
        batches.append(tasks)
        return perform_batch(tasks, root, device)

    monkeypatch.setattr("vepm.paper.runner.perform_batch", noting)
    ended = run(planned(toys, "table-1"), tmp_path, nowhere, Compute("cpu", 1, 2))
    assert ended.ran == 6
    seeds = [(tasks[0].method, [task.seed for task in tasks]) for tasks in batches]
    assert seeds == [("gcn", [0]), ("gcn", [1]), ("gcn", [2]), ("vepm", [0, 1]), ("vepm", [2])]
    path = tmp_path / "table-1/cells/vepm-toy/planted/public-0-seed-1.json"
    body = json.loads(path.read_text())
    assert body["result"]["seed"] == body["task"]["seed"] == 1
    assert len(body["result"]["curve"]["test_accuracy"]) == 3


def test_a_failing_run_does_not_stop_the_others_of_its_batch(
    toys: Path, nowhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train_batch = VEPMMethod.train_batch

    def unlucky(self: VEPMMethod, data: Dataset, cells: Sequence[RunOf]) -> list[RunResult]:
        if any(seed == 1 for _, seed in cells):
            raise RuntimeError("out of luck")
        return train_batch(self, data, cells)

    monkeypatch.setattr(VEPMMethod, "train_batch", unlucky)
    ended = run(planned(toys, "table-1"), tmp_path, nowhere, Compute("cpu", 1, 3))
    assert (ended.ran, len(ended.failed)) == (5, 1)


def test_selection(toys: Path) -> None:
    chosen = planned(toys, "table-1")

    def names(**part: tuple[str, ...]) -> list[tuple[str, str]]:
        found = select(chosen, **part)
        return [(square.row, square.column) for square in found]

    assert len(names()) == 6
    assert names(datasets=("cora",), rows=("vepm",)) == [("VEPM (toy)", "Cora here")]
    assert len(names(datasets=("planted",))) == 3
    assert len(names(datasets=("Cora here",))) == 3
    assert len(names(rows=("GCN", "other"))) == 4
    assert names(rows=("GC",)) == []
    experiments = list(catalogue(toys).values())
    every = [square for experiment in experiments for square in squares(experiment)]
    check_names(every, ("planted",), ("again",))
    with pytest.raises(InputError, match="no dataset 'Pubmed' here; there are planted, Cora"):
        check_names(every, datasets=("Pubmed",))
    with pytest.raises(InputError, match="no row 'GIN' here"):
        check_names(every, rows=("GIN",))
    assert len(squares(experiments[0], seeds=5)[0].cells) == 5


def test_a_quick_run_has_two_splits_one_seed_and_two_epochs() -> None:
    tasks = [cell.task for one in squares(catalogue()["table-2"], True) for cell in one.cells]
    ours = [task for task in tasks if task.method == "vepm"]
    assert {(task.split, task.seed) for task in tasks} == {(0, 0), (1, 0)}
    assert {task.config.training.epochs for task in ours} == {2}
    assert {task.config.training.pretrain_epochs for task in ours} == {3}
    assert {task.config.training.passes for task in ours} == {1}


def test_a_part_of_the_graphs_has_every_class_in_proportion(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = load("digits-graphs")
    monkeypatch.setattr("vepm.paper.runner.load", lambda *_: whole)
    opened = open_dataset.__wrapped__
    assert opened("digits-graphs", None) is whole
    # Sixty of each of ten digits are there.
    part = opened("digits-graphs", None, shrink=True)
    assert part.labels.bincount().tolist() == [4] * 10
    places = [next(i for i, g in enumerate(whole.graphs) if g is one) for one in part.graphs]
    assert places == sorted(places)
    few = replace(whole, graphs=whole.graphs[:79], graph_names=None, folds=None, splits=None)
    monkeypatch.setattr("vepm.paper.runner.load", lambda *_: few)
    assert opened("digits-graphs", None, shrink=True) is few
