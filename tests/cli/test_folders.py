"""Folders to write to: nothing of the user's is lost, and links lead nowhere."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli.running import QUICK, names_in, read_json, refused, succeed, vepm
from cli.writing import write_nodes
from paper.toys import write_toys
from vepm.cli.folders import MARKER
from vepm.errors import InputError
from vepm.report import write_report

pytestmark = pytest.mark.usefixtures("no_page")

COMMANDS = ("train", "communities", "tune")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("overwrite", [(), ("--overwrite",)])
@pytest.mark.parametrize("command", COMMANDS)
def test_the_input_is_never_written_to(command: str, overwrite: tuple[str, ...]) -> None:
    data = write_nodes(Path("data"))
    before = contents(data)
    for output in ("data", "data/../data/"):
        line = refused(command, data, "-o", output, *overwrite, *QUICK)
        assert "holds the input data, which would be lost" in line
    Path("link").symlink_to(data)
    assert "would be lost" in refused(command, "link", "-o", "data", *overwrite, *QUICK)
    assert contents(data) == before


def test_a_run_is_not_replaced_by_what_it_feeds(pets: Path) -> None:
    succeed("communities", pets, "-o", "run", *QUICK)
    before = contents(Path("run"))
    again = ("-o", "run", "--overwrite", *QUICK)
    assert "holds the input run/edges.csv" in vepm("communities", "run/edges.csv", *again).err
    Path("data").mkdir()
    Path("data/edges.csv").symlink_to(Path("run/edges.csv").resolve())
    assert "holds the input data/edges.csv" in vepm("communities", "./data", *again).err
    assert "run/config.toml" in refused("train", pets, "--config", "run/config.toml", *again)
    assert contents(Path("run")) == before


def test_a_run_may_lie_below_its_input() -> None:
    data = write_nodes(Path("data"))
    before = contents(data)
    succeed("train", data, "-o", "data/run", *QUICK)
    succeed("train", data, "-o", "data/run", "--overwrite", *QUICK)
    assert {name: contents(data)[name] for name in before} == before


@pytest.mark.parametrize(
    "name",
    [
        *("config.toml", "edges.csv", "figures/plot.png"),
        *("metrics.json", "model.safetensors", "best.toml", "notes.txt", ".hidden"),
        *("trials.jsonl", "trials.db", "checkpoint.safetensors", "cells/a/b/0.json"),
    ],
)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_folder_of_others_is_left_alone(command: str, name: str, pets: Path) -> None:
    Path("mine", name).parent.mkdir(parents=True)
    Path("mine", name).write_text("mine")
    for overwrite in ((), ("--overwrite",)):
        line = refused(command, pets, "-o", "mine", *overwrite, *QUICK)
        assert f"mine: holds {Path(name).parts[0]} and is not the folder of a" in line
        assert "choose an empty or new one with --output" in line
    assert contents(Path("mine")) == {name: b"mine"}
    assert names_in(Path("mine")) == {Path(name).parts[0]}


def test_experiments_leave_folders_of_others_alone(tmp_path: Path) -> None:
    toys = write_toys(tmp_path / "toys")
    Path("out/table-1").mkdir(parents=True)
    Path("out/table-1/table.md").write_text("mine")
    words = ("reproduce", "table-1", "--experiments", toys, "--data-dir", tmp_path, "-o", "out")
    assert "out/table-1: holds table.md" in refused(*words, "--jobs", "1")
    assert contents(Path("out")) == {"table-1/table.md": b"mine"}


def test_a_name_that_is_not_utf8_is_refused_before_any_work(pets: Path) -> None:
    for command in COMMANDS:
        line = refused(command, pets, "-o", os.fsdecode(b"run\xff"), *QUICK)
        assert "run\\udcff: the name is not UTF-8" in line
    assert names_in(Path()) == set()


def test_data_may_have_names_that_are_not_utf8(pets_run: Path) -> None:
    data = write_nodes(Path(os.fsdecode(b"pets\xff")))
    assert "the name is not UTF-8; choose another with --output" in refused("train", data, *QUICK)
    succeed("train", data, "-o", "run", *QUICK)
    assert read_json(Path("run/metrics.json"))["dataset"] == "pets\\udcff"
    assert "pets\\udcff" in write_report("run").read_text(encoding="utf-8")
    succeed("communities", data, "-o", "found", *QUICK)
    printed = succeed("evaluate", data, "--jobs", "1", "--json", *QUICK).out
    assert json.loads(printed)["dataset"] == "pets\\udcff"
    table = os.fsdecode(b"\xff.csv")
    succeed("predict", pets_run, data, "-o", table)
    assert Path(table).exists()


def test_a_page_of_names_that_are_not_utf8(pets_run: Path) -> None:
    shutil.copytree(pets_run, "run")
    metrics = read_json(Path("run/metrics.json"))
    odd: dict[str, Any] = dict.fromkeys(
        ("dataset", "rule", "command", "source", "device"), "x\ud800"
    )
    odd |= {"class_names": ["a\udcff", "b\ud800"], "baselines": {"g\ud800": {"test_accuracy": 0.5}}}
    Path("run/metrics.json").write_text(json.dumps(metrics | odd))
    succeed("report", "run")
    assert "x\\ud800" in Path("run/report.html").read_text(encoding="utf-8")


def test_one_kind_of_folder_is_not_used_for_another(pets: Path) -> None:
    succeed("train", pets, "-o", "run", *QUICK)
    assert "is not the folder of a search" in refused(
        "tune", pets, "-o", "run", "--overwrite", *QUICK
    )


def interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_a_run_stopped_while_it_replaces_another_stays_ours(
    pets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("communities", pets, "-o", "run", *QUICK)
    succeed(*words)
    Path("run/notes.txt").write_text("mine")
    with monkeypatch.context() as patch:
        patch.setattr("vepm.training.fit_many", interrupt)
        assert vepm(*words, "--overwrite").code == 130
    assert names_in(Path("run")) == {"notes.txt"}
    succeed(*words)
    assert Path("run/notes.txt").read_text() == "mine"


def test_what_a_killed_run_had_not_removed_goes(pets: Path) -> None:
    succeed("communities", pets, "-o", "run", *QUICK)
    Path("run/metrics.json").unlink()
    succeed("train", pets, "-o", "run", *QUICK)
    assert not Path("run/memberships.csv").exists()


def test_a_marker_that_is_a_link_is_not_followed(pets: Path, pets_run: Path) -> None:
    shutil.copytree(pets_run, "run")
    Path("precious").write_bytes(b"vepm run\n")
    Path("run", MARKER).unlink()
    Path("run", MARKER).symlink_to("../precious")
    assert "is a link" in refused("report", "run")
    assert "is not the folder of a run" in refused(
        "train", pets, "-o", "run", "--overwrite", *QUICK
    )
    assert Path("precious").read_bytes() == b"vepm run\n"
    assert Path("run", MARKER).is_symlink()


def test_a_folder_without_a_marker_is_not_marked_by_its_page(pets: Path, pets_run: Path) -> None:
    shutil.copytree(pets_run, "run")
    Path("run", MARKER).unlink()
    succeed("report", "run")
    assert not Path("run", MARKER).exists()
    assert "is not the folder of a run" in refused(
        "train", pets, "-o", "run", "--overwrite", *QUICK
    )


@pytest.mark.parametrize("name", ["figures", "cells", "cells/gcn"])
def test_folders_that_are_links_are_not_written_through(
    name: str, pets: Path, pets_run: Path
) -> None:
    shutil.copytree(pets_run, "run")
    Path("elsewhere").mkdir()
    for outside in ("adjacency.svg", ".a.01234567.half"):
        Path("elsewhere", outside).write_text("mine")
    Path("run", name).parent.mkdir(exist_ok=True)
    Path("run", name).symlink_to(Path("elsewhere").resolve())
    before = contents(Path("elsewhere"))
    for words in (("report", "run"), ("train", pets, "-o", "run", "--overwrite", *QUICK)):
        assert f"run/{name}: is a link" in refused(*words)
    assert contents(Path("elsewhere")) == before


def test_pages_are_not_drawn_through_links(pets_run: Path) -> None:
    shutil.copytree(pets_run, "run")
    Path("elsewhere").mkdir()
    Path("run/figures").symlink_to(Path("elsewhere").resolve())
    with pytest.raises(InputError, match="run/figures: is a link"):
        write_report("run")
    assert names_in(Path("elsewhere")) == set()


@pytest.mark.parametrize("make", [Path.touch, None])
def test_trials_are_not_kept_through_links(make: Callable[[Path], None] | None, pets: Path) -> None:
    if make is not None:
        make(Path("other.jsonl"))
    Path("tuned").mkdir()
    Path("tuned", MARKER).write_text("vepm search\n")
    Path("tuned/trials.jsonl").symlink_to(Path("other.jsonl").resolve())
    assert "trials.jsonl: is a link" in refused("tune", pets, "-o", "tuned", *QUICK)
    assert make is None or Path("other.jsonl").stat().st_size == 0
    assert Path("other.jsonl").exists() == (make is not None)
