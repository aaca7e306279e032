"""A run that failed says so: in Python, in the terminal, in metrics.json and on its page."""

import json
from pathlib import Path

import pytest

from cli.running import refused, succeed
from people import write_people
from vepm.data import read
from vepm.errors import TrainingWarning
from vepm.estimators import NodeClassifier
from vepm.report import write_report
from vepm.training import preset

LARGE_NUMBERS = preset("tuned", "node").replace(pretrain_epochs=2, epochs=2)
"""Settings that leave an income nothing beside it, as features are not brought to one scale."""


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own") / "people"
    write_people(folder)
    return folder


def test_a_failed_run_is_announced_everywhere(people: Path) -> None:
    short = ("--set", "epochs=2", "--set", "pretrain_epochs=2", "--device", "cpu")
    outcome = succeed("train", people, "--preset", "tuned", "-o", "run", *short, "--json")
    found = json.loads(outcome.out)["warnings"]
    assert found
    assert found == json.loads(Path("run", "metrics.json").read_text())["warnings"]
    assert any('try feature_norm = "auto"' in line for line in found)
    for line in found:
        assert f"warning: {line}" in outcome.err.splitlines()
    page = Path("run", "report.html").read_text()
    assert page.count('role="alert"') == len(found)
    assert "label propagation" in page


def test_warnings_of_strangers_are_escaped_on_the_page(pets_run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    for file in pets_run.iterdir():
        if file.is_file():
            (folder / file.name).write_bytes(file.read_bytes())
    metrics = json.loads((folder / "metrics.json").read_text())
    forged = {"warnings": ["<script>alert(1)</script>"]}
    (folder / "metrics.json").write_text(json.dumps(metrics | forged))
    assert "<script>alert(1)" not in write_report(folder).read_text()
    for wrong in ("no list", [{"a": 1}]):
        (folder / "metrics.json").write_text(json.dumps(metrics | {"warnings": wrong}))
        assert f"warnings is {wrong!r}" in refused("report", folder)


def test_python_warns(people: Path) -> None:
    with pytest.warns(TrainingWarning, match="label propagation") as found:
        NodeClassifier(config=LARGE_NUMBERS, device="cpu").fit(read(people))
    assert found[0].filename == __file__
