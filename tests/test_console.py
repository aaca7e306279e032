"""What commands print, word for word."""

import errno
import io
import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from vepm import console
from vepm.cli.communities import print_communities
from vepm.cli.evaluate import print_evaluation
from vepm.cli.links import print_links
from vepm.cli.train import print_run
from vepm.errors import InputError
from vepm.evaluation import RULES, RunResult
from vepm.measures import class_measures

RUN: dict[str, Any] = {
    "dataset": "pets",
    "test_accuracy": 0.75,
    "baselines": {"gcn": {"test_accuracy": None}},
    "num_train": 7,
    "rule": "the best",
    "seed": 3,
    "epochs": 5,
    "seconds": 61.0,
    "peak_memory_mib": 3000.0,
    "warnings": [],
}
COST = "61.0 s in 5 epochs, at most 3,000 MiB of memory"
Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal on which tables need no wrapping."""
    monkeypatch.setattr(console.out, "width", 200)


def result(method: str, seed: int, right: int, validated: bool = True) -> RunResult:
    """A run whose scores are right on the one item of class 0, and on some of the three others."""
    curve = {"test_accuracy": [(1 + right) / 4]}
    if validated:
        curve |= {"val_accuracy": [0.5], "val_loss": [1.0]}
    second = torch.tensor([1.0] * right + [0.0] * (4 - right))
    scores = torch.stack([1 - second, second], dim=1)
    measures = class_measures(scores, torch.tensor([1, 1, 1, 0]))
    return RunResult.from_curve(method, "pets", "own", seed, curve, 1.5, {"k": 2}, measures)


def cells(said: str) -> list[list[str]]:
    """The rows of the tables that were printed, and the lines between them."""
    lines = [line.strip() for line in said.splitlines() if "─" not in line and "━" not in line]
    return [[cell.strip() for cell in re.split("[│┃]", line.strip("│┃"))] for line in lines]


def words(said: str) -> str:
    """What was printed, without line breaks and colours."""
    return " ".join(re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", said).split())


def test_links_are_shown_in_percent(capsys: Captured) -> None:
    measures = {"auc": 0.912, "average_precision": 0.8, "calibration_error": 0.34}
    print_links({**RUN, **measures}, Path("out"))
    assert capsys.readouterr().out.splitlines() == [
        "held-out edges: AUC 91.2 %, average precision 80.0 %, calibration error 34.0 %",
        "missing.csv and edges.csv in out",
        f"cost: {COST}",
    ]


def test_a_run_is_shown_beside_its_baselines(capsys: Captured) -> None:
    print_run(RUN, Path("out"))
    assert cells(capsys.readouterr().out) == [
        ["pets: 7 training labels, the same for all methods"],
        ["method", "test accuracy"],
        ["vepm", "75.0 %"],
        ["gcn", "-"],
        ["epoch: the best"],
        ["one run, seed 3; vepm evaluate shows how much results vary between seeds"],
        [f"cost:  {COST}"],
        ["see:   out/report.html"],
    ]


def test_a_run_names_its_parts(capsys: Captured) -> None:
    part = {"relevance": None, "share": 0.25, "homophily": None, "kinds": {"friend": 0.95}}
    whole = {"relevance": 2.0, "share": 0.7, "homophily": 0.8, "kinds": {}}
    print_run({**RUN, "baselines": {}, "parts": [whole, part]}, Path("out"))
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "pets: 7 training labels"
    assert said[-6:-4] == [
        "community 0: weight 2, 70 % of the edges, 80 % of them between nodes of one class",
        "community 1: 25 % of the edges, 95 % friend",
    ]


def test_a_run_that_chose_its_split_says_what_validated(capsys: Captured) -> None:
    tried = {"even": 0.625, "learned": 0.5, "sage": 0.25}
    print_run(RUN | {"partitions": tried}, Path("out"))
    said = "kept:  even 62.5 % on validation labels, beside learned 50.0 %, sage 25.0 %"
    assert said in capsys.readouterr().out


def test_communities_are_shown_by_every_measure_there_is(capsys: Captured) -> None:
    measures = {"modularity": 0.416, "overlapping_nmi": 0.5, "omega": 0.25, "f1": 0.75}
    found = {"vepm": measures, "louvain": {"modularity": 0.25}}
    print_communities({**RUN, "communities": found}, Path("out"))
    assert capsys.readouterr().out.splitlines() == [
        "memberships.csv and edges.csv in out",
        f"cost: {COST}",
        "vepm: modularity 0.42, overlapping NMI 0.50, omega 0.25, F1 0.75",
        "louvain: modularity 0.25",
        "see: out/report.html",
    ]


MEASURED = [
    [result("vepm", 4, right=2), result("vepm", 2, right=3)],
    [result("gcn", 2, right=0), result("gcn", 4, right=0)],
]


def test_an_evaluation_is_shown_as_tables(capsys: Captured) -> None:
    print_evaluation(MEASURED, ["validation", "last"], False)
    said = capsys.readouterr().out
    chosen, last = RULES["validation"].description, RULES["last"].description
    # Titles are wrapped to the width of their table.
    assert "vepm on pets: 2 runs, seeds 2-4" in words(said)
    assert "Test part at the epoch that validation chose, mean over runs" in words(said)
    assert [row for row in cells(said) if len(row) > 1] == [
        ["method", "rule", "mean", "std", "std. error", "how the epoch was chosen"],
        ["vepm", "validation", "87.50", "17.68", "12.50", chosen],
        ["vepm", "last", "87.50", "17.68", "12.50", last],
        ["gcn", "validation", "25.00", "0.00", "0.00", chosen],
        ["method", "macro F1", "ROC AUC"],
        ["vepm", "86.67", "91.67"],
        ["gcn", "20.00", "50.00"],
    ]
    assert said.endswith("cost: 6.0 s of training in 4 runs\n")


def test_only_descriptions_are_wrapped(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console.out, "width", 72)
    runs = [result("vepm (even split)", 0, right=2)]
    print_evaluation([runs], ["validation"], as_json=False)
    rows = [row[:5] for row in cells(capsys.readouterr().out)]
    assert ["method", "rule", "mean", "std", "std. error"] in rows
    assert ["vepm (even split)", "validation", "75.00", "-", "-"] in rows


def test_an_evaluation_without_validation(capsys: Captured) -> None:
    runs = [result("vepm", 0, right=3, validated=False)]
    gcn = [result("gcn", 0, right=3, validated=False)]
    gcn[0].measures["roc_auc"] = None
    print_evaluation([runs, gcn], ["last"], as_json=False)
    said = capsys.readouterr().out
    assert "Test part at the last epoch, mean over runs" in words(said)
    assert ["gcn", "100.00", "-"] in cells(said)


def test_an_evaluation_as_json_holds_every_run(capsys: Captured) -> None:
    print_evaluation(MEASURED, ["validation", "last"], as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert [found[key] for key in ("dataset", "method", "rule")] == ["pets", "vepm", "validation"]
    assert found["mean"] == 0.875
    assert found["std"] == pytest.approx(0.17678, abs=1e-5)
    assert found["standard_error"] == pytest.approx(0.125)
    assert found["n"] == 2
    assert list(found["rules"]) == ["validation", "last"]
    assert found["settings"] == {"k": 2}
    assert found["measures"]["macro_f1"] == pytest.approx(0.86667, abs=1e-5)
    assert [(run["seed"], run["test_accuracy"]) for run in found["runs"]] == [(4, 0.75), (2, 1.0)]
    assert found["runs"][1]["macro_f1"] == 1
    gcn = found["baselines"]["gcn"]
    assert (gcn["mean"], list(gcn["rules"])) == (0.25, ["validation"])


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (InputError("no\x1b[2Jgraph"), "error: no\\x1b[2Jgraph"),
        (FileNotFoundError(errno.ENOENT, "No such file", "a.csv"), "error: a.csv: No such file"),
        (OSError("no name"), "error: no name"),
        (MemoryError(), "error: not enough memory"),
        (MemoryError("31 GiB"), "error: not enough memory; 31 GiB"),
        (
            OSError(errno.ENOSPC, "No space left", "a.csv"),
            "error: a.csv: No space left; files written before are complete: make room and give "
            "the command again",
        ),
    ],
)
def test_errors_are_one_line(
    error: Exception, line: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setattr(console.err, "width", 20)
    console.print_error(error)
    assert capsys.readouterr().err == f"{line}\n"


def test_lines_warnings_and_notes_are_not_wrapped(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setattr(console.err, "width", 20)
    monkeypatch.setattr(console.out, "width", 20)
    console.print_line("a line that is longer than the [red]terminal")
    assert capsys.readouterr().out == "a line that is longer than the [red]terminal\n"
    metrics = {"warnings": ["the first warning of [them]", "two\nlines"]}
    console.print_result(metrics, Path("out"), True, print_run)
    console.print_note("a note that is longer than the [red]terminal")
    printed = capsys.readouterr()
    assert json.loads(printed.out) == metrics
    assert printed.err.splitlines() == [
        "warning: the first warning of [them]",
        "warning: two lines",
        "a note that is longer than the [red]terminal",
    ]


def test_messages_of_the_package_go_to_standard_error_once(capsys: Captured) -> None:
    logger = logging.getLogger("vepm")
    before = logger.handlers[:], logger.level
    try:
        console.show_messages()
        console.show_messages()
        logger.info("two\nlines")
        logger.debug("nothing")
        assert capsys.readouterr().err == "two lines\n"
    finally:
        logger.handlers[:], logger.level = before


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_bars_show_how_far_each_phase_is(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(console, "err", Console(file=screen, width=100))
    with console.bars() as show:
        show("pretrain", 2, 5, "loss 0.123")
        show("finetune", 1, 3, "loss 2.000")
        show("finetune", 3, 3, "loss 1.000")
    shown = words(screen.getvalue().split("\r")[-1])
    assert re.fullmatch(r"pretrain \S+ 2/5 \S+ loss 0\.123 finetune \S+ 3/3 \S+ loss 1\.000", shown)


def test_a_bar_of_runs_counts_them_and_shows_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(console, "err", Console(file=screen, width=100))
    with console.run_bar("two\n[lines]") as show:
        show(1, 4, "a\n[note]")
        show(2, 4, "a\n[note]")
    shown = words(screen.getvalue().split("\r")[-1])
    assert re.fullmatch(r"two \[lines\] \S+ 2/4 \S+ a \[note\]", shown)


@pytest.mark.parametrize(("terminal", "rank"), [(False, "0"), (True, "1")])
def test_no_bar_where_nobody_looks(
    terminal: bool, rank: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(console, "err", Console(file=screen))
    monkeypatch.setenv("RANK", rank)
    with console.run_bar("runs") as show:
        show(1, 4, "a note")
    assert screen.getvalue() == ""


def test_numbers_and_names_are_not_highlighted(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    terminal = Console(file=screen, force_terminal=True, color_system="standard", markup=False)
    monkeypatch.setattr(console, "out", terminal)
    monkeypatch.setattr(console, "err", terminal)
    console.print_line("5 'of' 7")
    console.print_note("5 'of' 7")
    assert screen.getvalue() == "5 'of' 7\n5 'of' 7\n"
    console.print_error(InputError("5 'of' 7"))
    console.print_result({"warnings": ["5 'of' 7"]}, Path("out"), True, print_run)
    error, warning = screen.getvalue().splitlines()[2:]
    assert error == "\x1b[31merror: 5 'of' 7\x1b[0m"
    assert warning == "\x1b[33mwarning: 5 'of' 7\x1b[0m"
