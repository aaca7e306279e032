"""Settings as frozen dataclasses, in and out of TOML; an unknown key is an error."""

import dataclasses
import difflib
import json
import tomllib
from dataclasses import dataclass, field
from typing import Any

from vepm.errors import InputError


@dataclass(frozen=True)
class ModelConfig:
    """Keyword arguments of :class:`vepm.nn.VEPM` other than what the data decide."""

    num_communities: int = 64
    num_metacommunities: int = 8
    hidden_channels: int = 64
    conv: str = "gcn"
    encoder_channels: int = 64
    encoder_layers: int = 2
    encoder_batch_norm: bool = True
    encoder_dropout: float = 0.0
    shape: str = "entry"
    partition: str = "learned"
    temperature: float = 1.0
    normalize: str = "community"
    inputs: str = "both"
    fusion: str = "concat"
    fusion_weight: float = 0.03
    feature_norm: str = "l2"
    bank_layers: int = 1
    composer: str = "gnn"
    composer_layers: int = 1
    hops: int = 0
    teleport: float = 0.1
    dropout: float = 0.5
    node_dropout: float = 0.0
    pooling: str = "sum"
    readout: str = "jumping"


@dataclass(frozen=True)
class TrainingConfig:
    """How the model is trained."""

    scheme: str = "alternating"
    """Which parameters step when: alternating, joint, predictor or scratch."""
    encoder_interval: int = 1
    """Steps of the predictor (M in the paper) between two steps of the encoder."""
    pretrain_epochs: int = 600
    """Most epochs of the pretraining on edges alone."""
    pretrain_learning_rate: float = 0.01
    """Learning rate of pretraining."""
    pretrain_patience: int = 100
    """Pretraining has converged when this many epochs brought no improvement."""
    pretrain_tolerance: float = 1e-4
    """What counts as an improvement of the pretraining loss, relative to it."""
    pretraining: str = "transductive"
    """Graphs that pretraining sees: all (transductive), or the training ones (inductive)."""
    epochs: int = 300
    """Most epochs of finetuning."""
    learning_rate: float = 0.01
    """Learning rate of the predictor in finetuning."""
    encoder_learning_rate: float = 0.001
    """Learning rate of the encoder in finetuning."""
    weight_decay: float = 5e-4
    """Decay of the predictor's weights."""
    schedule: str = "constant"
    """Learning rate over the epochs of finetuning: constant, cosine or halving."""
    patience: int = 100
    """Stop after this many epochs without a better validation accuracy; 0 never stops."""
    batch_size: int = 0
    """Graphs per step for graph tasks; 0 takes all at once."""
    batch_nodes: int = 0
    """About how many nodes of one large graph per step; 0 takes the graph at once."""
    batch_clusters: int = 8
    """Clusters of nodes, drawn anew in every epoch, that make up such a step."""
    likelihood: str = "exact"
    """Edge likelihood: exact, or subsampled as in the paper's appendix."""
    subsample: int = 200
    """Nodes drawn by the subsampled likelihood."""
    balanced: bool = True
    """Average edges, non-edges, labels and divergence each on its own instead of summing."""
    edge_weight: float = 1.0
    """Weight of the edge likelihood in the bound."""
    kl_weight: float = 0.01
    """Weight of the divergence from the prior in the bound."""
    prior_shape: float = 1.0
    """Shape of the Gamma prior of an affiliation."""
    prior_rate: float = 1.0
    """Rate of the Gamma prior of an affiliation."""
    passes: int = 1
    """Noisy passes per step of finetuning whose predictions are held to agree."""
    consistency_weight: float = 0.0
    """Weight of their disagreement; it needs at least two passes and no labels."""
    consistency_warmup: int = 0
    """Epochs over which that weight grows from nothing."""
    sharpening: float = 0.5
    """Temperature at which their mean becomes what they should agree on; below one is surer."""
    alignment: float = 0.0
    """How hard classes that most predictions favour are held back there, by labels per class."""
    sampling: bool = True
    """Draw affiliations while training; otherwise take the posterior mean."""
    num_samples: int = 0
    """Draws averaged by a prediction; 0 takes the posterior mean."""


@dataclass(frozen=True)
class Config:
    """Everything that decides a run but the data and the seed.

    Example:
        >>> config = Config().replace(num_metacommunities=4, epochs=50)
        >>> config.model.num_metacommunities, config.training.epochs
        (4, 50)
        >>> Config.from_toml(config.to_toml()) == config
        True
    """

    model: ModelConfig = field(default_factory=ModelConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)

    def __post_init__(self) -> None:
        _check(self)

    def replace(self, **changes: Any) -> "Config":
        """A copy with fields of either section changed, each named once across both."""
        sections = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        for name, value in changes.items():
            section = _section_of(name)
            sections[section] = dataclasses.replace(sections[section], **{name: value})
        return Config(**sections)

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
        config = self
        if not isinstance(sections, dict):
            raise InputError(f"settings: {sections!r} is no table; use {SECTIONS_IN_WORDS}")
        for section, values in sections.items():
            if section not in SECTIONS or not isinstance(values, dict):
                raise InputError(f"settings: unknown section [{section}]; use {SECTIONS_IN_WORDS}")
            for key, value in values.items():
                if _section_of(key) != section:
                    raise InputError(f"settings: {key} belongs in [{_section_of(key)}]")
                config = config.replace(**{key: value})
        return config

    @classmethod
    def from_toml(cls, text: str) -> "Config":
        """Read TOML text with sections [model] and [training]."""
        try:
            return cls.from_dict(tomllib.loads(text))
        except tomllib.TOMLDecodeError as error:
            raise InputError(f"settings are not valid TOML: {error}") from None


SECTIONS: dict[str, type] = {"model": ModelConfig, "training": TrainingConfig}
SECTIONS_IN_WORDS = " and ".join(f"[{name}]" for name in SECTIONS)
FIELDS: dict[str, dataclasses.Field[Any]] = {
    f.name: f for section in SECTIONS.values() for f in dataclasses.fields(section)
}
CHOICES: dict[str, tuple[str, ...]] = {
    "scheme": ("alternating", "joint", "predictor", "scratch"),
    "schedule": ("constant", "cosine", "halving"),
    "likelihood": ("exact", "subsampled"),
    "pretraining": ("transductive", "inductive"),
}
AT_LEAST_ONE = {
    "num_communities",
    "num_metacommunities",
    "hidden_channels",
    "encoder_channels",
    "encoder_layers",
    "bank_layers",
    "composer_layers",
    "encoder_interval",
    "passes",
    "subsample",
    "epochs",
}
AT_LEAST_TWO = {"batch_clusters"}
ABOVE_ZERO = {
    "temperature",
    "sharpening",
    "learning_rate",
    "pretrain_learning_rate",
    "encoder_learning_rate",
    "prior_shape",
    "prior_rate",
}
# A settings file from a stranger must not be able to ask for all the memory there is.
LARGEST = 2**20
# Layers are objects of their own, which take time and memory to make before any weight does.
DEEPEST = 1000


def _section_of(name: str) -> str:
    for section, kind in SECTIONS.items():
        if any(f.name == name for f in dataclasses.fields(kind)):
            return section
    close = difflib.get_close_matches(name, FIELDS, n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    raise InputError(f"settings: there is no {name!r}{hint}")


def _check(config: Config) -> None:
    values = {**vars(config.model), **vars(config.training)}
    for name, value in values.items():
        _check_type(name, value)
        largest = DEEPEST if name.endswith("_layers") else LARGEST
        if name in AT_LEAST_ONE and not 1 <= value <= largest:
            raise InputError(f"settings: {name} must be between 1 and {largest}, got {value}")
        if name in AT_LEAST_TWO and not 2 <= value <= largest:
            raise InputError(f"settings: {name} must be between 2 and {largest}, got {value}")
        if name in ABOVE_ZERO and not 0 < value < float("inf"):
            raise InputError(f"settings: {name} must be positive, got {value}")
        if name == "hops" and value > DEEPEST:
            raise InputError(f"settings: hops must be at most {DEEPEST}, got {value}")
        if name == "teleport" and value > 1:
            raise InputError(f"settings: teleport must be at most 1, got {value}")
        if "dropout" in name and not 0 <= value < 1:
            raise InputError(f"settings: {name} must be at least 0 and below 1, got {value}")
        if not isinstance(value, str) and not 0 <= value < float("inf"):
            raise InputError(f"settings: {name} must be a number of at least 0, got {value}")
        if name in CHOICES and value not in CHOICES[name]:
            raise InputError(
                f"settings: {name} must be one of {', '.join(CHOICES[name])}, got {value!r}"
            )


def _check_type(name: str, value: Any) -> None:
    expected = FIELDS[name].type
    allowed = (int, float) if expected is float else (expected,)
    if type(value) not in allowed:
        kind = getattr(expected, "__name__", str(expected))
        raise InputError(f"settings: {name} must be of type {kind}, got {value!r}")
