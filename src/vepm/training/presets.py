"""Named settings: for any graph, for known datasets, of the paper's text and its released code."""

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

from vepm.errors import InputError
from vepm.training.config import Config


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads(files("vepm.training").joinpath(name).read_text("utf-8"))


PRESETS: dict[str, dict[str, Config]] = {
    name: {task: Config().replace(**changes) for task, changes in tasks.items()}
    for name, tasks in _read("presets.toml").items()
}
"""Settings by preset and task."""

# Without labels nothing teaches how communities are grouped, and fewer of them are found.
_UNLABELLED = {
    task: own.replace(
        num_communities=16,
        num_metacommunities=4,
        hidden_channels=128,
        encoder="normalized",
        partition="learned",
        shares="softmax",
        grouping="segments",
        temperature=0.3 if task == "node" else 1.0,
        pretrain_epochs=300 if task == "node" else 100,
    )
    for task, own in PRESETS["default"].items()
}

PRESETS["communities"] = {
    task: config.replace(
        encoder="sparse",
        encoder_channels=128,
        kl_weight=0.0,
        pretrain_epochs=300,
        scheme="unlabelled",
        encoder_learning_rate=0.002,
        weight_decay=0.01,
    )
    for task, config in _UNLABELLED.items()
}
"""Settings to find communities without labels: nodes may be no members at all of most of them."""

PRESETS["links"] = {
    task: config.replace(num_communities=64, encoder_channels=256, likelihood="masked")
    for task, config in _UNLABELLED.items()
}
"""Settings to predict links."""


RECORD_FOLDS = frozenset(
    {"MUTAG", "PTC", "IMDB-BINARY", "IMDB-MULTI", "PROTEINS", "NCI1", "REDDIT-BINARY"}
)
"""Datasets whose settings in ``tuned.toml`` were chosen on folds that results are measured on."""


def preset(
    name: str, task: str, dataset: str | None = None, partition: str | None = None
) -> Config:
    """Settings by name for a ``"node"`` or ``"graph"`` task.

    Args:
        name: ``"default"``, ``"communities"``, ``"tuned"``, ``"paper"`` or ``"released"``.
        task: What is labelled.
        dataset: Name of the dataset, for which ``"tuned"`` may know better settings.
        partition: How edges are split, for which it may know better ones still; by default the
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
    for dataset, changes in _read("tuned.toml").items():
        others = {key: value for key, value in changes.items() if isinstance(value, dict)}
        found[dataset, "learned"] = {k: v for k, v in changes.items() if k not in others}
        found |= {(dataset, partition): own for partition, own in others.items()}
    return found
