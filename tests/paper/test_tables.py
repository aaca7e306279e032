"""Tables and figures: the right squares, marks both ways, every form."""

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

from paper.toys import MAPS, write_toys
from vepm.evaluation import Summary
from vepm.paper.cells import Finding, write_cell
from vepm.paper.experiments import METRICS, Printed, catalogue, slug
from vepm.paper.plan import EVERY_PRESET, Value, squares
from vepm.paper.results import Results, all_squares, gather
from vepm.paper.runner import Ended
from vepm.report.paper_figures import draw_figures
from vepm.report.paper_tables import (
    SEARCHED,
    footnotes,
    markdown,
    ours,
    spread,
    terminal_tables,
    theirs,
    write_tables,
)
from vepm.report.payload import breadth_first


def summary(mean: float, error: float, n: int = 10, rule: str = "gin") -> Summary:
    values, epochs = (mean,) * n, (3,) * n
    return Summary(rule, "in words", values, epochs, mean, error * n**0.5, error, n)


def value(mean: float, error: float = 0.01, n: int = 10, **more: object) -> Value:
    fields: dict[str, object] = {
        "row": "GCN",
        "column": "planted",
        "dataset": "planted",
        "method": "gcn",
        "preset": None,
        "metric": METRICS["accuracy"],
        "printed": Printed(80.0, 0.5),
        "cells": (None,) * n,
        "summaries": (summary(mean, error, n), summary(mean + 0.1, error, n, "fold-max")),
    }
    return Value(**(fields | more))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("mean", "mark"), [(0.815, "▲"), (0.805, ""), (0.80, ""), (0.795, ""), (0.785, "▼")]
)
def test_marks_beyond_one_standard_error(mean: float, mark: str) -> None:
    assert value(mean).mark == mark


def test_one_run_has_no_spread_to_mark_by() -> None:
    assert value(0.5, 0.0, n=1).mark == ""
    exact = value(81.0, 0.0, n=1, metric=METRICS["nodes"])
    assert exact.mark == "▲"


def test_rounding_marks_nothing() -> None:
    assert value(0.8004, 0.0).mark == ""


def test_verdicts() -> None:
    yes, unsaid = (Printed(word, yes=[1.0, 1.1]) for word in ("YES", "N/A"))
    agreed = value(1.05, 0.0, metric=METRICS["overlap"], printed=yes)
    assert (agreed.verdict, agreed.mark) == ("YES", "")
    wrong = value(1.5, 0.0, metric=METRICS["overlap"], printed=yes)
    assert (wrong.verdict, wrong.mark) == ("NO", "≠")
    open_question = value(1.5, metric=METRICS["overlap"], printed=unsaid)
    assert (open_question.verdict, open_question.mark) == ("", "")


def test_words() -> None:
    assert ours(value(0.815)) == "81.5 ± 1.0 ▲"
    assert spread(value(0.815)) == "sd 3.2, n 10"
    assert ours(value(0.815, cells=(None,) * 20)) == "81.5 ± 1.0 ▲ [10 of 20 runs]"
    assert ours(value(0.5, summaries=(), reason="data not here")) == "n/a (data not here)"
    assert theirs(Printed(79.0, 1.0)) == "79.0 ± 1.0"
    assert theirs(Printed(5429.0)) == "5429"
    assert theirs(Printed(7.0), exact=True) == "7"
    assert METRICS["classes"].text(7.0) == "7"
    assert METRICS["accuracy"].text(0.79) == "79.0"
    assert theirs(Printed()) == "-"


@pytest.fixture
def results(tmp_path: Path) -> Results:
    experiment = catalogue(write_toys(tmp_path / "toys"))["table-1"]
    quoted = value(0, summaries=(), method="quoted", row="Other system", printed=Printed(55.5))
    gone = value(0, summaries=(), column="Cora here", reason="data not here", printed=Printed())
    return Results(experiment, (value(0.815), gone, quoted), quick=True)


def test_every_form_has_the_same_squares(results: Results, tmp_path: Path) -> None:
    paths = write_tables(results, tmp_path)
    assert [path.name for path in paths] == ["table.md", "table.csv"]
    text = markdown(results)
    assert (
        "| GCN | 81.5 ± 1.0 ▲<br>sd 3.2, n 10<br>paper 80.0 ± 0.5 | n/a (data not here) |" in text
    )
    assert "| Other system | 55.5<br>quoted |" in text
    assert "| GCN | planted | 81.5 ± 1.0 | 91.5 ± 1.0 |" in text
    lines = list(csv.DictReader(paths[1].read_text().splitlines()))
    assert [(line["row"], line["source"], line["rule"]) for line in lines] == [
        ("GCN", "ours", "gin"),
        ("GCN", "ours", "fold-max"),
        ("GCN", "missing", ""),
        ("Other system", "quoted", ""),
    ]
    assert (lines[0]["mean"], lines[0]["standard_error"], lines[0]["mark"]) == ("81.5", "1", "▲")
    assert all(line["quick"] == "True" for line in lines)


def test_each_number_stands_under_its_own_rule(results: Results) -> None:
    by_gin = value(0.6, row="MUTAG, GIN")
    alone = (summary(0.7, 0.0, rule="validation"), summary(0.5, 0.0, rule="last"))
    by_validation = value(0.7, row="Cora, GCN", summaries=alone)
    text = markdown(replace(results, values=(by_gin, by_validation)))
    assert "| gin | fold-max | validation | last |" in text
    assert "| MUTAG, GIN | planted | 60.0 ± 1.0 | 70.0 ± 1.0 |  |  |" in text
    assert "| Cora, GCN | planted |  |  | 70.0 ± 0.0 | 50.0 ± 0.0 |" in text


def test_lines_of_other_presets_stand_beside_ours(tmp_path: Path) -> None:
    experiment = catalogue()["table-13"]
    planned = squares(experiment, presets=EVERY_PRESET)
    vepm = next(s for s in planned if s.column == "VEPM, as in the paper")
    assert vepm.printed == Printed("N/A", yes=[1.0, 1.1])
    assert vepm.cells[0].preset == "paper"
    numbers = {"size_imbalance": 2.0, "density_ratio": 3.0, "overlap": 0.5, "task_dependence": 0.0}
    write_cell(tmp_path, vepm.cells[0], Finding(numbers), 1.0)
    shown = all_squares(experiment, tmp_path)
    results = gather(experiment, shown, tmp_path, Ended(), quick=False)
    text = markdown(results)
    assert results.columns[-2:] == ["VEPM, as in the paper", "VEPM"]
    assert "| SBM | MMSB | VEPM, as in the paper | VEPM, ours |" in text
    assert "released" not in text


def test_settings_searched_on_other_folds_of_the_same_graphs_are_named(results: Results) -> None:
    for preset, named in (("tuned", True), ("paper", False)):
        own = value(0.6, method="vepm", preset=preset, pretrained=True)
        assert (SEARCHED in footnotes(replace(results, values=(own,)))) == named


def test_quick_is_stamped_and_rules_are_said(results: Results) -> None:
    lines = footnotes(results)
    assert lines[0].startswith("QUICK")
    assert "Rule gin: in words." in lines
    assert "A note." in lines
    assert r"\[QUICK\]" in markdown(results)


HOSTILE = "[/red] <b>x</b> ](http://there) \x1b[2J"


def test_text_of_an_experiment_is_shown_and_not_obeyed(results: Results) -> None:
    experiment = replace(results.experiment, title=HOSTILE, description=HOSTILE, notes=[HOSTILE])
    found = replace(results, experiment=experiment, values=(value(0.8, row=HOSTILE),))
    text = markdown(found)
    assert not any(active in text for active in ("<b>", " ](", "\x1b"))
    console = Console(width=200)
    with console.capture() as captured:
        console.print(*terminal_tables(found, 200))
    assert "[/red] <b>x</b> ](http://there) \\x1b[2J" in captured.get()


@pytest.mark.parametrize(("width", "count"), [(40, 2), (100, 1)])
def test_wide_tables_are_broken_up(results: Results, width: int, count: int) -> None:
    tables = terminal_tables(results, width)
    assert len(tables) == count
    console = Console(width=width, record=True, file=None, quiet=False)
    with console.capture() as captured:
        for table in tables:
            console.print(table)
    assert "81.5 ± 1.0 ▲" in captured.get()
    assert "n/a (data not here)" in captured.get()


@pytest.mark.parametrize("name", list(catalogue()))
def test_nothing_run_gives_every_row_and_column(name: str, tmp_path: Path) -> None:
    experiment = catalogue()[name]
    found = gather(experiment, squares(experiment), tmp_path, Ended(), quick=False)
    assert found.rows == [row.name for row in experiment.rows]
    assert found.columns == [column.name for column in experiment.columns]
    assert all(value.quoted or value.reason == "not run" for value in found.values)
    assert len({slug(row) for row in found.rows}) == len(found.rows)
    text = markdown(found)
    assert all(row in text for row in found.rows)


def test_breadth_first_search_stays_connected() -> None:
    pairs = [(0, 1), (2, 3), (3, 4), (4, 5), (3, 6)]
    edges = np.array([*pairs, *((b, a) for a, b in pairs)]).T
    assert breadth_first(edges, 7, 3).tolist() == [2, 3, 4]
    assert breadth_first(edges, 7, 6).tolist() == [2, 3, 4, 6, 5]


def test_a_figure_that_fails_is_named_and_the_others_are_drawn(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "figure-1.toml").write_text(MAPS)
    experiment = catalogue(tmp_path)["figure-1"]
    planned = squares(experiment)
    embeddings = torch.rand(6, 2, 3)
    for square, memberships in zip(planned, (torch.ones(6, 2), torch.rand(6, 2)), strict=True):
        arrays = {
            "pretrained_z": memberships,
            "community_embeddings": embeddings,
            "y": torch.arange(6),
        }
        write_cell(tmp_path, square.cells[0], Finding({}, arrays), 1.0)
    results = Results(experiment, (), quick=False)
    drawn = {path.name for path in draw_figures(results, planned, tmp_path)}
    assert drawn == {f"figure-1-digits-{kind}.svg" for kind in ("affiliations", "embeddings")}
    assert caplog.messages == ["figure-1-planted: not drawn: t-SNE needs 4 distinct points, not 1"]
