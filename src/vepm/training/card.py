"""The description of a model that its file holds beside the weights."""

import copy
import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import torch
from torch import Tensor

from vepm import schema
from vepm.data import Dataset
from vepm.data.canonical import NUM_POSITIONS
from vepm.data.dataset import with_columns
from vepm.data.scaling import (
    ALIKE,
    FEW_COLUMNS,
    Anchors,
    Scaling,
    assortativity,
    needs_coordinates,
    with_coordinates,
)
from vepm.errors import InputError
from vepm.nn import VEPM
from vepm.schema import checked, fields_of
from vepm.training.config import REMOVED, SCALED, Config

logger = logging.getLogger("vepm")

TENSORS = ("anchors", "scaling", "used")
"""The parts of a card that are tensors, stored beside the weights in a model file."""


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
        return cls(torch.tensor(list(digest.digest()), dtype=torch.uint8), torch.cat(nodes))

    def tensors(self) -> dict[str, Tensor]:
        """The nodes as named tensors, for a file."""
        return dict(vars(self))

    def within(self, dataset: Dataset) -> Tensor:
        """Their indices in a dataset; none if it is a different graph."""
        nodes = self.nodes.long().flatten()
        digest = Used.of(dataset, nodes).graph.tolist() if dataset.single_graph else None
        if digest != self.graph.tolist():
            return nodes[:0]
        # A file may claim anything.
        return nodes[(nodes >= 0) & (nodes < dataset.labels.numel())]


@dataclass(frozen=True)
class ModelCard:
    """The description of a model: what it was trained on, and with which settings."""

    task: str
    in_channels: int
    config: Config
    class_names: tuple[str, ...]
    seed: int = checked(0, low=-(2**63), below=2**64)
    feature_names: tuple[str, ...] | None = None  # of the columns; None if they had no names
    added_positions: int = 0  # columns of spectral coordinates added to those of the data
    directed: bool = False
    weighted: bool | None = None  # None in files of earlier versions, which do not say
    paired: int = checked(8, low=0)  # communities that begin as pairs in a matrix of interactions
    anchors: Anchors | None = field(default=None, compare=False)
    """The nodes of the training graph, where features are their coordinates in it."""
    scaling: Scaling | None = field(default=None, compare=False)
    """How columns are brought to one scale; None if the model takes them as they are."""
    used: Used | None = field(default=None, compare=False)
    """The nodes that trained or validated; None where graphs did, or nothing is known."""

    @classmethod
    def of(cls, dataset: Dataset, config: Config, seed: int = 0) -> Self:
        """The card of a model to be trained on a dataset, its partition resolved."""
        model, whole, norm = config.model, dataset, config.model.feature_norm
        if model.partition == "auto":
            config = config.replace(partition="learned")
        elif model.partition == "kinds":
            if dataset.kind_names is None or not dataset.single_graph:
                raise InputError(
                    f"{dataset.name}: the kinds of its edges, to split them by, are unknown; give "
                    "the kind of each edge with the data, or choose another partition"
                )
            kinds = len(dataset.kind_names)
            communities = max(kinds, model.num_communities)
            config = config.replace(num_metacommunities=kinds, num_communities=communities)
        if norm in FEW_COLUMNS and needs_coordinates(dataset, FEW_COLUMNS[norm]):
            whole = with_coordinates(dataset)
        paired = cls.paired
        if model.interactions == "matrix" and assortativity(dataset) < ALIKE:
            paired = model.num_communities // 2
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
            paired,
            Anchors.of(whole),
            Scaling.of(whole.features, whole.num_positions) if norm in SCALED else None,
        )

    @property
    def width(self) -> int:
        """Number of columns that the model reads, coordinates included."""
        return self.in_channels + self.added_positions

    @classmethod
    def read(
        cls, description: Mapping[str, Any], tensors: Mapping[str, Mapping[str, Tensor]]
    ) -> Self:
        """The card in a file, or an error if there is none; its tensors are beside the weights."""
        # Files of earlier versions have fewer entries, and others.
        found = {name: description[name] for name in fields_of(cls) if name in description}
        found = {k: tuple(v) if isinstance(v, list) else v for k, v in found.items()}
        sections = description["config"]
        if isinstance(sections, dict):
            # The model is trained: settings of training that were removed do not matter any more.
            own = sections.get("training", {})
            kept = {name: own[name] for name in own if name not in REMOVED["training"]}
            sections = sections | {"training": kept}
        found |= {"seed": description["seed"], "config": Config.from_dict(sections)}
        card = schema.read(cls, found, "description")
        names, width, parts = card.feature_names, card.in_channels, dict[str, Any]()
        if not 1 <= width < 2**31:
            raise ValueError(f"in_channels must be from 1 to {2**31 - 1}, got {width}")
        if names is not None and not len(names) == len(set(names)) == width:
            raise ValueError(f"{len(set(names))} different names for {width} features")
        if tensors["anchors"]:
            parts["anchors"] = Anchors.from_tensors(tensors["anchors"])
        added = card.added_positions
        if added and (added != NUM_POSITIONS or "anchors" not in parts):
            raise ValueError("coordinates are missing")
        if card.config.model.feature_norm in SCALED:
            parts["scaling"] = Scaling.from_tensors(tensors["scaling"], card.width)
        if tensors["used"]:
            parts["used"] = Used(**tensors["used"])
        return replace(card, **parts)

    def description(self) -> dict[str, Any]:
        """The card without its tensors, ready for JSON."""
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
                "(--directed); read this one in the same way"
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
        """Number of weights of the model, counted without allocating them."""
        with torch.device("meta"):
            return sum(weight.numel() for weight in self.build().parameters())

    def build(self) -> VEPM:
        """A model of this description with freshly initialised weights."""
        if self.directed and self.config.training.likelihood == "subsampled":
            raise InputError("settings: directed links need the likelihood balanced or summed")
        own = {"task": self.task, "directed": self.directed, "paired": self.paired}
        options = self.config.model.arguments() | own
        try:
            return VEPM(self.width, max(len(self.class_names), 1), **options)
        except ValueError as error:
            raise InputError(f"settings: {error}") from None
