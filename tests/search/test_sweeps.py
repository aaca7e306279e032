import json
import math
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from tools.search_log import Row, standings
from tools.sweep import (
    Sweep,
    _outcome,
    by_dataset,
    draw,
    main,
    only_writer,
    random_changes,
    run_sweep,
    search_splits,
    spread,
)
from vepm.baselines import BASELINES
from vepm.data import Dataset, load
from vepm.errors import InputError
from vepm.evaluation import PROTOCOLS, Compute, RunResult, Split
from vepm.search.space import Space, flat, parse_space
from vepm.training import Config, preset
from vepm.training.config import tuned_for

ROOT = Path(__file__).parents[2]
CHOICE = re.compile(r"# (.+), setting (\d+): ([\d.]+) on validation, best of \d+\n\[(.+)\]")
ONE = Compute("cpu", jobs=1)
NODES = {"Cora", "CiteSeer", "PubMed"}
LENGTHS = ("epochs", "patience", "pretrain_epochs", "batch_size")
TINY = {"epochs": 3, "pretrain_epochs": 2, "hidden_channels": 8, "num_metacommunities": 2}


def tiny_sweep(**changes: object) -> Sweep:
    values: dict[str, object] = {
        "datasets": ["digits"],
        "space": {"dropout": [0.0, 0.5], "loss": [{"passes": 2, "consistency_weight": 1.0}]},
        "settings": 3,
        "base": TINY,
        "seeds": [7, 8],
    }
    return Sweep(**{**values, **changes})  # type: ignore[arg-type]


def test_draws_are_distinct_and_begin_with_the_settings_to_improve_on() -> None:
    changes = [run["changes"] for run in tiny_sweep(seeds=[0]).left([])]
    assert changes[0] == {}
    assert sorted(change["dropout"] for change in changes[1:]) == [0.0, 0.5]
    assert all(change["consistency_weight"] == 1.0 for change in changes[1:])
    # There are no more than these, however many are asked for.
    assert tiny_sweep(seeds=[0], settings=50).count == 3


def test_settings_in_another_order_are_the_same_settings() -> None:
    loss = {"passes": 2, "consistency_weight": 1.0}
    entries = {"loss": [loss, dict(reversed(loss.items()))]}
    assert random_changes(parsed(entries), 50, seed=0) == [{}, loss]


def parsed(entries: dict[str, Any]) -> Space:
    return parse_space(entries, lambda changes: flat(Config().replace(**changes)))


def test_draws_cover_what_the_space_holds() -> None:
    space = parsed(
        {
            "conv": ["gcn", "gin"],
            "epochs": {"low": 3, "high": 5},
            "dropout": {"low": 0.25, "high": 0.75},
            "patience": {"low": 1, "high": 100, "log": True},
            "learning_rate": {"low": 1e-4, "high": 1e-2, "log": True},
        }
    )
    rng = np.random.default_rng(0)
    drawn = {d.name: [d.sets(draw(d, rng))[d.name] for _ in range(400)] for d in space}
    assert set(drawn["conv"]) == {"gcn", "gin"}
    assert set(drawn["epochs"]) == {3, 4, 5}
    assert {type(value) for value in drawn["epochs"] + drawn["patience"]} == {int}
    for name, low, middle, high in (
        ("dropout", 0.25, 0.5, 0.75),
        ("patience", 1, 10, 100),
        ("learning_rate", 1e-4, 1e-3, 1e-2),
    ):
        assert low <= min(drawn[name]) < max(drawn[name]) <= high
        # Half of the draws lie below the middle of the scale.
        assert np.mean([value < middle for value in drawn[name]]) == pytest.approx(0.5, abs=0.1)


def test_every_setting_of_a_small_space_is_drawn_once() -> None:
    space = parsed({"epochs": list(range(1, 61))})
    drawn = random_changes(space, 61, seed=0)
    assert drawn[0] == {}
    assert sorted(changes["epochs"] for changes in drawn[1:]) == list(range(1, 61))
    # There are no more, however many are asked for.
    assert len(random_changes(space, 70, seed=0)) == 61


def test_no_more_settings_are_drawn_than_asked_for() -> None:
    space = parsed({"dropout": {"low": 0.1, "high": 0.5}})
    assert [len(random_changes(space, count, seed=0)) for count in (1, 2, 5)] == [1, 2, 5]


def test_a_stopped_sweep_goes_on_and_ends_the_same(tmp_path: Path) -> None:
    sweep = tiny_sweep()
    path = tmp_path / "sweep.jsonl"
    rows = run_sweep(sweep, path, compute=ONE)
    assert len(rows) == 6
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:4]) + lines[4][:20])
    again = run_sweep(sweep, path, compute=ONE)

    def scores(found: list[dict[str, object]]) -> dict[tuple[object, object], object]:
        return {(row["number"], row["seed"]): row["val_accuracy"] for row in found}

    assert scores(again) == scores(rows)
    assert len(path.read_text().splitlines()) == 7
    assert run_sweep(sweep, path, compute=ONE, minutes=0) == again
    with pytest.raises(InputError, match="other sampler_seed"):
        run_sweep(tiny_sweep(sampler_seed=1), path, compute=ONE)
    assert "test" not in path.read_text().replace("test labels had no part", "")


def test_seeds_may_train_together(tmp_path: Path) -> None:
    sweep = tiny_sweep(settings=1, base={**TINY, "dropout": 0.0, "sampling": False})
    rows = [run_sweep(sweep, tmp_path / f"{n}.jsonl", compute=Compute("cpu", 1, n)) for n in (1, 2)]
    alone, together = ([(row["seed"], row["val_accuracy"]) for row in found] for found in rows)
    assert alone == together
    assert rows[1][0]["seconds"] == rows[1][1]["seconds"]


def test_runs_may_be_judged_at_one_epoch_for_all(tmp_path: Path) -> None:
    rows = {
        epoch: run_sweep(tiny_sweep(epoch=epoch), tmp_path / epoch, compute=ONE)
        for epoch in ("own", "shared")
    }
    for number in range(3):
        own, shared = ([r for r in rows[e] if r["number"] == number] for e in ("own", "shared"))
        assert len({row["best_epoch"] for row in shared}) == 1
        # No epoch is better for both seeds than the best of each.
        assert all(a["val_accuracy"] >= b["val_accuracy"] for a, b in zip(own, shared, strict=True))
    assert (
        "best for their mean"
        in json.loads((tmp_path / "shared").read_text().split("\n")[0])["rule"]
    )


def test_a_file_begun_before_there_were_these_choices_goes_on(tmp_path: Path) -> None:
    sweep, path = tiny_sweep(settings=1), tmp_path / "sweep.jsonl"
    rows = run_sweep(sweep, path, compute=ONE)
    head, *rest = path.read_text().splitlines(keepends=True)
    old = json.loads(head)
    del old["sweep"]["epoch"], old["sweep"]["keep"], old["sweep"]["sampler"]
    path.write_text(json.dumps(old) + "\n" + "".join(rest))
    assert run_sweep(sweep, path, compute=ONE) == rows
    with pytest.raises(InputError, match="other epoch"):
        run_sweep(replace(sweep, epoch="shared"), path, compute=ONE)


def test_logs_hold_hundredths_of_seconds_and_no_loss_where_there_is_none() -> None:
    curve = {"val_accuracy": [0.5, 0.75], "val_loss": [2.0, 1.0], "test_accuracy": [0.1, 0.2]}
    result = RunResult.from_curve("gcn", "Cora", "public", 0, curve, seconds=1.23456)
    wanted = {"val_accuracy": 0.5, "val_loss": 2.0, "best_epoch": 0, "seconds": 1.23}
    assert _outcome(result, 0) == wanted
    result.curve["val_loss"].clear()
    assert _outcome(result, 0) == wanted | {"val_loss": None}


def test_a_sweep_tries_twenty_settings_on_one_split_with_a_seed_of_its_own() -> None:
    runs = Sweep(["Cora"], {"dropout": {"low": 0.0, "high": 0.9}}).left([])
    assert len(runs) == 20
    assert {(run["split"], run["seed"], run["keep"]) for run in runs} == {(0, 1000, 1.0)}


def folds_in(splits: list[Split]) -> set[frozenset[int]]:
    return {frozenset(p.tolist()) for s in splits for p in (s.train, s.val, s.test) if p.numel()}


def folds_of_results(dataset: Dataset) -> set[frozenset[int]]:
    return folds_in([*PROTOCOLS["gin"](dataset), *PROTOCOLS["capsgnn"](dataset)])


def test_searches_from_now_on_share_no_fold_with_results() -> None:
    dataset = load("digits-graphs")
    searched = folds_in(search_splits(dataset))
    assert len(searched) == 20
    assert not searched & folds_of_results(dataset)


@pytest.mark.parametrize("name", sorted({name for name, _ in tuned_for()} - NODES))
def test_the_searches_behind_our_settings_share_no_fold_with_results(name: str) -> None:
    if "VEPM_DATA" not in os.environ:
        pytest.skip("VEPM_DATA is not set")
    dataset, seeds = load(name, os.environ["VEPM_DATA"]), set()
    for log in (ROOT / "results/search").glob("*.jsonl"):
        sweep = json.loads(log.read_text().split("\n", 1)[0]).get("sweep", {})
        if name in sweep.get("datasets", ()):
            seeds.add(sweep.get("folds", 0))
    assert seeds
    searched = set().union(*(folds_in(PROTOCOLS["capsgnn"](dataset, seed)) for seed in seeds))
    assert not searched & folds_of_results(dataset)


def test_a_search_on_the_folds_of_results_is_not_continued(tmp_path: Path) -> None:
    sweep, path = tiny_sweep(datasets=["digits-graphs"], settings=1), tmp_path / "s.jsonl"
    head = {"sweep": {k: v for k, v in sweep.about.items() if k != "folds"}, "rule": ""}
    path.write_text(json.dumps(head) + "\n")
    with pytest.raises(InputError, match="other folds"):
        run_sweep(sweep, path, compute=ONE)


def test_settings_may_be_judged_with_fewer_labels_too(tmp_path: Path) -> None:
    sweep = tiny_sweep(settings=2, seeds=[7], keep=[0.1, 1.0], epoch="shared")
    rows = run_sweep(sweep, tmp_path / "few.jsonl", compute=ONE)
    whole = run_sweep(
        tiny_sweep(settings=2, seeds=[7], epoch="shared"),
        tmp_path / "all.jsonl",
        compute=ONE,
    )
    assert [row["keep"] for row in rows] == [0.1, 1.0, 0.1, 1.0]
    scores = [row["val_accuracy"] for row in rows]
    assert scores[1::2] == [row["val_accuracy"] for row in whole]
    assert scores[::2] != scores[1::2]
    assert run_sweep(sweep, tmp_path / "few.jsonl", compute=ONE) == rows
    assert standings(rows)[0].val_accuracy == max(sum(scores[:2]), sum(scores[2:])) / 2


def test_ties_go_to_the_lower_loss_then_to_the_first() -> None:
    run = {"dataset": "toy", "split": 0, "seed": 0, "changes": {}}
    losses = (0.7, 0.5, 0.5)
    tied = [run | {"number": i, "val_accuracy": 0.8, "val_loss": x} for i, x in enumerate(losses)]
    refused = run | {"number": 3, "val_accuracy": 0.9, "val_loss": None, "refused": "too deep"}
    found = standings([*tied, refused])
    assert [trial.number for trial in found] == [1, 2, 0, 3]
    assert standings([]) == []


def test_a_setting_that_diverges_stands_last(tmp_path: Path) -> None:
    space = {"learning_rate": [1e30]}
    sweep = tiny_sweep(settings=2, seeds=[7], space=space, base={**TINY, "scheme": "joint"})
    rows = run_sweep(sweep, tmp_path / "sweep.jsonl", compute=ONE)
    assert [one.number for one in standings(rows)] == [0, 1]
    assert "learning rate" in rows[1]["refused"]
    worst = ("val_accuracy", "val_loss", "best_epoch", "seconds")
    assert [rows[1][name] for name in worst] == [0, 0, 0, 0]


def test_without_a_validation_part_nothing_is_chosen(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no validation part"):
        run_sweep(tiny_sweep(datasets=["KarateClub"]), tmp_path / "s.jsonl", compute=ONE)


def test_test_labels_have_no_part_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = load("digits")
    graph = whole.graphs[0].clone()
    graph.y[graph.test_mask] = graph.y[graph.test_mask].roll(1)
    sweep = tiny_sweep(settings=1, seeds=[7])
    scores = []
    for number, dataset in enumerate([whole, replace(whole, graphs=[graph])]):
        monkeypatch.setattr("tools.sweep.open_dataset", lambda *_, found=dataset: found)
        rows = run_sweep(sweep, tmp_path / f"{number}.jsonl", compute=ONE)
        scores.append([rows[0]["val_accuracy"], rows[0]["val_loss"]])
    assert scores[0] == scores[1]


def test_standings_order_by_validation_accuracy_then_loss() -> None:
    def row(number: int, seed: int, accuracy: float, loss: float) -> Row:
        where = {"number": number, "dataset": "Cora", "split": 0, "seed": seed, "changes": {}}
        return where | {"val_accuracy": accuracy, "val_loss": loss}

    rows = [row(0, 0, 0.7, 1.0), row(0, 1, 0.9, 1.0), row(1, 0, 0.8, 0.5), row(1, 1, 0.8, 0.5)]
    found = standings([*rows, row(2, 0, 1.0, 0.1)])
    assert [one.number for one in found] == [1, 0]
    assert spread(found[1]) == pytest.approx(0.1)
    # Of two datasets it is that of their mean; a loss that is not there counts for nothing.
    others = [one | {"dataset": "PubMed", "val_loss": None} for one in rows[:2]]
    (both,) = standings([*rows[:2], *others])
    assert spread(both) == pytest.approx(math.hypot(0.1, 0.1) / 2)
    assert by_dataset(both) == {"Cora": [0.7, 0.9], "PubMed": [0.7, 0.9]}
    assert both.val_loss == 0.5
    assert math.isnan(spread(standings(rows[:1])[0]))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("datasets = [", "not a readable TOML file"),
        ("datasets = ['Cora']", "space is missing"),
        ("datasets = ['Cora']\ntrials = 3\n[space]\n", "there is no 'trials'"),
        ("datasets = 'Cora'\n[space]\n", "datasets must be of type list"),
        ("datasets = []\n[space]\n", "datasets must not be empty"),
        ("datasets = ['Cora']\nspace = 3\n", "space must be of type dict"),
        ("datasets = ['Cora']\nseeds = [1, 2, 1]\n[space]\n", "seeds holds 1 twice"),
        ("datasets = ['Cora']\nseeds = ['one']\n[space]\n", "seeds must be of type"),
        ("datasets = ['Cora']\nseeds = [-1]\n[space]\n", "seeds cannot hold -1"),
        ("datasets = ['Cora']\nsettings = 1000000000\n[space]\n", "between 1 and 10000"),
        ("datasets = ['Cora']\nsampler = 'grid'\n[space]\n", "one of random, tpe"),
        ("datasets = ['Cora']\n[base]\ndropout = 'much'\n[space]\n", "type float"),
        ("datasets = ['Corra']\n[space]\n", "unknown dataset 'Corra'"),
        ("datasets = ['Cora']\nsplits = 2\n[space]\n", "has 1 splits"),
        ("datasets = ['Cora']\nmethod = 'svm'\n[space]\n", "no method 'svm'"),
        ("datasets = ['Cora']\nepoch = 'last'\n[space]\n", "one of own, shared"),
        ("datasets = ['Cora']\nkeep = [0.5, 2]\n[space]\n", "keep cannot hold 2"),
        ("datasets = ['Cora']\n[space]\ndropout = 0.5\n", "give a list of values"),
        ("datasets = ['Cora']\n[space]\ndropuot = [0.5]\n", "did you mean dropout"),
        ("datasets = ['Cora']\nmethod = 'gcn'\n[space]\nheads = [2]\n", "has no setting 'heads'"),
    ],
)
def test_what_cannot_run_is_refused_before_anything_does(
    tmp_path: Path, text: str, reason: str
) -> None:
    path = tmp_path / "sweep.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=reason):
        Sweep.read(path)


def test_command_shows_the_best_settings_of_any_method(tmp_path: Path) -> None:
    path = tmp_path / "mlp.toml"
    text = "datasets = ['digits']\nmethod = 'mlp'\nsettings = 2\n"
    path.write_text(text + "[base]\nepochs = 2\n[space]\ndropout = [0.2]\n")
    app = typer.Typer()
    app.command()(main)
    shown = CliRunner().invoke(app, [str(path), "--jobs", "1", "--device", "cpu"])
    assert shown.exit_code == 0
    assert "dropout=0.2" in shown.output
    assert "2 of 2 runs" in shown.output
    head = json.loads((tmp_path / "mlp.jsonl").read_text().splitlines()[0])
    assert head["sweep"]["method"] == "mlp"


def test_only_one_process_writes_a_log(tmp_path: Path) -> None:
    path = tmp_path / "sweep.jsonl"
    with only_writer(path), pytest.raises(InputError, match="another process is writing"):
        run_sweep(tiny_sweep(), path, compute=ONE)
    assert not any(tmp_path.iterdir())


RUN = {"number": 0, "changes": {}, "dataset": "digits", "split": 0, "seed": 7, "keep": 1.0}
RUN |= {"val_accuracy": 0.5, "val_loss": 1.0, "best_epoch": 3, "seconds": 1.0}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", "line 2: not a run"),
        (b"\xff\xfe", "line 2: not a run"),
        (b"[" * 10_000, "line 2: not a run"),
        (b"[]", "line 2: not a run"),
        (json.dumps(RUN | {"val_accuracy": "high"}).encode(), "line 2: not a run"),
        (json.dumps(RUN | {"val_loss": float("nan")}).encode(), "line 2: not a run"),
        (json.dumps(RUN | {"number": True}).encode(), "line 2: not a run"),
        (json.dumps({k: v for k, v in RUN.items() if k != "seed"}).encode(), "line 2: not a run"),
        ((json.dumps(RUN) + "\n" + json.dumps(RUN)).encode(), "holds a run twice"),
    ],
)
def test_a_malformed_log_is_refused_and_left_alone(
    line: bytes, reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "sweep.jsonl"
    run_sweep(tiny_sweep(), path, compute=ONE, minutes=0)
    path.write_bytes(path.read_bytes() + line + b"\n")
    before = path.read_bytes()
    with pytest.raises(InputError, match=reason):
        run_sweep(tiny_sweep(), path, compute=ONE, minutes=0)
    assert path.read_bytes() == before


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_refused(make: Callable[[Path], None], tmp_path: Path) -> None:
    make(tmp_path / "sweep.jsonl")
    with pytest.raises((InputError, IsADirectoryError), match=r"not a file|Is a directory"):
        run_sweep(tiny_sweep(), tmp_path / "sweep.jsonl", compute=ONE)


@pytest.mark.parametrize("method", BASELINES)
def test_every_baseline_can_be_swept_on_any_device(method: str, tmp_path: Path) -> None:
    dataset = {"node": "planted", "graph": "digits-graphs"}[BASELINES[method].task]
    known = BASELINES[method].settings()
    small = {"epochs": 1, "max_iterations": 1, "inner_folds": 2}
    base = {name: value for name, value in small.items() if name in known}
    sweep = tiny_sweep(datasets=[dataset], method=method, base=base, space={}, seeds=[7])
    sweep.check()
    rows = run_sweep(sweep, tmp_path / "s.jsonl", compute=Compute("auto", 1))
    assert [row["number"] for row in rows] == [0]
    assert 0 < rows[0]["val_accuracy"] <= 1


def test_a_loss_that_is_no_number_counts_as_refused(tmp_path: Path) -> None:
    space = {"learning_rate": [1e30]}
    sweep = tiny_sweep(
        datasets=["planted"], method="mlp", base={"epochs": 3}, space=space, seeds=[7]
    )
    rows = run_sweep(sweep, tmp_path / "s.jsonl", compute=ONE)
    assert "not a finite number" in rows[1]["refused"]
    assert [trial.number for trial in standings(rows)] == [0, 1]


def test_sampler_may_learn_from_the_settings_so_far(tmp_path: Path) -> None:
    space = {"dropout": {"low": 0.0, "high": 0.9}, "size": [{"hidden_channels": 8}]}
    sweep = tiny_sweep(
        datasets=["planted"], method="gcn", base={"epochs": 2}, space=space, sampler="tpe"
    )
    path = tmp_path / "s.jsonl"
    rows = run_sweep(sweep, path, compute=Compute("cpu", 2))
    assert sorted((row["number"], row["seed"]) for row in rows) == [
        (number, seed) for number in range(3) for seed in (7, 8)
    ]
    changes = {row["number"]: row["changes"] for row in rows}
    assert changes[0] == {}
    assert 0 < changes[1]["dropout"] != changes[2]["dropout"] < 0.9
    assert changes[1]["hidden_channels"] == 8
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:4]))
    again = run_sweep(sweep, path, compute=ONE)
    assert {row["number"]: row["changes"] for row in again} == changes


def test_tuned_has_what_its_searches_found() -> None:
    text = (ROOT / "src/vepm/training/tuned.toml").read_text()
    choices = CHOICE.findall(text)
    assert len(choices) == text.count(" on validation, best of ")
    for name, number, accuracy, section in choices:
        dataset, _, other = section.partition(".")
        partition = other or "learned"
        log = ROOT / f"results/search/{name}.jsonl"
        head, *rows = map(json.loads, log.read_text().splitlines())
        base = preset("tuned", "graph").replace(**head["sweep"]["base"])
        own = [row for row in rows if base.replace(**row["changes"]).model.partition == partition]
        best = standings(own)[0]
        assert (best.number, f"{100 * best.val_accuracy:.1f}") == (int(number), accuracy), section
        found = base.replace(**best.changes)
        taken = preset("tuned", "graph", dataset, partition)
        assert taken.model == found.model, section
        lengths = {field: getattr(found.training, field) for field in LENGTHS}
        assert replace(taken.training, **lengths) == found.training, section
