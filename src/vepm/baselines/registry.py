"""The baselines by name, with the settings their papers give for a dataset."""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from vepm.baselines.base import Baseline
from vepm.baselines.chebnet import ChebNet
from vepm.baselines.disengcn import DisenGCN
from vepm.baselines.factorgcn import FactorGCN
from vepm.baselines.graphs import GIN, GraphMLP, SizeOnly
from vepm.baselines.nodes import GAT, GCN, MLP, LabelProp
from vepm.baselines.wl import WLKernel
from vepm.errors import InputError

BASELINES: dict[str, Baseline] = {
    method.name: method
    for method in (
        MLP(),
        LabelProp(),
        GCN(),
        GCN(name="gcn-64", hidden_channels=64),
        ChebNet(),
        GAT(),
        DisenGCN(),
        SizeOnly(),
        GraphMLP(),
        GIN(),
        FactorGCN(),
        WLKernel(),
    )
}
"""Every baseline by name, with the settings it has unless told otherwise."""

_SOCIAL = ("IMDB-BINARY", "IMDB-MULTI", "REDDIT-BINARY", "REDDIT-MULTI-5K")

PUBLISHED: dict[str, dict[str, dict[str, Any]]] = {
    "chebnet": {"Cora": {"order": 2}},
    "gat": {"PubMed": {"output_heads": 8, "learning_rate": 0.01, "weight_decay": 1e-3}},
    "gin": {name: {"hidden_channels": 64, "pooling": "mean"} for name in _SOCIAL},
    "factorgcn": {name: {"pooling": "mean"} for name in _SOCIAL},
    "graph-mlp": {name: {"hidden_channels": 64, "pooling": "mean"} for name in _SOCIAL},
}
"""Settings that differ for a dataset, by baseline and dataset."""


def baseline(
    name: str,
    dataset: str | None = None,
    *,
    device: str | None = None,
    epochs: int | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Baseline:
    """A baseline ready to be called with a dataset, a split and a seed.

    Args:
        name: a key of :data:`BASELINES`.
        dataset: name of the dataset whose :data:`PUBLISHED` settings apply, if any.
        device: where to train; methods that do not train have no use for it.
        epochs: how many to train; likewise.
        settings: fields of the baseline to set, over all of the above.

    Raises:
        InputError: if there is no such baseline or no such setting.

    Example:
        >>> from vepm.baselines import baseline
        >>> baseline("gat", "PubMed").settings()["output_heads"]
        8
    """
    if name not in BASELINES:
        raise InputError(f"no baseline '{name}'; there are {', '.join(BASELINES)}")
    method = BASELINES[name]
    known = {item.name for item in fields(method)} - {"name"}
    given = {"device": device, "epochs": epochs}
    common = {key: value for key, value in given.items() if value is not None and key in known}
    published = PUBLISHED.get(name, {}).get(dataset or "", {})
    unknown = sorted(set(settings or {}) - known)
    if unknown:
        raise InputError(
            f"baseline '{name}' has no setting '{unknown[0]}'; it has {', '.join(sorted(known))}"
        )
    return replace(method, **{**published, **common, **(settings or {})})
