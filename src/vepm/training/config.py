"""Settings as frozen dataclasses, to and from TOML, by present and earlier names; the presets."""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from vepm.errors import InputError
from vepm.files import parse_toml, read_toml
from vepm.nn.building import FEATURE_NORMS, FUSIONS, INTERACTIONS
from vepm.nn.composer import COMPOSERS, POOLINGS, READOUTS
from vepm.nn.convolution import CONVOLUTIONS, NORMALIZATIONS
from vepm.nn.partitioner import PARTITIONS, SHARES
from vepm.schema import check, checked, fields_of, unknown

FOLDER = Path(__file__).parent
# An untrusted settings file must not be able to exhaust the memory.
LARGEST, MOST_SAMPLES, DEEPEST = 2**20, 1024, 1000
# Beyond these bounds real numbers overflow single precision, or vanish in it.
TINY, HUGE = 1e-30, 1e30

SCALED = ("standard", "auto", "coordinates")  # feature norms that bring columns to one scale
ENCODERS: dict[str, dict[str, Any]] = {
    "normalized": {},
    "plain": {"encoder_conv": "gcn", "encoder_batch_norm": False, "shape": "node"},
    "background": {"background": True},
    "sparse": {"sparse": True},
}
INPUTS = ("x", "z", *FUSIONS, "random")
# How communities are gathered into metacommunities, by how edges are shared out.
GROUPING = dict.fromkeys(SHARES, "segments") | {"posterior": "learned"}
INEXACT = ("subsampled", "masked")  # likelihoods that draw nodes or edges in every step
SCHEMES = ("alternating", "joint", "predictor", "scratch", "unlabelled")
TRIED: dict[str, dict[str, Any]] = {
    "learned": {"partition": "learned"},
    "even": {"partition": "even"},
    "sage": {"partition": "even", "conv": "sage"},
}
"""What the partition ``"auto"`` chooses from: settings of its own by name. ``"sage"`` keeps a node
apart from its neighbours, and is tried where they hardly share its label more than by chance."""
# What the number of communities "auto" stands for: at most so many, most of them emptied.
AUTO: dict[str, Any] = {"num_communities": 32, "shrinkage": 0.002}


class Section:
    """Settings that are checked on creation."""

    def __post_init__(self) -> None:
        check(self, "settings")


@dataclass(frozen=True)
class ModelConfig(Section):
    """Settings of :class:`vepm.nn.VEPM`, whose documentation explains them."""

    num_communities: int = checked(64, low=1, high=LARGEST)
    num_metacommunities: int = checked(8, low=1, high=LARGEST)
    hidden_channels: int = checked(64, low=1, high=LARGEST)
    conv: str = checked("gcn", choices=CONVOLUTIONS)
    """Graph convolution of bank and composer: ``gcn``, ``gin``, or ``sage``, which is GCN with
    weights of its own for the node itself. The encoder's is the same, or GCN beside ``sage``."""
    encoder: str = checked("normalized", choices=ENCODERS)
    """The community encoder: ``normalized`` has the convolution of the others, batch normalisation
    and a Weibull shape for every node and community; ``background`` is the same, but to the last
    community all nodes belong equally, so that it stands for links that no other explains; in
    ``sparse`` they need not belong to a community at all; ``plain`` has GCN layers without
    normalisation and one shape per node, as in the released code."""
    encoder_channels: int = checked(64, low=1, high=LARGEST)
    partition: str = checked("learned", choices=("auto", *PARTITIONS))
    """How edges are split; ``auto`` tries a learned split, an even one and, where neighbours are
    mostly of other classes, an even one with ``sage``; it keeps what is best on validation labels
    (the first, if there are none)."""
    temperature: float = checked(1.0, low=TINY, high=HUGE)
    shares: str = checked("softmax", choices=SHARES)
    """How rates become shares of an edge: their ``softmax``, between metacommunities of consecutive
    communities, or their ``posterior``, in proportion to them, between metacommunities to which
    communities are assigned by what the labels teach."""
    interactions: str = checked("diagonal", choices=INTERACTIONS)
    normalize: str = checked("community", choices=NORMALIZATIONS)
    inputs: str = checked("concat", choices=INPUTS)
    """What the bank reads: ``x``, ``z``, ``random`` noise, or both X and Z, fused by ``concat``,
    ``mass`` or ``softmax``."""
    feature_norm: str = checked("l2", choices=(*FEATURE_NORMS, *SCALED))
    """How features are scaled: rows by their ``l1`` or ``l2`` norm, or ``none``; ``standard``
    standardises dense columns, or their logarithms where the tail is heavy, and normalises rows of
    the others (see :class:`vepm.data.scaling.Scaling`); ``auto`` also adds spectral coordinates to
    a graph with fewer than 16 informative columns, ``coordinates`` to every single graph."""
    bank_layers: int = checked(1, low=1, high=DEEPEST)
    composer: str = checked("gnn", choices=COMPOSERS)
    composer_layers: int = checked(1, low=1, high=DEEPEST)
    hops: int = checked(0, low=0, high=DEEPEST)
    dropout: float = checked(0.5, low=0, below=1)
    node_dropout: float = checked(0.0, low=0, below=1)
    pooling: str = checked("sum", choices=POOLINGS)
    readout: str = checked("jumping", choices=READOUTS)

    def arguments(self) -> dict[str, Any]:
        """Keyword arguments for :class:`vepm.nn.VEPM`."""
        fused = {"inputs": "both", "fusion": self.inputs} if self.inputs in FUSIONS else {}
        decided = {"feature_norm": "none"} if self.feature_norm in SCALED else {}
        decided |= {"partition": "learned"} if self.partition == "auto" else {}
        own = {name: value for name, value in vars(self).items() if name != "encoder"}
        own["grouping"] = GROUPING[self.shares]
        own["encoder_conv"] = "gcn" if self.conv == "sage" else "same"
        return own | ENCODERS[self.encoder] | fused | decided


@dataclass(frozen=True)
class TrainingConfig(Section):
    """How the model is trained."""

    scheme: str = checked("alternating", choices=SCHEMES)
    """Which parameters step when: alternating, joint, predictor or scratch. Without labels, where
    pretraining is all there is, unlabelled uses the encoder's learning rate and the weight
    decay; with labels it is alternating."""
    encoder_interval: int = checked(1, low=1, high=LARGEST)
    """Steps of the predictor (M in the paper) between two steps of the encoder."""
    pretrain_epochs: int = checked(600, low=0, high=LARGEST)
    """Maximum number of epochs of pretraining on the edges alone."""
    epochs: int = checked(300, low=1, high=LARGEST)
    """Maximum number of epochs of finetuning."""
    learning_rate: float = checked(0.01, low=TINY, high=HUGE)
    """Learning rate of the predictor in finetuning."""
    encoder_learning_rate: float = checked(0.001, low=TINY, high=HUGE)
    """Learning rate of the encoder in finetuning."""
    weight_decay: float = checked(5e-4, low=0, high=HUGE)
    """Weight decay of the predictor."""
    schedule: str = checked("constant", choices=("constant", "cosine", "halving"))
    """Learning rate schedule of finetuning: constant, cosine or halving."""
    patience: int = checked(100, low=0, high=LARGEST)
    """Stop after this many epochs without a better validation accuracy; 0 never stops."""
    batch_size: int = checked(0, low=0, high=2**31)
    """Graphs per step or, for a single graph, about how many of its nodes; 0 takes all at once."""
    likelihood: str = checked("balanced", choices=("balanced", "summed", "subsampled", "masked"))
    """How the terms of the bound are reduced: ``balanced`` averages edges, non-edges, labels and
    the KL divergence each on its own, ``summed`` sums them per node; ``subsampled`` is balanced
    and estimates the edge term from a sample of nodes, as in the paper's appendix; ``masked`` is
    balanced and hides a random half of the edges and of the features from the encoder in every
    step of pretraining, so that it learns to predict edges that it does not see."""
    edge_term_weight: float = checked(1.0, low=0, high=HUGE)
    """Weight of the edge likelihood in the bound."""
    kl_weight: float = checked(0.01, low=0, high=HUGE)
    """Weight of the KL divergence from the prior in the bound."""
    shrinkage: float = checked(0.0, low=0, high=HUGE)
    """Weight of the prior that empties communities which the links can do without; the setting
    ``num_communities = "auto"`` sets it, with 32 communities to choose from."""
    passes: int = checked(1, low=1, high=LARGEST)
    """Stochastic forward passes per step of finetuning, whose predictions should agree."""
    consistency_weight: float = checked(0.0, low=0, high=HUGE)
    """Weight of their disagreement, reached after 50 epochs; it takes at least two passes and needs
    no labels."""
    class_balance_weight: float = checked(0.0, low=0, high=HUGE)
    """How strongly what they should agree on is corrected for over-predicted classes, per label of
    a class."""
    sampling: bool = checked(True)
    """Sample affiliations while training; otherwise use the posterior mean."""
    num_samples: int = checked(0, low=0, high=MOST_SAMPLES)
    """Samples averaged by a prediction; 0 uses the posterior mean."""


@dataclass(frozen=True)
class Config:
    """All settings of a run, other than the data and the seed.

    Example:
        >>> config = Config().replace(num_metacommunities=4, epochs=50)
        >>> config.model.num_metacommunities, config.training.epochs
        (4, 50)
        >>> Config.from_toml(config.to_toml()) == config
        True
    """

    model: ModelConfig = field(default_factory=ModelConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)

    def replace(self, **changes: Any) -> "Config":
        """A copy with settings of either section changed; names are unique across both."""
        changes = upgraded(changes)
        if changes.get("num_communities") == "auto":
            changes = AUTO | changes | {"num_communities": AUTO["num_communities"]}
        for name in changes.keys() - FIELDS:
            raise unknown(name, FIELDS, "settings")
        changed = {}
        for section, kind in SECTIONS.items():
            own = {name: changes[name] for name in fields_of(kind) if name in changes}
            changed[section] = dataclasses.replace(getattr(self, section), **own)
        return Config(**changed)

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Sections as plain dictionaries."""
        return dataclasses.asdict(self)

    def to_toml(self) -> str:
        """The settings as TOML text."""
        lines = []
        for section, values in self.to_dict().items():
            lines.append(f"[{section}]")
            # JSON's numbers, booleans and strings are also TOML's.
            lines += [f"{key} = {json.dumps(value)}" for key, value in values.items()]
            lines.append("")
        return "\n".join(lines)

    @classmethod
    def from_dict(cls, sections: dict[str, Any]) -> "Config":
        """Read sections of plain values; what is left out keeps its default."""
        return cls().updated(sections)

    def updated(self, sections: dict[str, Any]) -> "Config":
        """A copy in which the given sections' values replace this one's."""
        changes: dict[str, Any] = {}
        if not isinstance(sections, dict):
            raise InputError(f"settings: {sections!r} is not a table")
        for section, values in sections.items():
            if section not in SECTIONS or not isinstance(values, dict):
                tables = " and ".join(f"[{name}]" for name in SECTIONS)
                raise InputError(f"settings: unknown section [{section}]; use {tables}")
            own = upgraded(values)
            for name in own.keys() & FIELDS.keys() - fields_of(SECTIONS[section]).keys():
                raise InputError(f"settings: {name} belongs in another section than [{section}]")
            changes |= own
        return self.replace(**changes)

    @classmethod
    def from_toml(cls, text: str) -> "Config":
        """Read TOML text with sections [model] and [training]."""
        try:
            sections = parse_toml(text)
        except ValueError as error:
            raise InputError(f"settings are not valid TOML: {error}") from None
        return cls.from_dict(sections)


SECTIONS: dict[str, type] = {"model": ModelConfig, "training": TrainingConfig}
FIELDS: dict[str, dataclasses.Field[Any]] = fields_of(*SECTIONS.values())


RENAMED = {"alignment": "class_balance_weight", "edge_weight": "edge_term_weight"}
_TABLES = read_toml(FOLDER / "legacy.toml")
REMOVED: dict[str, dict[str, Any]] = _TABLES["removed"]
LATER: dict[str, dict[str, Any]] = _TABLES["later"]


def upgraded(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by their current names; one that was removed must have the value it is fixed to."""
    found = dict(changes)
    fixed = REMOVED["model"] | REMOVED["training"]
    # Whatever a file says, which may be a list.
    fixed["grouping"] = GROUPING.get(str(found.get("shares")), "what goes with shares")
    if found.get("consistency_weight") == 0:
        # There is nothing to warm up.
        found.pop("consistency_warmup", None)
    for name, value in fixed.items():
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


def recorded(config: Config) -> dict[str, dict[str, Any]]:
    """The settings as results and their fingerprints have recorded them from the beginning.

    What was renamed or removed since keeps its old form; :meth:`Config.from_dict` reads it back.
    """
    sections = {name: REMOVED[name] | values for name, values in config.to_dict().items()}
    model, training = sections["model"], sections["training"]
    model["grouping"] = GROUPING[model["shares"]]
    if training["consistency_weight"] == 0:
        training["consistency_warmup"] = 0
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


PRESETS: dict[str, dict[str, Config]] = {}  # by name and task
for _name, _tasks in read_toml(FOLDER / "presets.toml").items():
    _base = PRESETS.get(_tasks.pop("base", ""), {})
    PRESETS[_name] = {t: _base.get(t, Config()).replace(**own) for t, own in _tasks.items()}


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
