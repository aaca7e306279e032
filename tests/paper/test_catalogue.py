"""Every experiment of the paper: it loads, all its models can be built, its numbers are whole."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from paper.toys import NODES, write_toys
from vepm.baselines import BASELINES, baseline
from vepm.baselines.neural import NeuralBaseline
from vepm.errors import InputError
from vepm.paper.cells import Task
from vepm.paper.experiments import catalogue, read_experiment, task_of
from vepm.paper.plan import squares
from vepm.paper.studies import STUDIES
from vepm.training import ModelCard
from vepm.training.config import REMOVED

PAPER = Path(
    os.environ.get("VEPM_PAPER", Path(__file__).parents[3] / "shared" / "paper" / "numbers.json")
)
TABLES = [f"table-{k}" for k in range(1, 14)]
OWN = [
    "calibration",
    "communities",
    "hidden-relations",
    "interactions",
    "link-prediction",
    "nmi",
    "panel",
    "partition-nodes",
    "partition-use",
    "peers",
    "weights",
]
EVERYTHING = [*TABLES, *(f"figure-{k}" for k in range(2, 7)), *OWN]


def paper() -> dict[str, Any]:
    if not PAPER.is_file():
        pytest.skip(f"the paper's numbers are not here ({PAPER}); set VEPM_PAPER")
    found: dict[str, Any] = json.loads(PAPER.read_text())
    return found


def printed(value: Any) -> tuple[float | str | None, float | None]:
    return tuple(value) if isinstance(value, list) else (value, None)


def test_every_table_and_figure_is_there() -> None:
    assert list(catalogue()) == EVERYTHING
    assert all(e.title and e.description for e in catalogue().values())


@pytest.mark.parametrize("name", EVERYTHING)
def test_every_model_can_be_built(name: str) -> None:
    for quick in (False, True):
        tasks = {s.cells[0].task for s in squares(catalogue()[name], quick) if s.cells}
        assert tasks
        for task in tasks:
            build(task)


def build(task: Task) -> None:
    kind = task_of(task.dataset)
    if task.method in BASELINES:
        values = {k: tuple(v) if isinstance(v, list) else v for k, v in task.settings.items()}
        method = baseline(task.method, settings=values)
        assert method.task == kind
        if isinstance(method, NeuralBaseline):
            method.build(5, 3)
        return
    assert task.method == "vepm" or task.method in STUDIES
    with torch.device("meta"):
        ModelCard(kind, 5, task.config, ("a", "b", "c")).build()


@pytest.mark.parametrize("name", TABLES)
def test_paper_numbers_are_complete_and_right(name: str) -> None:
    experiment = catalogue()[name]
    start = name.replace("-", "_") + "_"
    table = next(value for key, value in paper().items() if key.startswith(start))
    assert [column.name for column in experiment.columns] == table["columns"]
    assert [row.name for row in experiment.rows] == [r["name"].rstrip("^") for r in table["rows"]]
    for row, expected in zip(experiment.rows, table["rows"], strict=True):
        assert list(row.paper) == table["columns"]
        for column in table["columns"]:
            found = row.paper[column]
            assert (found.value, found.spread) == printed(expected[column])


def test_nmi_is_the_papers() -> None:
    scalars = paper()["figures_and_scalars"]
    before, after = catalogue()["nmi"].rows[:2]
    assert before.paper["Cora"].value == scalars["nmi_cora_after_pretrain"]
    assert after.paper["Cora"].value == scalars["nmi_cora_after_finetune"]


def test_settings_of_scalable_training_are_the_papers() -> None:
    expected = paper()["figures_and_scalars"]["scalable"]["N_S"]
    row = catalogue()["table-7"].rows[1]
    assert row.settings == {"likelihood": "subsampled"}
    assert expected == REMOVED["training"]["subsample"]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (("seeds = 3", "sedes = 3"), "there is no 'sedes'; did you mean seeds"),
        (('method = "vepm"', 'method = "vepm"\ndropuot = 1'), "there is no 'dropuot'"),
        (("planted = [99.0, 1.0]", "plantd = 1.0"), "paper has other columns"),
        (('dataset = "Cora" }', 'dataset = "Cora", tau = 1 }'), "there is no 'tau'"),
        (("seeds = 3", "seeds = 1.5"), "seeds must be of type int"),
        (('name = "GCN"', 'name = "Other system"'), "of a name of its own"),
        (('method = "gcn"', 'method = "gcn"\ndataset = "Cora"'), "both row and column decide"),
        (('method = "gcn"\n', ""), "lacks a dataset or a method"),
        (("seeds = 3", "seeds = 1000000000000"), "seeds must be between 1 and 10000"),
        (('method = "gcn"', 'method = "gcn"\nmetric = "fame"'), "metric must be one of"),
        (('title = "Toy table"', 'figure = "pie"\ntitle = "Toy"'), "figure must be one of"),
        (('title = "Toy table"', ""), "title is missing"),
        (("seeds = 3", "seeds = "), "not a readable TOML"),
    ],
)
def test_mistakes_in_a_file_are_named(
    tmp_path: Path, change: tuple[str, str], complaint: str
) -> None:
    path = tmp_path / "table-1.toml"
    path.write_text(NODES.replace(*change, 1))
    with pytest.raises(InputError, match=complaint):
        read_experiment(path)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (('method = "gcn"', 'method = "gnc"'), "no method 'gnc'"),
        (("epochs = 3 }", "epohcs = 3 }"), "epohcs"),
        (('dataset = "Cora"', 'dataset = "Corra"'), "unknown dataset 'Corra'"),
        (('protocol = "public"', 'protocol = "secret"'), "no protocol 'secret'"),
    ],
)
def test_mistakes_in_settings_are_named(
    tmp_path: Path, change: tuple[str, str], complaint: str
) -> None:
    path = tmp_path / "table-1.toml"
    path.write_text(NODES.replace(*change, 1))
    with pytest.raises(InputError, match=complaint):
        squares(read_experiment(path))


def test_own_experiments_can_be_read(tmp_path: Path) -> None:
    assert list(catalogue(write_toys(tmp_path))) == ["table-1", "table-2"]
    with pytest.raises(InputError, match="has no experiments"):
        catalogue(tmp_path / "nowhere")
