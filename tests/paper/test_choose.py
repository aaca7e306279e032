"""Results of a choice are put together from the records of what it chooses from."""

import json
from pathlib import Path

import pytest

from tools.choose import main
from vepm.evaluation import Compute
from vepm.paper.experiments import catalogue
from vepm.paper.plan import squares
from vepm.paper.runner import run

EXPERIMENT = """
title = "Toy"
description = "A choice and what it chooses from"
method = "vepm"
protocol = "few-labels-5"
columns = ["KarateClub"]
splits = 3

[[rows]]
name = "even"
settings = { epochs = 8, pretrain_epochs = 2, partition = "even" }

[[rows]]
name = "learned"
settings = { epochs = 8, pretrain_epochs = 2, partition = "learned" }

[[rows]]
name = "auto"
settings = { epochs = 8, pretrain_epochs = 2, partition = "auto" }
"""


def test_a_choice_is_the_best_of_what_is_on_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    toys, results = tmp_path / "toys", tmp_path / "results"
    toys.mkdir()
    (toys / "toy.toml").write_text(EXPERIMENT)
    assert run(squares(catalogue(toys)["toy"]), results, None, Compute("cpu", jobs=1)).ran == 9
    made = {path: json.loads(path.read_text()) for path in results.glob("toy/cells/auto/**/*.json")}
    assert len(made) == 3
    for path in made:
        path.unlink()
    main(["toy"], results, None, toys)
    chosen = [line.split(": ")[1] for line in capsys.readouterr().out.splitlines()]
    assert len(chosen) == 3
    for path, trained in made.items():
        found = json.loads(path.read_text())
        assert found["fingerprint"] == trained["fingerprint"]
        # Seconds are those of the training that was kept.
        del found["result"]["seconds"], trained["result"]["seconds"]
        assert found["result"] == trained["result"]


def test_nothing_is_chosen_where_a_record_is_missing(tmp_path: Path) -> None:
    toys, results = tmp_path / "toys", tmp_path / "results"
    toys.mkdir()
    (toys / "toy.toml").write_text(EXPERIMENT)
    even = [square for square in squares(catalogue(toys)["toy"]) if square.row == "even"]
    run(even, results, None, Compute("cpu", jobs=1))
    main(["toy"], results, None, toys)
    assert not (results / "toy/cells/auto").exists()
