"""Models that bring features to one scale themselves: in training, in files, in prediction."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from training.forging import forge
from training.toys import SMALL, toy
from vepm.data import Dataset, planted_graph
from vepm.errors import InputError
from vepm.training import Fitted, ModelCard, Run, fit, fit_many, load_model, preset, save_model

QUICK = preset("default", "node").replace(pretrain_epochs=20, epochs=20, num_samples=0)


def with_x(dataset: Dataset, x: torch.Tensor) -> Dataset:
    graph = dataset.graphs[0].clone()
    graph.x = x
    return replace(dataset, graphs=[graph])


def trained(dataset: Dataset, norm: str = "auto") -> Fitted:
    graph = dataset.graphs[0]
    rows = {
        "train_on": graph.train_mask.nonzero().flatten(),
        "validate_on": graph.val_mask.nonzero().flatten(),
        "watch": graph.test_mask.nonzero().flatten(),
    }
    return fit(dataset, QUICK.replace(feature_norm=norm), **rows, device="cpu")


@pytest.fixture(scope="module")
def plain() -> Dataset:
    return planted_graph(200, 4, num_features=32, seed=0)


@pytest.mark.parametrize("size", [1e-19, 1e-27, 3e19])
def test_features_of_any_size_train_as_well(plain: Dataset, size: float) -> None:
    reference = trained(plain).best["test_accuracy"]
    assert reference > 0.8
    sized = with_x(plain, size * plain.graphs[0].x)
    assert trained(sized).best["test_accuracy"] >= reference - 0.02
    assert trained(sized, "l2").best["test_accuracy"] < reference - 0.2


def test_a_saved_model_scales_as_in_training(plain: Dataset, tmp_path: Path) -> None:
    fitted = trained(with_x(plain, 1e6 + 1e5 * plain.graphs[0].x))
    path = tmp_path / "model.safetensors"
    save_model(path, fitted.model, fitted.card)
    _, card = load_model(path)
    assert card == fitted.card
    part = with_x(plain, 1e6 + 1e5 * plain.graphs[0].x)
    prepared = card.prepare(part)
    assert prepared.graphs[0].x.equal(fitted.card.prepare(part).graphs[0].x)
    assert prepared.graphs[0].x.std() < 1
    assert card.prepare(prepared) is prepared


@pytest.mark.parametrize("change", ["shape", "value", "missing"])
def test_forged_scales_are_refused(plain: Dataset, change: str, tmp_path: Path) -> None:
    card = ModelCard.of(plain, SMALL["node"].replace(feature_norm="standard"))
    path = tmp_path / "model.safetensors"
    save_model(path, card.build(), card)

    def forged(tensors: dict[str, torch.Tensor], header: object) -> None:
        factor = tensors.pop("scaling.factor")
        if change != "missing":
            tensors["scaling.factor"] = factor[1:] if change == "shape" else factor / 0

    forge(path, forged)
    with pytest.raises(InputError, match="scales of columns are missing, damaged or not finite"):
        load_model(path)


def test_few_columns_get_coordinates_and_many_do_not(plain: Dataset, tmp_path: Path) -> None:
    narrow = toy("node")
    config = SMALL["node"].replace(feature_norm="auto")
    card = ModelCard.of(narrow, config)
    assert (card.in_channels, card.width) == (6, 22)
    path = tmp_path / "model.safetensors"
    save_model(path, card.build(), card)
    _, loaded = load_model(path)
    assert loaded.prepare(narrow).graphs[0].x.equal(card.prepare(narrow).graphs[0].x)
    for dataset, norm in [(narrow, "standard"), (narrow, "l2"), (plain, "auto")]:
        found = ModelCard.of(dataset, config.replace(feature_norm=norm))
        assert found.added_positions == 0


def test_another_graph_is_refused_where_coordinates_were_added() -> None:
    narrow, other = (planted_graph(60, 3, num_features=6, seed=seed) for seed in (0, 1))
    card = ModelCard.of(narrow, SMALL["node"].replace(feature_norm="auto"))
    with pytest.raises(InputError, match="feature_norm = standard"):
        card.prepare(other)
    free = ModelCard.of(narrow, SMALL["node"].replace(feature_norm="standard"))
    assert free.prepare(other).num_features == 6


@pytest.mark.parametrize("task", ["node", "graph"])
def test_many_runs_at_once_see_the_same_features(task: str) -> None:
    config = SMALL[task].replace(feature_norm="auto", pretrain_epochs=1, epochs=1)
    dataset, train, val = toy(task), torch.arange(8), torch.arange(8, 11)
    runs = [Run(train, val, None, seed) for seed in (0, 1)]
    for run, many in zip(runs, fit_many(dataset, config, runs, "cpu"), strict=True):
        alone = fit(dataset, config, train_on=train, validate_on=val, seed=run.seed, device="cpu")
        assert many.card == alone.card
        x, expected = many.source.x, alone.source.x
        assert isinstance(x, torch.Tensor)
        assert isinstance(expected, torch.Tensor)
        assert x.equal(expected)
        assert not x.equal(dataset.features)
