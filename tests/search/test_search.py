"""A search: never worse than where it starts, blind to test labels, the same after a stop."""

import csv
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from training.toys import SMALL, TASKS, roles, toy
from vepm.errors import InputError
from vepm.search.log import Trial, standings
from vepm.search.space import EPOCHS_BETWEEN_REPORTS, STEPS_PER_RUN, Space, _reports
from vepm.search.tuning import Problem, _digest, _Listener, tune
from vepm.training import Config, fit

from .small import SPACE, search, small_problem, with_shuffled_test_labels, without_times


@pytest.mark.parametrize("task", TASKS)
def test_first_trial_is_the_default_and_best_is_no_worse(task: str, tmp_path: Path) -> None:
    problem = small_problem(task)
    found = search(problem, tmp_path)
    default = fit(
        problem.dataset,
        problem.base,
        train_on=problem.train,
        validate_on=problem.val,
        device="cpu",
    ).best
    first = found.trials[0]
    assert (first.val_accuracy, first.val_loss) == (default["val_accuracy"], default["val_loss"])
    assert found.improvement >= 0
    assert [trial.number for trial in found.trials] == [0, 1, 2, 3]
    assert len({tuple(trial.changes.items()) for trial in found.trials}) == 4


@pytest.mark.parametrize("task", TASKS)
def test_test_labels_change_nothing(task: str, tmp_path: Path) -> None:
    _, _, test = roles(task)
    shuffled = with_shuffled_test_labels(toy(task), test)
    before = search(small_problem(task), tmp_path / "before")
    after = search(small_problem(task, dataset=shuffled), tmp_path / "after")
    assert without_times(before.trials) == without_times(after.trials)
    assert (tmp_path / "before/best.toml").read_text() == (tmp_path / "after/best.toml").read_text()


@pytest.mark.parametrize("task", TASKS)
def test_other_labels_are_gone(task: str) -> None:
    train, val, _ = roles(task)
    problem = small_problem(task)
    kept = torch.cat([graph.y for graph in problem.dataset.graphs]) >= 0
    assert sorted(kept.nonzero().flatten().tolist()) == sorted([*train.tolist(), *val.tolist()])
    assert all((graph.y >= 0).any() for graph in toy(task).graphs)


def test_score_is_the_mean_over_seeds(tmp_path: Path) -> None:
    problem = small_problem(seeds=3)
    rows = [
        fit(
            problem.dataset,
            problem.base,
            train_on=problem.train,
            validate_on=problem.val,
            seed=seed,
            device="cpu",
        ).best
        for seed in range(3)
    ]
    first = search(problem, tmp_path, trials=1).best
    for name in ("val_accuracy", "val_loss"):
        assert getattr(first, name) == pytest.approx(sum(row[name] for row in rows) / 3)


def test_ties_go_to_the_lower_loss_then_to_the_first() -> None:
    run = {"dataset": "toy", "split": 0, "seed": 0, "changes": {}}
    losses = (0.7, 0.5, 0.5)
    tied = [run | {"number": i, "val_accuracy": 0.8, "val_loss": x} for i, x in enumerate(losses)]
    pruned = run | {"number": 3, "val_accuracy": 0.9, "val_loss": None, "pruned": True}
    refused = run | {"number": 4, "val_accuracy": 0.0, "val_loss": None, "refused": "too deep"}
    found = standings([*tied, pruned, refused])
    assert [trial.number for trial in found] == [1, 2, 0, 4]
    assert standings([]) == []


def stop_in(epoch: int, patch: pytest.MonkeyPatch) -> None:
    """Interrupt a search in the given epoch of all its epochs."""
    follow, left = _Listener.__call__, iter(range(epoch - 1))

    def listen(*given: Any) -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt
        follow(*given)

    patch.setattr(_Listener, "__call__", listen)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> list[Trial]:
    """A search that was not stopped, long enough for the sampler to learn from its trials."""
    return search(small_problem(), tmp_path_factory.mktemp("whole"), trials=8).trials


@pytest.mark.parametrize("epoch", [1, 13, 61])
def test_stopped_search_goes_on_as_if_it_had_not_been(
    epoch: int, whole: list[Trial], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        stop_in(epoch, patch)
        with pytest.raises(KeyboardInterrupt):
            search(small_problem(), tmp_path, trials=8)
    resumed = search(small_problem(), tmp_path, trials=8)
    assert without_times(resumed.trials) == without_times(whole)


def test_more_trials_can_be_asked_for(whole: list[Trial], tmp_path: Path) -> None:
    search(small_problem(), tmp_path, trials=2)
    seen: list[int] = []
    more = search(small_problem(), tmp_path, trials=4, told=lambda done, *_: seen.append(done))
    assert without_times(more.trials) == without_times(whole[:4])
    assert seen == [2, 3, 4]


def test_seed_of_the_search_decides_its_trials(tmp_path: Path) -> None:
    first = search(small_problem(), tmp_path / "0", trials=3)
    other = search(small_problem(sampler_seed=1), tmp_path / "1", trials=3)
    assert without_times(first.trials)[0] == without_times(other.trials)[0]
    assert first.trials[1].changes != other.trials[1].changes


def test_searches_of_earlier_versions_know_their_data() -> None:
    tensors = [torch.arange(3), torch.eye(2).to_sparse()]
    assert _digest(tensors) == "d87667eadfb6e21fe2f05c65a3498f3e"
    assert _digest(tensors[::-1]) != _digest(tensors)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"seeds": 2}, "seeds"),
        ({"base": SMALL["node"].replace(epochs=6)}, "settings"),
        ({"space": Space(SPACE.dimensions[:2])}, "space"),
        ({"train": roles("node")[0][1:]}, "data"),
    ],
)
def test_other_search_in_the_folder_is_refused(
    changes: dict[str, Any], said: str, tmp_path: Path
) -> None:
    search(small_problem(), tmp_path, trials=1)
    with pytest.raises(InputError, match=f"other {said}"):
        search(small_problem(**changes), tmp_path, trials=2)


def test_damaged_record_is_refused(tmp_path: Path) -> None:
    (tmp_path / "trials.jsonl").write_bytes(b"no log\n" * 100)
    with pytest.raises(InputError, match="line 1: not a run of a search"):
        search(small_problem(), tmp_path)


@pytest.mark.parametrize("name", ["a b", "a?b=c", "a%20b", "ü#1"])
def test_odd_folder_names(name: str, tmp_path: Path) -> None:
    search(small_problem(), tmp_path / name, trials=1)
    assert (tmp_path / name / "trials.jsonl").exists()


def test_timeout_stops_between_trials(tmp_path: Path) -> None:
    found = search(small_problem(), tmp_path, timeout=0.0)
    assert len(found.trials) == 1


def test_impossible_settings_are_noted_and_passed_over(tmp_path: Path) -> None:
    space = Space.from_dict({"num_metacommunities": {"choices": [2, 64]}})
    found = search(small_problem(space=space), tmp_path, trials=8)
    refused = [trial for trial in found.trials if trial.state == "refused"]
    assert refused
    assert all(trial.note and trial.changes["num_metacommunities"] == 64 for trial in refused)
    assert found.config.model.num_metacommunities == 2


def test_impossible_default_is_an_error(tmp_path: Path) -> None:
    base = SMALL["node"].replace(num_metacommunities=64)
    with pytest.raises(InputError, match="num_metacommunities must be"):
        search(small_problem(base=base), tmp_path)


def test_default_outside_the_space_is_still_tried(tmp_path: Path) -> None:
    space = Space.from_dict({"dropout": {"low": 0.1, "high": 0.2}})
    found = search(small_problem(space=space), tmp_path, trials=2)
    assert found.trials[0].changes == {}
    table = list(csv.DictReader((tmp_path / "trials.csv").read_text().splitlines()))
    assert float(table[0]["dropout"]) == SMALL["node"].model.dropout


def test_the_pruner_hears_of_the_runs_of_a_trial_one_after_the_other() -> None:
    rows = [{"val_accuracy": 0.5, "reached": [0.25, 0.5]}, {"val_accuracy": 0.0, "reached": [1.0]}]
    gap, apart = EPOCHS_BETWEEN_REPORTS, STEPS_PER_RUN
    # A run counts together with those that were finished before it.
    assert list(_reports(rows)) == [(gap, 0.25), (2 * gap, 0.5), (apart + gap, 0.75)]


def test_hopeless_trials_end_early(tmp_path: Path) -> None:
    space = Space.from_dict({"learning_rate": {"choices": [0.02, 1e-9]}})
    base = SMALL["node"].replace(epochs=40, learning_rate=0.02)
    found = search(small_problem(base=base, space=space), tmp_path, trials=9)
    pruned = [trial for trial in found.trials if trial.state == "pruned"]
    assert pruned
    assert all(trial.changes["learning_rate"] == 1e-9 for trial in pruned)
    assert all(trial.rows[0]["epochs"] == 33 for trial in pruned)
    assert found.config.training.learning_rate == 0.02


def test_files_tell_the_whole_story(tmp_path: Path) -> None:
    found = search(small_problem(), tmp_path, command="vepm tune toy")
    assert Config.from_toml((tmp_path / "best.toml").read_text()) == found.config
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["improvement"] == found.improvement
    assert summary["trials"] == {
        "asked": 4,
        "finished": 4,
        "complete": 4,
        "pruned": 0,
        "refused": 0,
    }
    assert summary["seeds"] == [0]
    assert "test labels were removed" in summary["rule"]
    assert {"optuna", "vepm", "torch"} <= set(summary["versions"])
    table = list(csv.DictReader((tmp_path / "trials.csv").read_text().splitlines()))
    assert [row["trial"] for row in table] == ["0", "1", "2", "3"]
    assert float(table[found.best.number]["val_accuracy"]) == found.best.val_accuracy


def test_nothing_to_validate_on_is_refused() -> None:
    with pytest.raises(InputError, match="to validate on"):
        small_problem(val=torch.empty(0, dtype=torch.long))


def test_missing_optuna_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    problem: Problem = small_problem()
    with pytest.raises(InputError, match=r"pip install 'vepm\[tune\]'"):
        tune(problem, tmp_path)
