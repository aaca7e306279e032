"""A search: never worse than where it starts, blind to test labels, the same after a stop."""

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from training.toys import SMALL, TASKS, roles, toy
from vepm.errors import InputError
from vepm.search import tuning
from vepm.search.tuning import Trial, _digest, summarise, tune
from vepm.training import Config, fit

from .small import SPACE, search, small_tuning, with_shuffled_test_labels, without_times


@pytest.mark.parametrize("task", TASKS)
def test_first_trial_is_the_default_and_best_is_no_worse(task: str, tmp_path: Path) -> None:
    small = small_tuning(task)
    trials = search(small, tmp_path)
    parts: dict[str, Any] = {"train_on": small.train, "validate_on": small.val}
    default = fit(small.dataset, small.config, **parts, device="cpu").best
    first = trials[0]
    assert (first.val_accuracy, first.val_loss) == (default["val_accuracy"], default["val_loss"])
    assert json.loads((tmp_path / "summary.json").read_text())["improvement"] >= 0
    assert len({tuple(trial.changes.items()) for trial in trials}) == len(trials) == 4


@pytest.mark.parametrize("task", TASKS)
def test_test_labels_change_nothing(task: str, tmp_path: Path) -> None:
    _, _, test = roles(task)
    shuffled = with_shuffled_test_labels(toy(task), test)
    before = search(small_tuning(task), tmp_path / "before")
    after = search(small_tuning(task, dataset=shuffled), tmp_path / "after")
    assert without_times(before) == without_times(after)
    assert (tmp_path / "before/best.toml").read_text() == (tmp_path / "after/best.toml").read_text()


@pytest.mark.parametrize("task", TASKS)
def test_other_labels_are_gone(task: str) -> None:
    train, val, _ = roles(task)
    kept = torch.cat([graph.y for graph in small_tuning(task).dataset.graphs]) >= 0
    assert sorted(kept.nonzero().flatten().tolist()) == sorted([*train.tolist(), *val.tolist()])
    assert all((graph.y >= 0).any() for graph in toy(task).graphs)


def test_score_is_the_mean_over_seeds(tmp_path: Path) -> None:
    small = small_tuning(seeds=3, trials=1)
    parts: dict[str, Any] = {"train_on": small.train, "validate_on": small.val}
    rows = [
        fit(small.dataset, small.config, **parts, seed=seed, device="cpu").best for seed in range(3)
    ]
    first = search(small, tmp_path)[0]
    for name in ("val_accuracy", "val_loss"):
        assert getattr(first, name) == pytest.approx(sum(row[name] for row in rows) / 3)


def test_ties_go_to_the_lower_loss_then_to_the_first() -> None:
    trials = [Trial({}, 0.8, loss) for loss in (0.7, 0.5, 0.5)]
    trials.append(Trial({}, 0.9, 0.0, refused="too deep"))
    found = summarise(small_tuning(), trials, "")
    assert found["best"] == {"trial": 1, "val_accuracy": 0.8, "val_loss": 0.5, "changes": {}}


def stop_in(training: int, patch: pytest.MonkeyPatch) -> None:
    """Interrupt a search in the given one of its trainings."""
    left = iter(range(training - 1))

    def train(*given: Any, **options: Any) -> Any:
        if next(left, None) is None:
            raise KeyboardInterrupt
        return fit(*given, **options)

    patch.setattr(tuning, "fit", train)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> list[Trial]:
    """A search that was not stopped, long enough for the sampler to learn from its trials."""
    return search(small_tuning(trials=8), tmp_path_factory.mktemp("whole"))


@pytest.mark.parametrize("training", [1, 2, 7])
def test_stopped_search_goes_on_as_if_it_had_not_been(
    training: int, whole: list[Trial], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        stop_in(training, patch)
        with pytest.raises(KeyboardInterrupt):
            search(small_tuning(trials=8), tmp_path)
    resumed = search(small_tuning(trials=8), tmp_path)
    assert without_times(resumed) == without_times(whole)


def test_more_trials_can_be_asked_for(whole: list[Trial], tmp_path: Path) -> None:
    search(small_tuning(trials=2), tmp_path)
    seen: list[int] = []
    more = search(small_tuning(), tmp_path, told=lambda done, *_: seen.append(done))
    assert without_times(more) == without_times(whole[:4])
    assert seen == [2, 3, 4]


def test_seed_of_the_search_decides_its_trials(tmp_path: Path) -> None:
    first = search(small_tuning(trials=3), tmp_path / "0")
    other = search(small_tuning(trials=3, sampler_seed=1), tmp_path / "1")
    assert without_times(first)[0] == without_times(other)[0]
    assert first[1].changes != other[1].changes


def test_searches_of_earlier_versions_know_their_data() -> None:
    tensors = [torch.arange(3), torch.eye(2).to_sparse()]
    assert _digest(tensors) == "d87667eadfb6e21fe2f05c65a3498f3e"
    assert _digest(tensors[::-1]) != _digest(tensors)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"seeds": 2}, "seeds"),
        ({"config": SMALL["node"].replace(epochs=6)}, "settings"),
        ({"space": {"dropout": SPACE["dropout"]}}, "space"),
        ({"train": roles("node")[0][1:]}, "data"),
    ],
)
def test_other_search_in_the_folder_is_refused(
    changes: dict[str, Any], said: str, tmp_path: Path
) -> None:
    search(small_tuning(trials=1), tmp_path)
    with pytest.raises(InputError, match=f"other {said}"):
        search(small_tuning(**changes), tmp_path)


@pytest.mark.parametrize(
    "line",
    [
        b"no log",
        b"\xff\xfe",
        b"[" * 10_000,
        b"[]",
        b'{"changes": {}, "val_accuracy": "high", "val_loss": 1.0}',
        b'{"changes": {}, "val_accuracy": 0.5, "val_loss": NaN}',
        b'{"changes": {}, "val_accuracy": 0.5}',
    ],
)
@pytest.mark.parametrize("lines", [0, 1])
def test_damaged_record_is_refused_and_left_alone(lines: int, line: bytes, tmp_path: Path) -> None:
    search(small_tuning(trials=1), tmp_path)
    log = tmp_path / "trials.jsonl"
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:lines]) + line + b"\n")
    before = log.read_bytes()
    with pytest.raises(InputError, match="not the log of a search"):
        search(small_tuning(), tmp_path)
    assert log.read_bytes() == before


@pytest.mark.parametrize("name", ["a b", "a?b=c", "a%20b", "ü#1"])
def test_odd_folder_names(name: str, tmp_path: Path) -> None:
    search(small_tuning(trials=1), tmp_path / name)
    assert (tmp_path / name / "trials.jsonl").exists()


def test_timeout_stops_between_trials(tmp_path: Path) -> None:
    assert len(search(small_tuning(), tmp_path, timeout=0.0)) == 1


def test_a_trial_that_was_stopped_between_seeds_begins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = small_tuning(seeds=3, trials=2)
    with monkeypatch.context() as patch:
        stop_in(5, patch)
        with pytest.raises(KeyboardInterrupt):
            search(small, tmp_path / "stopped")
    stopped, whole = (search(small, tmp_path / name) for name in ("stopped", "whole"))
    assert without_times(stopped) == without_times(whole)


def test_impossible_settings_are_noted_and_passed_over(tmp_path: Path) -> None:
    space = {"num_metacommunities": [2, 64]}
    trials = search(small_tuning(space=space, trials=8, seeds=2), tmp_path)
    refused = [trial for trial in trials if trial.refused]
    assert 0 < len(refused) < 8
    assert all(trial.changes["num_metacommunities"] == 64 for trial in refused)
    found = Config.from_toml((tmp_path / "best.toml").read_text())
    assert found.model.num_metacommunities == 2


def test_impossible_default_is_an_error(tmp_path: Path) -> None:
    config = SMALL["node"].replace(num_metacommunities=64)
    with pytest.raises(InputError, match="num_metacommunities must be"):
        search(small_tuning(config=config), tmp_path)


def test_default_outside_the_space_is_still_tried(tmp_path: Path) -> None:
    trials = search(small_tuning(space={"dropout": {"low": 0.1, "high": 0.2}}), tmp_path)
    assert trials[0].changes == {}
    assert all(0.1 <= trial.changes["dropout"] <= 0.2 for trial in trials[1:])


def test_files_tell_the_whole_story(tmp_path: Path) -> None:
    small = small_tuning()
    summary = tune(small, tmp_path, device="cpu", command="vepm tune toy")
    assert json.loads((tmp_path / "summary.json").read_text()) == summary
    config = small.config.replace(**summary["best"]["changes"])
    assert Config.from_toml((tmp_path / "best.toml").read_text()) == config
    gain = summary["best"]["val_accuracy"] - summary["default"]["val_accuracy"]
    assert summary["improvement"] == gain
    assert summary["trials"] == {"asked": 4, "finished": 4, "refused": 0}
    assert summary["seeds"] == [0]
    assert summary["command"] == "vepm tune toy"
    assert "test labels were removed" in summary["rule"]
    assert {"optuna", "vepm", "torch"} <= set(summary["versions"])


def test_nothing_to_validate_on_is_refused() -> None:
    with pytest.raises(InputError, match="to validate on"):
        small_tuning(val=torch.empty(0, dtype=torch.long))


def test_missing_optuna_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(InputError, match=r"pip install 'vepm\[tune\]'"):
        small_tuning()


def test_a_trial_takes_a_part_of_the_time_of_the_search(tmp_path: Path) -> None:
    started = time.perf_counter()
    trials = search(small_tuning(trials=2), tmp_path)
    assert 0 < sum(trial.seconds for trial in trials) <= time.perf_counter() - started
