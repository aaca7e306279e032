"""Named settings: for any graph, for known datasets, of the paper's text and its released code."""

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

from vepm.errors import InputError
from vepm.training.config import Config

_BASE = {"node": Config(), "graph": Config().replace(conv="gin", normalize="none")}

PRESETS: dict[str, dict[str, Config]] = {
    "paper": {
        "node": _BASE["node"].replace(
            num_communities=64,
            num_metacommunities=8,
            feature_norm="l1",
            scheme="alternating",
            encoder_interval=10,
            likelihood="summed",
            kl_weight=1.0,
            sampling=True,
            num_samples=16,
        ),
        "graph": _BASE["graph"].replace(
            num_communities=64,
            num_metacommunities=4,
            feature_norm="none",
            bank_layers=2,
            composer_layers=2,
            scheme="alternating",
            encoder_interval=10,
            likelihood="summed",
            kl_weight=1.0,
            sampling=True,
            num_samples=16,
            batch_size=32,
            pretrain_epochs=100,
            schedule="halving",
            weight_decay=0.0,
        ),
    },
    "released": {
        "node": _BASE["node"].replace(
            num_communities=16,
            num_metacommunities=8,
            encoder_channels=32,
            feature_norm="l1",
            normalize="neighbours",
            inputs="mass",
            scheme="alternating",
            encoder_interval=10,
            kl_weight=0.0,
            sampling=False,
        ),
        "graph": _BASE["graph"].replace(
            num_communities=16,
            num_metacommunities=4,
            encoder_channels=32,
            feature_norm="none",
            inputs="softmax",
            bank_layers=2,
            composer_layers=2,
            scheme="alternating",
            encoder_interval=10,
            kl_weight=0.01,
            sampling=False,
            batch_size=32,
            pretrain_epochs=100,
            schedule="halving",
            weight_decay=0.0,
        ),
    },
    "tuned": {
        "node": _BASE["node"].replace(
            num_communities=8,
            num_metacommunities=8,
            hidden_channels=128,
            inputs="mass",
            dropout=0.7,
            scheme="alternating",
            encoder_interval=10,
            encoder_learning_rate=1e-3,
            pretrain_epochs=300,
            passes=2,
            consistency_weight=2.0,
            num_samples=16,
        ),
        "graph": _BASE["graph"].replace(
            num_communities=16,
            num_metacommunities=4,
            feature_norm="none",
            inputs="softmax",
            bank_layers=2,
            composer_layers=2,
            scheme="alternating",
            encoder_interval=5,
            encoder_learning_rate=1e-4,
            kl_weight=0.01,
            batch_size=32,
            pretrain_epochs=100,
            epochs=200,
            patience=0,
            schedule="halving",
            weight_decay=0.0,
        ),
    },
}


PRESETS["default"] = {
    "node": PRESETS["tuned"]["node"].replace(
        num_communities=16,
        num_metacommunities=4,
        feature_norm="auto",
        composer="weighted",
        temperature=0.3,
        dropout=0.6,
        scheme="joint",
        encoder_learning_rate=0.001,
        passes=2,
        consistency_weight=1.0,
        consistency_warmup=50,
        class_balance_weight=1.0,
    ),
    "graph": PRESETS["tuned"]["graph"].replace(feature_norm="standard"),
}
"""Settings for graphs that nobody has seen."""


def preset(name: str, task: str, dataset: str | None = None, partition: str = "learned") -> Config:
    """Settings by name for a ``"node"`` or ``"graph"`` task.

    Args:
        name: ``"default"``, ``"tuned"``, ``"paper"`` or ``"released"``.
        task: What is labelled.
        dataset: Name of the dataset, for which ``"tuned"`` may know better settings.
        partition: How edges are split, for which it may know better ones still.

    Example:
        >>> preset("released", "node").training.sampling
        False
    """
    if name not in PRESETS:
        raise InputError(f"there is no preset {name!r}; choose from {', '.join(PRESETS)}")
    known = tuned_for() if name == "tuned" else {}
    changes = known.get((dataset or "", partition), known.get((dataset or "", "learned"), {}))
    return PRESETS[name][task].replace(**{**changes, "partition": partition})


@cache
def tuned_for() -> dict[tuple[str, str], dict[str, Any]]:
    """What ``"tuned"`` changes on single datasets, by dataset and partition."""
    text = files("vepm.training").joinpath("tuned.toml").read_text("utf-8")
    found = {}
    for dataset, changes in tomllib.loads(text).items():
        others = {key: value for key, value in changes.items() if isinstance(value, dict)}
        found[dataset, "learned"] = {k: v for k, v in changes.items() if k not in others}
        found |= {(dataset, partition): own for partition, own in others.items()}
    return found
