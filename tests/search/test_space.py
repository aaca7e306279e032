"""Search spaces: data that is checked."""

from pathlib import Path

import pytest

from training.toys import TASKS
from vepm.errors import InputError
from vepm.search.space import Space, default_space, read_space
from vepm.training import preset


@pytest.mark.parametrize("task", TASKS)
def test_own_space_holds_the_preset_it_starts_from(task: str) -> None:
    config = preset("tuned", task)
    values = {**vars(config.model), **vars(config.training)}
    for dimension in default_space(task).dimensions:
        assert dimension.find(values) == values[dimension.name]


@pytest.mark.parametrize("task", TASKS)
def test_every_mixture_of_the_own_space_can_be_built(task: str) -> None:
    choices = {d.name: d.choices for d in default_space(task).dimensions}
    for heads in choices["num_metacommunities"]:
        assert all(count % heads == 0 for count in choices["num_communities"])
        assert all(width % heads == 0 for width in choices["hidden_channels"])


def test_there_and_back() -> None:
    entries = {"dropout": {"low": 0.1, "high": 0.5, "log": True}, "conv": {"choices": ["gcn"]}}
    assert Space.from_dict(entries).to_dict() == entries


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no setting"),
        ("droput = {low = 0.1, high = 0.5}", "did you mean dropout"),
        ("dropout = 0.5", "dropout is 0.5; give a list of values"),
        ("dropout = {low = 0.1}", "give a list"),
        ("dropout = {}", "has nothing"),
        ("dropout = {low = 0.1, high = 0.5, step = 0.1}", "step"),
        ("dropout = {low = 0.5, high = 0.1}", "above high"),
        ("dropout = {low = 0.1, high = 1.5}", "below 1"),
        ("dropout = {low = 0.0, high = 0.5, log = true}", "low above 0"),
        ("dropout = {low = 0.1, high = 0.5, log = 1}", "true or false"),
        ("dropout = {choices = []}", "list of values"),
        ("dropout = {choices = 0.5}", "list of values"),
        ('epochs = {choices = ["many"]}', "type int"),
        ("epochs = {low = 1.5, high = 3}", "type int"),
        ("scheme = {low = 1, high = 3}", "type str"),
        ("sampling = {low = false, high = true}", "no number"),
        ('scheme = {choices = ["joint", "disjoint"]}', "must be one of"),
        ("dropout = [", "TOML"),
    ],
)
def test_wrong_file_is_refused_by_name(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "space.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=said) as caught:
        read_space(path)
    assert str(path) in str(caught.value)


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        read_space(tmp_path / "none.toml")
