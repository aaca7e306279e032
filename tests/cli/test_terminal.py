"""Pipes get text, terminals get bars, and nobody gets colours who does not want them."""

import io
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from cli.running import QUICK, succeed
from cli.writing import NODES, write_nodes
from paper.toys import write_toys
from vepm import console

COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-9][0-9;]*m")


def module(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """``python -m vepm`` with its output in pipes."""
    command = [sys.executable, "-m", "vepm", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_results_and_nothing_else_for_other_programs(pets: Path, pets_run: Path) -> None:
    done = module("predict", pets_run, pets)
    said = (done.returncode, done.stdout, done.stderr)
    assert said == (0, f"{NODES} predictions in predictions.csv\n", "")


def test_bad_input_is_one_line_for_other_programs() -> None:
    done = module("train", "nowhere")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: unknown dataset 'nowhere'; `vepm datasets` lists those known\n"


@pytest.mark.usefixtures("no_page")
@pytest.mark.parametrize("environment", [{}, {"FORCE_COLOR": "1"}])
def test_pipes_get_no_bars(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(console, "err", Console(stderr=True))
    train = succeed("train", "KarateClub", *QUICK)
    # Warnings about the few labels and epochs, and no bar above them.
    assert all("warning: " in line for line in train.err.splitlines())
    assert "warning: without labels to validate on" in train.err
    assert "\x1b" not in train.out
    assert "\r" not in train.out
    measured = succeed("evaluate", "KarateClub", "--jobs", "1", *QUICK)
    assert measured.err == ""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.usefixtures("no_page")
@pytest.mark.parametrize("wanted", [True, False])
def test_terminals_get_bars_in_colour_unless_refused(
    wanted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    if not wanted:
        monkeypatch.setenv("NO_COLOR", "1")
    screen = Terminal()
    monkeypatch.setattr(console, "err", Console(file=screen))
    succeed("train", "KarateClub", *QUICK)
    succeed("evaluate", "KarateClub", "--jobs", "1", *QUICK)
    shown = screen.getvalue()
    for text in ("pretrain", "finetune", "5/5", "loss", "vepm on KarateClub", "1/1"):
        assert text in shown
    assert bool(COLOUR.search(shown)) is wanted


ODD = "[red]\x1b[2J"


def test_bars_and_tables_show_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(console, "err", Console(file=screen, width=200))
    data, toys = write_nodes(tmp_path / ODD), write_toys(tmp_path / "toys")
    toy = (toys / "table-1.toml").read_text().replace('"GCN"', r'"[red]\u001b[2J"')
    (toys / "table-1.toml").write_text(toy)
    said = succeed("evaluate", data, "--jobs", "1", *QUICK).out
    said += succeed("tune", data, "--trials", "1", *QUICK).out
    only = ("--datasets", "planted", "--rows", "red", "--seeds", "1")
    said += succeed("reproduce", "table-1", *only, "--experiments", toys, "-o", tmp_path).out
    for text in (screen.getvalue(), said):
        assert "\x1b[2J" not in text
        assert "[red]\\x1b[2J" in text
    assert screen.getvalue().count("[red]") >= 3
