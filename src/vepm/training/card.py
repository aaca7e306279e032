"""What a model file says of itself, beside the weights."""

import copy
import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import torch
from torch import Tensor

from vepm.data import Dataset
from vepm.data.anchors import Anchors
from vepm.data.coordinates import NUM_POSITIONS, needs_coordinates, with_coordinates
from vepm.data.node_features import with_columns
from vepm.data.scaling import Scaling
from vepm.errors import InputError
from vepm.nn import VEPM
from vepm.training.config import REMOVED, SCALED, Config

logger = logging.getLogger("vepm")

TENSORS = ("anchors", "scaling", "used")
"""What a card holds in tensors, which stand beside the weights in a model file."""


@dataclass(frozen=True, eq=False)
class Used:
    """The nodes that a model was fitted to, so that no score counts them."""

    graph: Tensor  # digest of the edges of their graph, by which it is recognised
    nodes: Tensor

    @classmethod
    def of(cls, dataset: Dataset, *nodes: Tensor) -> Self:
        """Nodes of a dataset of one graph."""
        graph = dataset.graphs[0]
        digest = hashlib.blake2b(str(graph.num_nodes).encode(), digest_size=16)
        digest.update(graph.edge_index.contiguous().numpy())
        found = torch.tensor(list(digest.digest()), dtype=torch.uint8)
        return cls(found, torch.cat(nodes))

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> Self:
        """The nodes behind :meth:`tensors`; a ValueError or KeyError if those are others."""
        graph, nodes = tensors["graph"], tensors["nodes"]
        if graph.dtype != torch.uint8 or nodes.dtype != torch.int64 or nodes.dim() != 1:
            raise ValueError(f"training nodes are {list(nodes.shape)} {nodes.dtype}")
        return cls(graph, nodes)

    def tensors(self) -> dict[str, Tensor]:
        """The nodes as a file of tensors can hold them."""
        return dict(vars(self))

    def within(self, dataset: Dataset) -> Tensor:
        """Their indices in a dataset; none if its graph is another."""
        same = dataset.single_graph and Used.of(dataset, self.nodes[:0]).graph.equal(self.graph)
        if not same:
            return self.nodes[:0]
        # A file may claim anything.
        return self.nodes[(self.nodes >= 0) & (self.nodes < dataset.labels.numel())]


@dataclass(frozen=True)
class ModelCard:
    """The description of a model: what it was trained on, and with which settings."""

    task: str
    in_channels: int
    config: Config
    class_names: tuple[str, ...]
    seed: int = 0
    feature_names: tuple[str, ...] | None = None  # of the columns; None if they had no names
    added_positions: int = 0  # columns of spectral coordinates beside those of the data
    directed: bool = False
    weighted: bool | None = None  # None in files of earlier versions, which do not say
    anchors: Anchors | None = field(default=None, compare=False)
    """The nodes of the training graph, where features are their coordinates in it."""
    scaling: Scaling | None = field(default=None, compare=False)
    """How columns are brought to one scale; None if the model takes them as they are."""
    used: Used | None = field(default=None, compare=False)
    """The nodes that trained or validated; None where graphs did, or nothing is known."""

    @classmethod
    def of(cls, dataset: Dataset, config: Config, seed: int = 0) -> Self:
        """The card of a model that is to be trained on a dataset, its partition settled."""
        norm, whole, model = config.model.feature_norm, dataset, config.model
        if model.partition == "auto":
            config = config.replace(partition="learned")
        elif model.partition == "kinds":
            if dataset.kind_names is None or not dataset.single_graph:
                raise InputError(
                    f"{dataset.name}: its edges are of no known kinds to split them by; give a "
                    "kind of each edge with the data, or another partition"
                )
            kinds = len(dataset.kind_names)
            communities = max(kinds, model.num_communities)
            config = config.replace(num_metacommunities=kinds, num_communities=communities)
        if needs_coordinates(dataset, norm):
            whole = with_coordinates(dataset)
        return cls(
            dataset.task,
            dataset.num_features,
            config,
            dataset.class_names,
            int(seed),
            dataset.feature_names,
            whole.num_features - dataset.num_features,
            dataset.directed,
            dataset.weighted,
            Anchors.of(whole),
            Scaling.of(whole.features, whole.num_positions) if norm in SCALED else None,
        )

    @property
    def width(self) -> int:
        """Number of columns that the model reads, coordinates included."""
        return self.in_channels + self.added_positions

    @classmethod
    def from_description(cls, description: dict[str, Any]) -> Self:
        """The card behind a description from a file, or an error of any kind if it is none."""
        width, seed = description["in_channels"], description["seed"]
        # Files of earlier versions do not have these.
        names, weighted = description.get("feature_names"), description.get("weighted")
        added = description.get("added_positions", 0)
        _require(type(width) is int and 1 <= width < 2**31, f"{width!r} is not a width")
        _require(type(seed) is int and -(2**63) <= seed < 2**64, f"{seed!r} is not a seed")
        _require(added in (0, NUM_POSITIONS), f"{added!r} columns of coordinates")
        _require(weighted in (None, True, False), f"{weighted!r} is neither true nor false")
        if names is not None:
            text = isinstance(names, list) and all(isinstance(name, str) for name in names)
            _require(text, "feature names are not a list of text")
            fit = len(names) == len(set(names)) == width
            _require(fit, f"{len(set(names))} different feature names for {width} features")
        sections = description["config"]
        if isinstance(sections, dict) and isinstance(own := sections.get("training"), dict):
            # The model is trained: settings of training that were removed do not matter any more.
            kept = {name: value for name, value in own.items() if name not in REMOVED["training"]}
            sections = sections | {"training": kept}
        return cls(
            task=description["task"],
            in_channels=width,
            config=Config.from_dict(sections),
            class_names=tuple(str(name) for name in description["class_names"]),
            seed=seed,
            feature_names=None if names is None else tuple(names),
            added_positions=int(added),
            directed=description.get("directed") is True,
            weighted=None if weighted is None else bool(weighted),
        )

    def with_tensors(self, parts: Mapping[str, Mapping[str, Tensor]]) -> Self:
        """A card read from a file, with the tensors that stood beside the weights."""
        anchors = Anchors.from_tensors(parts["anchors"]) if parts["anchors"] else None
        if self.added_positions and anchors is None:
            raise ValueError("coordinates are missing")
        scaled = self.config.model.feature_norm in SCALED
        scaling = Scaling.from_tensors(parts["scaling"], self.width) if scaled else None
        used = Used.from_tensors(parts["used"]) if parts["used"] else None
        return replace(self, anchors=anchors, scaling=scaling, used=used)

    def description(self) -> dict[str, Any]:
        """The card as JSON can hold it, which is all but its tensors."""
        described = vars(self) | {"config": self.config.to_dict()}
        return {key: value for key, value in described.items() if key not in TENSORS}

    def prepare(self, dataset: Dataset) -> Dataset:
        """New data with the feature columns of this model: their order, meaning and scale."""
        if dataset.prepared:
            return dataset
        if dataset.directed != self.directed:
            how = "with" if self.directed else "without"
            raise InputError(
                f"{dataset.name}: the model was trained on a graph read {how} directed=True "
                "(--directed); read this one so, too"
            )
        if self.weighted is False and dataset.weighted:
            raise InputError(
                f"{dataset.name}: its edges have weights, and the model was trained without; read "
                "it with weights=False (--no-weights)"
            )
        if self.weighted and not dataset.weighted:
            # Edges that all have weight 1 are a legitimate input.
            logger.warning(
                "%s: the model was trained on weighted edges; here all have weight 1", dataset.name
            )
        dataset = with_columns(dataset, self.feature_names, self.in_channels)
        if self.added_positions:
            dataset = with_coordinates(dataset)
        if self.anchors and dataset.num_positions:
            dataset = self.anchors.align(dataset)
        if self.scaling is None:
            return dataset
        graphs = [copy.copy(graph) for graph in dataset.graphs]
        for graph in graphs:
            graph.x = self.scaling(graph.x)
        return replace(dataset, graphs=graphs, prepared=True)

    def num_weights(self) -> int:
        """Number of weights of the model, which takes no memory for them."""
        with torch.device("meta"):
            return sum(weight.numel() for weight in self.build().parameters())

    def build(self) -> VEPM:
        """A model of this description, its weights at their random start."""
        if self.directed and self.config.training.likelihood == "subsampled":
            raise InputError("settings: directed links need the likelihood balanced or summed")
        options = self.config.model.arguments() | {"task": self.task, "directed": self.directed}
        try:
            return VEPM(self.width, max(len(self.class_names), 1), **options)
        except ValueError as error:
            raise InputError(f"settings: {error}") from None


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)
