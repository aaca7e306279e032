"""Several runs on one page."""

from pathlib import Path

import numpy as np
import pytest

from cli.running import refused, succeed
from vepm.errors import InputError
from vepm.report import read_run, write_comparison
from vepm.report.summary import headline

from .reading import Page
from .writing import change, rewrite_metrics, write_graph_run, write_node_run


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path]:
    return write_node_run(tmp_path / "one", nodes=60), write_node_run(tmp_path / "two", nodes=60)


def test_command_compares_runs(runs: tuple[Path, Path], tmp_path: Path) -> None:
    page = tmp_path / "side-by-side.html"
    succeed("report", *runs, "-o", page)
    text = " ".join(Page(page).text.split())
    assert "All settings are the same." in text
    assert "one and two agree on 100.0 %." in text
    assert "is no larger than chance (p = 1, sign test" in text


def test_output_must_not_be_part_of_a_run(runs: tuple[Path, Path]) -> None:
    before = (runs[0] / "config.toml").read_bytes()
    assert "is an input" in refused("report", *runs, "-o", runs[0] / "config.toml")
    assert (runs[0] / "config.toml").read_bytes() == before


def test_numbers_of_each_run(runs: tuple[Path, Path], tmp_path: Path) -> None:
    rewrite_metrics(runs[1], test_accuracy=0.5, seconds=1234.56, seed=77)
    low, high = headline(read_run(runs[1]))["interval"]
    text = write_comparison(runs, tmp_path / "page.html").read_text()
    interval = f"{100 * low:.1f} to {100 * high:.1f} %"
    assert f"<td>77</td><td>50.0 %</td><td>{interval}</td>" in text
    assert "<td>1,234.6</td>" in text


def test_a_clear_winner_is_more_than_chance(runs: tuple[Path, Path], tmp_path: Path) -> None:
    change(runs[1], prediction=np.zeros(60, dtype=np.int64))
    text = Page(write_comparison(runs, tmp_path / "page.html")).text
    assert "is larger than chance (p =" in text


def test_runs_of_different_data_are_told_apart(runs: tuple[Path, Path], tmp_path: Path) -> None:
    rewrite_metrics(runs[1], dataset="another")
    page = Page(write_comparison(runs, tmp_path / "page.html"))
    assert "different data" in page.text
    other = write_graph_run(tmp_path / "graphs")
    assert "different data" in Page(write_comparison([runs[0], other], tmp_path / "page.html")).text


def test_one_run_is_no_comparison(runs: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="at least two"):
        write_comparison(runs[:1], tmp_path / "page.html")
