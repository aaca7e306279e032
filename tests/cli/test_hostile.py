"""Files and models from strangers: each is harmless."""

import json
import pickle
import re
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli.running import QUICK, names_in, read_rows, refused, succeed, vepm
from cli.writing import write_nodes, write_table
from paper.toys import NODES
from training.forging import Bomb
from vepm.errors import InputError
from vepm.paper.experiments import read_experiment

SCRIPT = "<script>alert(1)</script>"
FORMULA = '=HYPERLINK("http://x";"y")'
CLEAR_SCREEN = "\x1b[2J"


def renamed(folder: Path, names: dict[str, str]) -> Path:
    """Pets whose nodes and labels go by other names."""
    write_nodes(folder)
    for table in ("nodes.csv", "edges.csv"):
        lines = (folder / table).read_text().splitlines()
        rows = [[names.get(cell, cell) for cell in line.split(",")] for line in lines]
        quoted = [[f'"{cell.replace(chr(34), chr(34) * 2)}"' for cell in row] for row in rows]
        write_table(folder / table, ",".join(quoted[0]), quoted[1:])
    return folder


def test_scripts_in_names_and_labels_are_text_on_the_page(tmp_path: Path) -> None:
    data = renamed(tmp_path / "data", {"n1": SCRIPT, "n2": "</script><img src=x>", "cat": SCRIPT})
    succeed("train", data, "-o", "run", *QUICK)
    page = Path("run/report.html").read_text()
    assert "alert(1)" in page
    assert SCRIPT not in page
    assert "<img src=x" not in page
    for drawing in Path("run/figures").glob("*.svg"):
        assert SCRIPT not in drawing.read_text()


@pytest.mark.usefixtures("no_page")
def test_formulas_in_names_are_text_in_tables(tmp_path: Path) -> None:
    data = renamed(tmp_path / "data", {"n1": FORMULA, "cat": "@cmd", "f0": "=f0"})
    succeed("train", data, "-o", "run", *QUICK)
    succeed("predict", "run", data, "-o", "predictions.csv")
    rows = read_rows(Path("predictions.csv"))
    assert rows[1]["id"] == "'" + FORMULA
    assert {row["prediction"] for row in rows} <= {"'@cmd", "dog"}
    succeed("communities", data, "-o", "found", *QUICK)
    ids = [row["id"] for row in read_rows(Path("found/memberships.csv"))]
    ends = [row[end] for row in read_rows(Path("found/edges.csv")) for end in ("source", "target")]
    assert not any(name.startswith("=") for name in ids + ends)


def test_control_characters_do_not_reach_the_terminal(pets_run: Path, tmp_path: Path) -> None:
    data = renamed(tmp_path / "data", {"cat": CLEAR_SCREEN, "n1": "\u202eevil"})
    line = refused("predict", pets_run, data)
    assert "\\x1b[2J" in line
    assert line.rstrip("\n").isprintable()
    write_table(data / "edges.csv", "source,target", [(CLEAR_SCREEN, "n2")])
    assert refused("train", data, *QUICK).rstrip("\n").isprintable()


def test_messages_about_data_are_printable(tmp_path: Path) -> None:
    data = write_nodes(tmp_path / f"pets{CLEAR_SCREEN}")
    with (data / "edges.csv").open("a") as file:
        file.write("n0,n0\n")
    outcome = succeed("communities", data, "-o", "found", *QUICK)
    assert "removed 1 self-loop" in outcome.err
    assert "\x1b" not in outcome.err + outcome.out


@pytest.mark.parametrize("name", ["model.safetensors", "outputs.safetensors"])
def test_a_pickle_is_not_run_whatever_its_name(name: str, pets: Path, pets_run: Path) -> None:
    shutil.copytree(pets_run, "run")
    Path("run", name).write_bytes(pickle.dumps(Bomb()))
    line = refused("predict", "run", pets) if "model" in name else refused("report", "run")
    assert "not a whole safetensors file" in line


@pytest.mark.parametrize("claim", [10 * 2**30, 2**63])
@pytest.mark.parametrize("name", ["model.safetensors", "outputs.safetensors"])
def test_a_header_that_claims_gigabytes(name: str, claim: int, pets: Path, pets_run: Path) -> None:
    shutil.copytree(pets_run, "run")
    Path("run", name).write_bytes(struct.pack("<Q", claim) + b'{"x":')
    line = refused("predict", "run", pets) if "model" in name else refused("report", "run")
    assert "not a whole safetensors file" in line


def test_tensors_that_claim_gigabytes(pets: Path, pets_run: Path) -> None:
    shutil.copytree(pets_run, "run")
    size = 10 * 2**30
    header = json.dumps({"x": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    Path("run/model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    assert "not a whole safetensors file" in refused("predict", "run", pets)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_classes", 65_000),
        ("num_classes", 10**12),
        ("num_classes", "many"),
        ("task", ["node"]),
    ],
)
def test_metrics_that_claim_too_much(key: str, value: Any, pets_run: Path) -> None:
    shutil.copytree(pets_run, "run")
    path = Path("run/metrics.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    assert "metrics.json" in refused("report", "run")


def test_lack_of_memory_takes_one_line(pets_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def too_much(*_: object) -> None:
        np.zeros(2**50)

    monkeypatch.setattr("vepm.report.page.plan_drawings", too_much)
    shutil.copytree(pets_run, "run")
    found = vepm("report", "run")
    assert found.code == 1
    assert re.fullmatch("error: not enough memory; Unable to allocate .*\n", found.err)


@pytest.mark.parametrize("name", ["..", "../../escaped", "."])
def test_rows_of_an_experiment_stay_in_its_folder(name: str, tmp_path: Path) -> None:
    path = tmp_path / "table-1.toml"
    path.write_text(NODES.replace('name = "GCN"', f'name = "{name}"'))
    if name == "../../escaped":
        assert read_experiment(path).rows[0].name == name
        succeed("reproduce", "table-1", "--experiments", tmp_path, "--quick", "-o", "out/results",
                "--rows", "escaped", "--jobs", "1")  # fmt: skip
        assert names_in(Path("out")) == {"results"}
        assert names_in(Path("out/results/quick/table-1/cells")) == {"escaped"}
    else:
        with pytest.raises(InputError, match="a name of its own"):
            read_experiment(path)


def test_experiments_are_named_after_plain_files(tmp_path: Path) -> None:
    (tmp_path / "...toml").write_text(NODES)
    line = refused("reproduce", "--list", "--experiments", tmp_path)
    assert "use letters and digits" in line
