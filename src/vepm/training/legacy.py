"""Settings of earlier versions: how they are read, and how recorded results name them."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vepm.errors import InputError
from vepm.files import read_toml

if TYPE_CHECKING:
    from vepm.training.config import Config

RENAMED = {"alignment": "class_balance_weight", "edge_weight": "edge_term_weight"}
INEXACT = ("subsampled", "masked")
"""Likelihoods that draw nodes or edges in every step; both are balanced."""
_TABLES = read_toml(Path(__file__).parent / "legacy.toml")
REMOVED: dict[str, dict[str, Any]] = _TABLES["removed"]
"""Settings that could once be changed, with the values they have now."""
LATER: dict[str, dict[str, Any]] = _TABLES["later"]
"""Settings that came after results had been recorded, with what held until then."""


def upgraded(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by their present names, given by present ones or as :func:`recorded`.

    Raises:
        InputError: if a setting that was removed has another value than it has now.

    Example:
        >>> upgraded({"alignment": 1.0, "balanced": False, "dropout": 0.5})
        {'dropout': 0.5, 'class_balance_weight': 1.0, 'likelihood': 'summed'}
    """
    found = dict(changes)
    for name, value in (REMOVED["model"] | REMOVED["training"]).items():
        if found.pop(name, value) != value:
            raise InputError(
                f"settings: {name} can no longer be changed; it is always {value}, so leave it out"
            )
    for old, name in RENAMED.items():
        if old in found:
            found[name] = found.pop(old)
    if nodes := found.pop("batch_nodes", 0):
        found["batch_size"] = nodes
    fusion, inputs = found.pop("fusion", "concat"), found.get("inputs", "both")
    balanced, likelihood = found.pop("balanced", True), found.get("likelihood", "exact")
    if (inputs == "z" and fusion != "concat") or (likelihood in INEXACT and not balanced):
        raise InputError(f"settings: {inputs=} and {likelihood=} can no longer be changed so")
    if inputs == "both" and {"inputs", "fusion"} & changes.keys():
        found["inputs"] = fusion
    if likelihood == "exact" and {"likelihood", "balanced"} & changes.keys():
        found["likelihood"] = "balanced" if balanced else "summed"
    return found


def recorded(config: "Config") -> dict[str, dict[str, Any]]:
    """The settings as results and their fingerprints have recorded them from the beginning.

    Present settings that mean what a recorded run did give the same dictionary, whatever has been
    renamed or removed since; :meth:`Config.from_dict` reads it back.
    """
    sections = {name: REMOVED[name] | values for name, values in config.to_dict().items()}
    model, training = sections["model"], sections["training"]
    for old, name in RENAMED.items():
        training[old] = training.pop(name)
    if training["alignment"] == 0:
        # It came after the first results, which hold for runs without it.
        del training["alignment"]
    for section, later in LATER.items():
        for name, before in later.items():
            if sections[section][name] == before:
                del sections[section][name]
    training["batch_nodes"] = 0
    balanced = training["likelihood"] != "summed"
    likelihood = training["likelihood"] if training["likelihood"] in INEXACT else "exact"
    training |= {"balanced": balanced, "likelihood": likelihood}
    fused = model["inputs"] not in ("x", "z", "random")
    model["fusion"] = model["inputs"] if fused else "concat"
    model["inputs"] = "both" if fused else model["inputs"]
    return sections
