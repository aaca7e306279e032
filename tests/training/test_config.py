"""Settings in and out of TOML, and what is said about those that cannot be right."""

import contextlib
import dataclasses
import itertools
import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from strategies import quick
from training.toys import SMALL, predictions, run
from vepm.data import datasets
from vepm.errors import InputError
from vepm.nn.convolution import CommunityNorm
from vepm.training import PRESETS, Config, ModelCard, preset
from vepm.training.config import FIELDS, LARGEST, tuned_for


def values(name: str) -> st.SearchStrategy[Any]:
    """Valid values of a setting."""
    field = FIELDS[name]
    bounds = field.metadata["bounds"]
    low, high, above, below = map(bounds.get, ("low", "high", "above", "below"))
    if field.type is str:
        return st.sampled_from(field.metadata["choices"])
    if field.type is bool:
        return st.booleans()
    if field.type is int:
        return st.integers(low, high or LARGEST)
    return st.floats(
        low if above is None else above,
        high if below is None else below,
        exclude_min=above is not None,
        exclude_max=below is not None,
        allow_infinity=False,
    )


configs = st.fixed_dictionaries({}, optional={name: values(name) for name in FIELDS}).map(
    lambda changes: Config().replace(**changes)
)


@quick
@given(configs)
def test_settings_survive_toml_and_dictionaries(config: Config) -> None:
    assert Config.from_toml(config.to_toml()) == config
    assert Config.from_dict(config.to_dict()) == config


@quick
@given(configs, configs)
def test_complete_settings_replace_all_others(first: Config, second: Config) -> None:
    assert first.updated(second.to_dict()) == second


@quick
@given(configs)
def test_what_is_left_out_keeps_its_value(config: Config) -> None:
    assert config.updated({}) == config
    assert config.updated({"model": {"dropout": 0.25}}) == config.replace(dropout=0.25)


def test_whole_numbers_serve_as_real_ones() -> None:
    assert Config.from_toml("[model]\ntemperature = 2").model.temperature == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[model]\nnum_comunities = 4", "num_communities"),
        ("[training]\nlearning_rte = 0.1", "learning_rate"),
        ("[training]\nzzzz = 1", "there is no 'zzzz'"),
        ("[training]\ndropout = 0.1", r"dropout belongs in another section than \[training\]"),
        ("[model]\nepochs = 3", r"epochs belongs in another section than \[model\]"),
        ("[modle]\nnum_communities = 4", "modle"),
        ("dropout = 0.1", "dropout"),
        ("model = 3", "model"),
        ("[model]\ndropout = nan", "dropout"),
        ("[training]\nkl_weight = nan", "kl_weight"),
        ("[training]\nkl_weight = inf", "kl_weight"),
        ("[training]\nkl_weight = 1e300", "kl_weight must be between 0 and 1e"),
        ("[training]\nlearning_rate = 0", "learning_rate must be between 1e-30 and 1e"),
        ("[training]\nlearning_rate = 1e38", "learning_rate must be between"),
        ("[model]\ntemperature = 1e-300", "temperature must be between"),
        ("[training]\nepochs = 3.0", "epochs must be of type int"),
        ("[training]\nepochs = true", "epochs must be of type int"),
        ("[training]\nsampling = 1", "sampling must be of type bool"),
        ("[training]\nepochs = [1]", "epochs must be of type int"),
        ("[training]\nepochs = 1979-05-27", "epochs must be of type int"),
        ("[training.epochs]\na = 1", "epochs must be of type int"),
        ("[training]\nscheme = 'alternate'", "scheme must be one of alternating"),
        ("[training]\nepochs = ", "not valid TOML"),
        ("[training]\nepochs = 1\nepochs = 2", "not valid TOML"),
        ("\x00", "not valid TOML"),
        (f"[training]\nepochs = {'9' * 400}", "more than 64 bits"),
        (f"[training]\nepochs = 0x{'f' * 6000}", "more than 64 bits"),
        (f"[training]\nepochs = {'[' * 9000}", "not valid TOML"),
        ("[training]\nnum_samples = 1000000000", "num_samples must be between 0 and 1024"),
    ],
)
def test_wrong_toml_is_refused_in_one_helpful_line(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        Config.from_toml(text)
    assert "\n" not in str(caught.value)


EXTREMES: dict[Any, list[Any]] = {
    int: [-1, 0, 1, 2**20, 2**31, 2**63, 2**64, 10**400, -(10**400)],
    float: [-1.0, -0.0, 1e-320, 1e-46, 1e-30, 1e30, 1e39, 1e308, math.nan, math.inf, 10**400],
    bool: [True, False],
    str: ["", "x" * 10_000, "\0"],
}


@pytest.mark.parametrize("name", FIELDS)
def test_extreme_values_make_a_model_or_are_refused(name: str) -> None:
    field, accepted = FIELDS[name], 0
    for value in [*field.metadata["choices"], *EXTREMES[field.type]]:
        with contextlib.suppress(InputError), torch.device("meta"):
            ModelCard("node", 3, Config().replace(**{name: value}), ("a", "b")).build()
            accepted += 1
    assert accepted > 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (name, value)
        for name, field in FIELDS.items()
        if field.type is float
        for value in map(field.metadata["bounds"].get, ("low", "high"))
        if value is not None
    ],
)
def test_training_at_the_bounds_ends_or_is_refused(name: str, value: float) -> None:
    config = SMALL["node"].replace(scheme="joint", passes=2, epochs=2, **{name: value})
    with contextlib.suppress(InputError):
        assert predictions(run("node", config)).isfinite().all()


@pytest.mark.parametrize("sections", ["abc", [1], 3, None, {"model": "abc"}])
def test_dictionaries_of_another_shape_are_refused(sections: Any) -> None:
    with pytest.raises(InputError, match="settings"):
        Config.from_dict(sections)


def test_a_typing_error_gets_a_suggestion() -> None:
    with pytest.raises(InputError, match="did you mean num_metacommunities"):
        Config().replace(num_metacomunities=3)


def test_settings_cannot_be_changed_in_place() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().model.dropout = 0.1  # type: ignore[misc]


@pytest.mark.parametrize("task", ["node", "graph"])
def test_presets_differ_round_trip_and_build(task: str) -> None:
    found = {name: preset(name, task) for name in PRESETS}
    assert set(found) >= {"paper", "released", "tuned"}
    for config in found.values():
        assert Config.from_toml(config.to_toml()) == config
        assert ModelCard(task, 3, config, ("a", "b")).build().task == task
    for first, second in itertools.combinations(found.values(), 2):
        assert first != second


def test_presets_of_the_two_tasks_use_their_own_layers() -> None:
    for name in PRESETS:
        assert preset(name, "node").model.conv == "gcn"
        assert preset(name, "graph").model.conv == "gin"


def test_presets_say_what_the_paper_and_its_code_do() -> None:
    for task in ("node", "graph"):
        paper, released = preset("paper", task), preset("released", task)
        assert (paper.training.sampling, paper.training.kl_weight) == (True, 1.0)
        assert paper.training.num_samples > 0
        assert (released.training.sampling, released.training.num_samples) == (False, 0)
        assert released.model.num_communities == 16
        encoder = ModelCard(task, 3, released, ("a", "b")).build().encoder
        assert encoder.conv == "gcn"
        # One shape for each node beside 16 scales.
        assert encoder.get_parameter("layers.1.bias").numel() == 16 + 1
        assert not any(isinstance(norm, CommunityNorm) for norm in encoder.norms)
    assert preset("released", "node").training.edge_term_weight == 0.01
    graph = preset("released", "graph")
    assert (graph.training.scheme, graph.training.schedule) == ("predictor", "constant")
    assert graph.model.pooling == "mean"


def test_an_unknown_preset_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError, match="paper, released, tuned"):
        preset("papr", "node")


def test_tuned_knows_more_of_datasets_that_were_searched() -> None:
    tasks = {info.name: info.task for info in datasets()}
    for (dataset, partition), changes in tuned_for().items():
        task = tasks[dataset]
        found = preset("tuned", task, dataset, partition)
        plain = preset("tuned", task).replace(partition=partition)
        assert found == plain.replace(**changes) != plain
        ModelCard(task, 5, found, ("a", "b")).build()
        assert preset("paper", task, dataset) == preset("paper", task)
    assert preset("tuned", "node", "mine") == preset("tuned", "node")
    even = preset("tuned", "node", "PubMed", "even")
    assert even == preset("tuned", "node", "PubMed").replace(partition="even")


def test_defaults() -> None:
    assert Config().to_dict() == {
        "model": {
            "num_communities": 64,
            "num_metacommunities": 8,
            "hidden_channels": 64,
            "conv": "gcn",
            "encoder": "normalized",
            "encoder_channels": 64,
            "partition": "learned",
            "temperature": 1.0,
            "shares": "softmax",
            "interactions": "diagonal",
            "normalize": "community",
            "inputs": "concat",
            "feature_norm": "l2",
            "bank_layers": 1,
            "composer": "gnn",
            "composer_layers": 1,
            "hops": 0,
            "dropout": 0.5,
            "node_dropout": 0.0,
            "pooling": "sum",
            "readout": "jumping",
        },
        "training": {
            "scheme": "alternating",
            "encoder_interval": 1,
            "pretrain_epochs": 600,
            "epochs": 300,
            "learning_rate": 0.01,
            "encoder_learning_rate": 0.001,
            "weight_decay": 5e-4,
            "schedule": "constant",
            "patience": 100,
            "batch_size": 0,
            "likelihood": "balanced",
            "edge_term_weight": 1.0,
            "kl_weight": 0.01,
            "shrinkage": 0.0,
            "passes": 1,
            "consistency_weight": 0.0,
            "class_balance_weight": 0.0,
            "sampling": True,
            "num_samples": 0,
        },
    }
    auto = Config().replace(num_communities="auto")
    assert (auto.model.num_communities, auto.training.shrinkage) == (32, 0.002)


@pytest.mark.parametrize(
    ("names", "lowest", "highest"),
    [
        ("num_communities num_metacommunities hidden_channels encoder_channels", 1, 2**20),
        ("encoder_interval epochs passes", 1, 2**20),
        ("pretrain_epochs patience", 0, 2**20),
        ("bank_layers composer_layers", 1, 1000),
        ("hops", 0, 1000),
        ("batch_size", 0, 2**31),
        ("num_samples", 0, 1024),
        ("temperature learning_rate encoder_learning_rate", 1e-30, 1e30),
        ("weight_decay edge_term_weight kl_weight shrinkage", 0, 1e30),
        ("consistency_weight class_balance_weight", 0, 1e30),
        ("dropout node_dropout", 0, math.nextafter(1, 0)),
    ],
)
def test_bounds(names: str, lowest: float, highest: float) -> None:
    for name in names.split():
        kind = FIELDS[name].type
        for value in (lowest, highest):
            assert Config().replace(**{name: kind(value)}) is not None  # type: ignore[operator]
        beyond = [lowest - 1, highest + 1] if kind is int else [lowest / 2 or -1e-30, highest * 2]
        for value in beyond:
            with pytest.raises(InputError, match=name):
                Config().replace(**{name: value})


def test_settings_without_labels() -> None:
    for task, temperature, epochs in (("node", 0.3, 300), ("graph", 1.0, 100)):
        found, links = preset("communities", task), preset("links", task)
        for config in (found, links):
            assert config.model.num_metacommunities == 4
            assert config.model.hidden_channels == 128
            assert config.model.temperature == temperature
            assert config.model.shares == "softmax"
        assert (found.model.num_communities, found.model.encoder_channels) == (16, 128)
        assert (links.model.num_communities, links.model.encoder_channels) == (64, 256)
        assert (found.model.encoder, links.model.encoder) == ("sparse", "normalized")
        assert (found.training.pretrain_epochs, links.training.pretrain_epochs) == (300, epochs)
        training = found.training
        assert (training.kl_weight, training.scheme) == (0.0, "unlabelled")
        assert (training.encoder_learning_rate, training.weight_decay) == (0.002, 0.01)
        assert links.training.likelihood == "masked"
