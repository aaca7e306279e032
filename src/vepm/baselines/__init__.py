"""What VEPM is compared with: baselines by name, rerun on the same splits behind the same call."""

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from vepm.baselines.base import Baseline
from vepm.baselines.capsgnn import CapsGNN
from vepm.baselines.disengcn import DisenGCN
from vepm.baselines.factorgcn import FactorGCN
from vepm.baselines.grand import GRAND
from vepm.baselines.graphs import GIN, GraphGAT, GraphMLP
from vepm.baselines.hganet import GraphHGANet, HGANet
from vepm.baselines.nodes import GAT, GCN, MLP, ChebNet, GraphSAGE, LabelProp
from vepm.baselines.ordered import DGCNN, PatchySan
from vepm.baselines.sigvae import SIGVAE
from vepm.baselines.svm import AWE, WLKernel
from vepm.errors import InputError
from vepm.files import read_toml
from vepm.schema import check_value
from vepm.training import pick_device

__all__ = ["BASELINES", "PUBLISHED", "Baseline", "baseline"]

_METHODS: list[Baseline] = [
    MLP(),
    LabelProp(),
    GCN(),
    GCN(name="gcn-64", hidden_channels=64),
    ChebNet(),
    GraphSAGE(),
    GAT(),
    DisenGCN(),
    GRAND(),
    HGANet(),
    SIGVAE(),
    GraphMLP(),
    GIN(),
    FactorGCN(),
    GraphGAT(),
    GraphHGANet(),
    DGCNN(),
    PatchySan(),
    CapsGNN(),
    WLKernel(),
    AWE(),
]
BASELINES = {method.name: method for method in _METHODS}
"""Every baseline by name, with the settings it has unless told otherwise."""

PUBLISHED: dict[str, dict[str, dict[str, Any]]] = read_toml(
    Path(__file__).parent / "published.toml"
)
"""Settings that differ for a dataset, by baseline and dataset."""


def baseline(
    name: str,
    dataset: str | None = None,
    *,
    device: str | None = None,
    epochs: int | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Baseline:
    """A baseline by name, ready to be called with a dataset, a split and a seed.

    The :data:`PUBLISHED` settings are those of the named dataset, if any. Methods that do not train
    ignore the device (``"auto"``, ``"cpu"`` or ``"cuda"``) and the epochs. Further settings, fields
    of the baseline, come over all of these.

    Example:
        >>> from vepm.baselines import baseline
        >>> baseline("gat", "PubMed").settings()["output_heads"]
        8
    """
    if name not in BASELINES:
        raise InputError(f"no baseline '{name}'; there are {', '.join(BASELINES)}")
    method, where = BASELINES[name], f"baseline '{name}'"
    known = {item.name: item for item in fields(method) if item.name != "name"}
    given = {"device": device and str(pick_device(device)), "epochs": epochs}
    chosen: dict[str, Any] = dict(PUBLISHED.get(name, {}).get(dataset or "", {}))
    chosen |= {key: value for key, value in given.items() if value is not None and key in known}
    for key, value in (settings or {}).items():
        if key not in known:
            raise InputError(f"{where} has no setting '{key}'; it has {', '.join(sorted(known))}")
        # JSON and TOML have lists only.
        chosen[key] = tuple(value) if isinstance(value, list) else value
        check_value(known[key], chosen[key], where)
    return replace(method, **chosen)
