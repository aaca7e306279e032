"""Search spaces: data that is checked."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest

from training.toys import TASKS
from vepm.errors import InputError
from vepm.search.space import (
    SPACES,
    Space,
    flat,
    parse_space,
    read_space,
)
from vepm.search.tuning import Trial, _known, suggest
from vepm.training import Config, preset


def parsed(entries: dict[str, Any]) -> Space:
    return parse_space(entries, lambda changes: flat(Config().replace(**changes)))


@pytest.mark.parametrize("task", TASKS)
def test_own_space_holds_the_preset_it_starts_from(task: str) -> None:
    config = preset("tuned", task)
    values = {**vars(config.model), **vars(config.training)}
    for dimension in read_space(SPACES / f"{task}.toml", Config()):
        found = dimension.find(values)
        assert dimension.sets(found) == {dimension.name: values[dimension.name]}


@pytest.mark.parametrize("task", TASKS)
def test_every_mixture_of_the_own_space_can_be_built(task: str) -> None:
    choices = {d.name: d.choices for d in read_space(SPACES / f"{task}.toml", Config())}
    for heads in choices["num_metacommunities"]:
        assert all(count % heads == 0 for count in choices["num_communities"])
        assert all(width % heads == 0 for width in choices["hidden_channels"])


def test_logs_name_what_is_searched() -> None:
    entries = {"dropout": {"low": 0.1, "high": 0.5, "log": True}, "conv": ["gcn"]}
    named = {dimension.name: dimension.to_dict() for dimension in parsed(entries)}
    assert named == entries | {"conv": {"choices": ["gcn"]}}


@pytest.mark.parametrize("low", [-1.0, 0.0])
def test_only_positive_numbers_have_a_logarithm(low: float) -> None:
    entries = {"shift": {"low": low, "high": 1.0, "log": True}}
    with pytest.raises(InputError, match="low must be above 0"):
        parse_space(entries, lambda changes: {"shift": 0.5} | dict(changes))


def test_a_choice_may_set_several_settings() -> None:
    sizes = [{"num_communities": 4, "hidden_channels": 8}, {"num_communities": 8}]
    space = parsed({"size": sizes, "dropout": {"low": 0.1, "high": 0.5}})
    size, dropout = space
    assert size.find({"num_communities": 4, "hidden_channels": 8}) == 0
    assert size.sets(1) == sizes[1]
    assert size.find({"num_communities": 4, "hidden_channels": 9}) is None
    assert [dropout.find({"dropout": value}) for value in (0.05, 0.1, 0.5, 0.6)] == [
        *(None, 0.1),
        *(0.5, None),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no setting"),
        ("droput = {low = 0.1, high = 0.5}", "did you mean dropout"),
        ("dropout = 0.5", "dropout is 0.5; give a list of values"),
        ("dropout = {low = 0.1}", "give a list"),
        ("dropout = {}", "is {}; give a list"),
        ("dropout = {low = 0.1, high = 0.5, step = 0.1}", "step"),
        ("dropout = {low = 0.5, high = 0.1}", "low no larger than high"),
        ("dropout = {low = 0.1, high = 1.5}", "below 1"),
        ("dropout = {low = 0.0, high = 0.5, log = true}", "low must be above 0"),
        ("dropout = {low = 0.1, high = 0.5, log = 1}", "perhaps log = true"),
        ("dropout = []", "list of values"),
        ("dropout = {choices = [0.5]}", "give a list"),
        ('epochs = ["many"]', "type int"),
        ("epochs = {low = 1.5, high = 3}", "type int"),
        ("scheme = {low = 1, high = 3}", "type str"),
        ("sampling = {low = false, high = true}", "or numbers low"),
        ('scheme = ["joint", "disjoint"]', "must be one of"),
        ("dropout = [", "TOML"),
    ],
)
def test_wrong_file_is_refused_by_name(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "space.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=said) as caught:
        read_space(path, Config())
    assert str(path) in str(caught.value)


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        read_space(tmp_path / "none.toml", Config())


def test_optuna_learns_after_six_trials_with_a_seed_for_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[dict[str, Any]] = []
    sampler = optuna.samplers.TPESampler

    def note(**given: Any) -> Any:
        asked.append(given)
        return sampler(**given)

    monkeypatch.setattr(optuna.samplers, "TPESampler", note)
    space, base = parsed({"dropout": {"low": 0.1, "high": 0.5}}), {"dropout": 0.2}
    trials = [Trial({"dropout": 0.3}, 0.5, 1.0) for n in range(2)]
    found = [suggest(space, base, seed, trials[:n]) for seed, n in ((0, 0), (0, 1), (0, 2), (1, 2))]
    assert found[0] == {}
    assert len({changes["dropout"] for changes in found[1:]}) == 3
    # Known answers: a search that was begun by another version goes on as it would have.
    seeds = [3_621_678_275, 2_086_539_716, 3_483_746_089]
    assert asked == [{"n_startup_trials": 6, "seed": seed} for seed in seeds]


def test_ranges_and_choices_are_those_of_optuna() -> None:
    entries = {
        "conv": ["gcn", "gin"],
        "epochs": {"low": 3, "high": 5},
        "patience": {"low": 1, "high": 100, "log": True},
        "learning_rate": {"low": 1e-4, "high": 1e-2, "log": True},
    }
    assert [dimension.distribution for dimension in parsed(entries)] == [
        optuna.distributions.CategoricalDistribution([0, 1]),
        optuna.distributions.IntDistribution(3, 5),
        optuna.distributions.IntDistribution(1, 100, log=True),
        optuna.distributions.FloatDistribution(1e-4, 1e-2, log=True),
    ]


def test_settings_that_were_refused_are_known_as_pruned() -> None:
    space = parsed({"dropout": {"low": 0.1, "high": 0.5}, "conv": ["gcn", "gin"]})
    trial = Trial({"conv": "gin"}, 0.5, 1.0)
    known = _known(space, {"dropout": 0.9, "conv": "gcn"}, trial)
    assert (known.state, known.value) == (optuna.trial.TrialState.COMPLETE, 0.5)
    assert known.params == {"conv": 1}
    refused = _known(space, {"dropout": 0.2, "conv": "gcn"}, replace(trial, refused="why"))
    assert (refused.state, refused.value) == (optuna.trial.TrialState.PRUNED, None)
    assert refused.params == {"dropout": 0.2, "conv": 1}
