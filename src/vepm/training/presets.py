"""Named settings: for any graph, for known datasets, of the paper's text and its released code."""

from functools import cache
from pathlib import Path
from typing import Any

from vepm.errors import InputError
from vepm.files import read_toml
from vepm.training.config import Config

FOLDER = Path(__file__).parent

PRESETS: dict[str, dict[str, Config]] = {}  # by name and task
for _name, _tasks in read_toml(FOLDER / "presets.toml").items():
    _base = PRESETS.get(_tasks.pop("base", ""), {})
    PRESETS[_name] = {t: _base.get(t, Config()).replace(**own) for t, own in _tasks.items()}


RECORD_FOLDS = frozenset(
    {"MUTAG", "PTC", "IMDB-BINARY", "IMDB-MULTI", "PROTEINS", "NCI1", "REDDIT-BINARY"}
)
"""Datasets whose settings in ``tuned.toml`` were chosen on folds that results are measured on."""


def preset(
    name: str, task: str, dataset: str | None = None, partition: str | None = None
) -> Config:
    """Settings by name (see ``PRESETS``) for a ``"node"`` or ``"graph"`` task.

    ``"tuned"`` may have better settings for the named dataset, or for a partition other than the
    preset's.

    Example:
        >>> preset("released", "node").training.sampling
        False
    """
    if name not in PRESETS:
        raise InputError(f"there is no preset {name!r}; choose from {', '.join(PRESETS)}")
    known = tuned_for() if name == "tuned" else {}
    own = known.get((dataset or "", "learned"), {})
    if partition is not None:
        own = known.get((dataset or "", partition), own) | {"partition": partition}
    return PRESETS[name][task].replace(**own)


@cache
def tuned_for() -> dict[tuple[str, str], dict[str, Any]]:
    """What ``"tuned"`` changes on single datasets, by dataset and partition."""
    found = {}
    for dataset, changes in read_toml(FOLDER / "tuned.toml").items():
        others = {key: value for key, value in changes.items() if isinstance(value, dict)}
        found[dataset, "learned"] = {k: v for k, v in changes.items() if k not in others}
        found |= {(dataset, partition): own for partition, own in others.items()}
    return found
