"""Raw files of a user's own do as well as any preparation by hand, and the same from Python."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from people import NUM_PEOPLE, write_people
from vepm.cli.jobs import roles, settings
from vepm.cli.options import Given
from vepm.data import Dataset, read
from vepm.data.canonical import positions
from vepm.estimators import NodeClassifier
from vepm.training import Config, fit, preset, scores

QUICK = preset("default", "node").replace(pretrain_epochs=60, epochs=60)
SEEDS = range(2)


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Tensor]:
    folder = tmp_path_factory.mktemp("own") / "people"
    return folder, write_people(folder)


def accuracy(dataset: Dataset, teams: Tensor, config: Config) -> float:
    """Mean accuracy over seeds on everybody whose label was neither learned nor validated on."""
    parts = roles(dataset)
    unseen = torch.ones(NUM_PEOPLE, dtype=torch.bool)
    unseen[torch.cat([parts["train"], parts["val"]])] = False
    right = []
    for seed in SEEDS:
        fitted = fit(
            dataset,
            config,
            train_on=parts["train"],
            validate_on=parts["val"],
            seed=seed,
            device="cpu",
        )
        found = scores(fitted.model, fitted.source).argmax(1)
        right.append(float((found == teams)[unseen].float().mean()))
    return sum(right) / len(right)


def by_hand(dataset: Dataset, *, coordinates: bool) -> Dataset:
    graph = dataset.graphs[0].clone()
    graph.x = (graph.x - graph.x.mean(0)) / graph.x.std(0)
    if coordinates:
        graph.x = torch.cat([graph.x, positions(graph.edge_index, NUM_PEOPLE)], dim=1)
    return replace(dataset, graphs=[graph], feature_names=None)


def test_raw_columns_do_as_well_as_any_preparation_by_hand(people: tuple[Path, Tensor]) -> None:
    folder, teams = people
    dataset = read(folder)
    assert dataset.feature_names is not None
    assert len(dataset.feature_names) == 6
    found = accuracy(dataset, teams, QUICK)
    by_rows = QUICK.replace(feature_norm="l2")
    prepared = accuracy(by_hand(dataset, coordinates=True), teams, by_rows)
    columns_alone = accuracy(by_hand(dataset, coordinates=False), teams, by_rows)
    assert found >= max(prepared, columns_alone) - 0.02
    # Coordinates are what makes the difference, which is why few columns get them.
    assert prepared > columns_alone + 0.05
    assert accuracy(dataset, teams, by_rows) < found - 0.3


def test_the_same_settings_from_python_and_the_command_line(people: tuple[Path, Tensor]) -> None:
    dataset = replace(read(people[0]), name="Cora")
    assert NodeClassifier().settings() == settings(dataset, Given())
    assert settings(dataset, Given(preset="tuned")) != preset("tuned", "node")
