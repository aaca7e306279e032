"""The command: lists, selects, survives SIGKILL, says what is missing."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cli.running import Outcome, vepm
from paper.toys import write_long, write_toys
from vepm.paper.experiments import catalogue, slug
from vepm.paper.plan import squares
from vepm.training import Config, preset

COMMAND = [sys.executable, "-m", "vepm", "reproduce"]
SPAWNED = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "120"}


def reproduce(*options: str | Path) -> Outcome:
    return vepm("reproduce", *options, "--device", "cpu")


def mtimes(folder: Path) -> dict[Path, int]:
    found = folder.rglob("cells/**/*.json")
    return {path.relative_to(folder): path.stat().st_mtime_ns for path in found}


def tables(folder: Path) -> dict[str, str]:
    return {p.name: p.read_text() for p in sorted((folder / "table-1").glob("table.*"))}


def test_list_names_everything() -> None:
    found = reproduce("--list")
    assert found.code == 0
    for name, experiment in catalogue().items():
        assert name in found.out
        assert experiment.title.split(":")[0] in found.out


def test_list_shows_any_title(tmp_path: Path) -> None:
    title = 'title = "[/red] \\u001b[2J"'
    toys = write_toys(tmp_path)
    text = (toys / "table-1.toml").read_text().replace('title = "Toy table"', title)
    (toys / "table-1.toml").write_text(text)
    found = reproduce("--list", "--experiments", toys)
    assert found.code == 0, found.err
    assert r"[/red] \x1b[2J" in found.out


def test_quick_runs_have_a_folder_of_their_own(tmp_path: Path) -> None:
    toys = write_toys(tmp_path / "toys")
    for folder in ("table-1", "quick/table-1"):
        (tmp_path / "out" / folder).mkdir(parents=True)
        (tmp_path / "out" / folder / "table.md").write_text("mine")
    words = ("table-1", "--experiments", toys, "-o", tmp_path / "out", "--jobs", "1")
    for options, folder in (((), "out/table-1"), (("--quick",), "out/quick/table-1")):
        found = reproduce(*words, *options)
        assert found.code == 2
        assert f"{folder}: holds table.md" in found.err


def test_mistakes_take_one_line_and_code_2(tmp_path: Path) -> None:
    for options, complaint in [
        ((), "--list names them"),
        (("tabel-1",), "did you mean table-1"),
        (("table-1", "--rows", "GIN"), "no row 'GIN'"),
        (("table-1", "--datasets", "Corra"), "no dataset 'Corra'"),
        (("table-1", "--preset", "best"), "no preset 'best'; there are paper"),
    ]:
        found = reproduce(*options, "-o", tmp_path)
        assert found.code == 2
        assert complaint in found.err
        assert "Traceback" not in found.err


def test_without_data_it_says_what_is_missing(tmp_path: Path) -> None:
    found = reproduce(
        "table-1", "--datasets", "Cora", "--data-dir", tmp_path / "data", "-o", tmp_path
    )
    assert found.code == 2
    assert "n/a (data not here)" in found.out
    assert "ind.cora.x" in found.err
    assert "VEPM_DATA" in found.err


def test_selection_runs_and_shows_a_part(tmp_path: Path) -> None:
    options = ("--experiments", write_toys(tmp_path / "toys"), "-o", tmp_path, "--jobs", "1")
    found = reproduce("table-1", "--datasets", "planted", "--rows", "GCN", "--seeds", "2", *options)
    assert found.code == 0, found.err
    assert "2 cells computed" in found.out
    assert "Cora here" not in found.out
    assert "VEPM (toy)" not in found.out
    assert r"\[2 of 3 runs\]" in (tmp_path / "table-1/table.md").read_text()
    assert "VEPM (toy)" in (tmp_path / "table-1/table.md").read_text()
    quick = reproduce("table-1", "--datasets", "planted", "--quick", *options)
    assert "2 cells computed" in quick.out
    assert "QUICK" in quick.out
    assert (tmp_path / "quick/table-1/table.md").exists()
    assert len(mtimes(tmp_path / "quick")) == 2
    again = reproduce("table-2", "--rows", "again", *options, "--seeds", "2")
    assert "0 cells computed, 2 found" in again.out


def test_rows_of_the_paper_and_of_the_released_code_beside_ours(tmp_path: Path) -> None:
    toys = write_toys(tmp_path / "toys")
    options = ("--experiments", toys, "-o", tmp_path, "--jobs", "1", "--seeds", "1")
    words = ("table-1", "--datasets", "planted", "--rows", "VEPM", *options)
    assert "1 cells computed" in reproduce(*words).out
    assert "as in the" not in (tmp_path / "table-1/table.md").read_text()
    found = reproduce(*words, "--preset", "paper", "--preset", "released")
    assert found.code == 0, found.err
    assert "2 cells computed" in found.out
    text = (tmp_path / "table-1/table.md").read_text()
    rows = [
        "VEPM (toy), as in the paper",
        "VEPM (toy), as in the released code",
        "VEPM (toy), ours",
    ]
    assert [line.split(" | ")[0].removeprefix("| ") for line in text.splitlines()[8:11]] == rows
    assert text.count("paper 99.0 ± 1.0") == 3
    for name, row in (("paper", rows[0]), ("released", rows[1]), ("tuned", "VEPM (toy)")):
        (path,) = (tmp_path / "table-1/cells" / slug(row)).rglob("*.json")
        body = json.loads(path.read_text())
        assert body["preset"] == name
        config = preset(name, "node").replace(epochs=3, pretrain_epochs=2)
        assert Config.from_dict(body["task"]["settings"]) == config
    # Once run, they stay in the table, whatever is asked for.
    assert "0 cells computed, 1 found" in reproduce(*words).out
    assert text == (tmp_path / "table-1/table.md").read_text()


def test_cells_of_another_commit_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ("--experiments", write_toys(tmp_path / "toys"), "-o", tmp_path, "--jobs", "1")
    words = ("table-1", "--datasets", "planted", "--rows", "GCN", *options)
    monkeypatch.setenv("VEPM_COMMIT", "0123456789abcdef")
    assert reproduce(*words, "--seeds", "2").code == 0
    for path in mtimes(tmp_path):
        assert json.loads((tmp_path / path).read_text())["commit"] == "0123456789abcdef"
    monkeypatch.setenv("VEPM_COMMIT", "fedcba9876543210")
    found = reproduce(*words)
    assert "Commits: 0123456789ab (2 runs), fedcba987654 (1 run)." in found.out


def test_killed_runs_go_on_where_they_were(tmp_path: Path) -> None:
    toys = write_long(tmp_path / "toys")
    options = ("table-1", "--datasets", "planted", "--experiments", toys)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    process = subprocess.Popen(
        [*COMMAND, *map(str, options), "-o", str(killed), "--jobs", "2"],
        env=SPAWNED,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + 120
    while len(mtimes(killed)) < 3 and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    before = mtimes(killed)
    total = sum(
        len(square.cells)
        for square in squares(catalogue(toys)["table-1"])
        if square.dataset == "planted"
    )
    assert 3 <= len(before) < total
    for path in before:
        json.loads((killed / path).read_text())
    assert reproduce(*options, "-o", killed, "--jobs", "1").code == 0
    after = mtimes(killed)
    assert len(after) == total
    assert {path: after[path] for path in before} == before
    assert reproduce(*options, "-o", whole, "--jobs", "1").code == 0
    assert tables(killed) == tables(whole)


def test_torchrun_shares_the_cells(tmp_path: Path) -> None:
    toys = write_toys(tmp_path / "toys")
    options = ["table-1", "--datasets", "planted", "--experiments", str(toys), "-o", str(tmp_path)]
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    found = subprocess.run(
        [sys.executable, *launch, "-m", "vepm", "reproduce", *options, "--device", "cpu"],
        capture_output=True,
        text=True,
        env=SPAWNED,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    assert "6 cells computed" in found.stdout
    assert found.stdout.count("Rule validation") == 1
    assert len(mtimes(tmp_path)) == 6


# Graphs of hundreds of thousands of edges take minutes even for one epoch of every row.
SMALLER = {
    "relations": {"acm": "factors-4", "imdb": "factors-4"},
    "panel": {"facebook-pages": "uat", "tolokers": "uat", "dblp-full": "uat"},
}


def linked_data(root: Path) -> Path:
    """Links to the real data, so that nothing is written beside them, small sets for large ones."""
    root.mkdir()
    for folder in Path(os.environ["VEPM_DATA"]).iterdir():
        if folder.name not in SMALLER:
            (root / folder.name).symlink_to(folder)
            continue
        (root / folder.name).mkdir()
        for path in folder.iterdir():
            source = SMALLER[folder.name].get(path.stem, path.stem)
            (root / folder.name / path.name).symlink_to(folder / f"{source}{path.suffix}")
    return root


@pytest.mark.skipif("VEPM_DATA" not in os.environ, reason="VEPM_DATA names no real data")
def test_everything_quick_on_real_data(tmp_path: Path) -> None:
    root = linked_data(tmp_path / "data")
    found = reproduce("--all", "--quick", "-o", tmp_path, "--data-dir", root)
    assert found.code == 0, found.err
    for name, experiment in catalogue().items():
        folder = tmp_path / "quick" / name
        text = (folder / "table.md").read_text()
        assert all(row.name in text for row in experiment.rows)
        assert all(column.name in text for column in experiment.columns)
        assert {path.suffix for path in folder.glob("table.*")} == {".md", ".csv"}
        assert "not run" not in text
        assert "failed" not in text
        if experiment.figure:
            drawn = {path.suffix for path in folder.glob("figure-*")}
            assert drawn == {".svg"}
    assert len(list((tmp_path / "quick/figure-4").glob("*.svg"))) == 4
