"""Spectral coordinates of other graphs, aligned with those that a model was trained on."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from vepm.data.dataset import Dataset
from vepm.data.features import NUM_POSITIONS
from vepm.errors import InputError

MOST_EDGES = 10_000
"""Edges kept to recognise a graph by; more make it no surer."""
_FEWEST_SHARED = 0.5


@dataclass(frozen=True, eq=False)
class Anchors:
    """Nodes of the graph that a model with few features, or none, was trained on.

    Coordinates are computed for each graph anew, so a node more or less may turn them all. On
    another graph the nodes of training keep the coordinates they had; new nodes get theirs by the
    linear map that fits best on the shared ones.

    Args:
        coordinates: spectral coordinates of each node [N, P].
        edges: some of the edges [2, M], by which the graph is recognised.
        names: the id of each node, if known.
    """

    coordinates: Tensor
    edges: Tensor
    names: tuple[str, ...] | None

    @classmethod
    def of(cls, dataset: Dataset) -> Self | None:
        """The anchors of a dataset; None if its features do not depend on the whole graph."""
        if not dataset.num_positions:
            return None
        graph = dataset.graphs[0]
        once = graph.edge_index[:, graph.edge_index[0] < graph.edge_index[1]]
        kept = once[:, :: -(-once.size(1) // MOST_EDGES) or 1]
        return cls(graph.x[:, -dataset.num_positions :], kept, _ids(dataset))

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> Self:
        """The anchors behind :meth:`tensors`.

        Raises:
            ValueError, KeyError, TypeError: if the tensors do not fit together.
        """
        coordinates, edges = tensors["coordinates"], tensors["edges"]
        if edges.dim() != 2 or len(edges) != 2 or edges.dtype != torch.int32:
            raise ValueError(f"edges are {list(edges.shape)} {edges.dtype}")
        if coordinates.shape[1:] != (NUM_POSITIONS,) or coordinates.dtype != torch.float32:
            raise ValueError(f"coordinates are {list(coordinates.shape)} {coordinates.dtype}")
        if not coordinates.isfinite().all():
            raise ValueError("coordinates are not finite")
        if edges.numel() and not 0 <= edges.min() <= edges.max() < len(coordinates):
            raise ValueError("edges name nodes that have no coordinates")
        names = None
        if "names" in tensors:
            names = tuple(map(str, json.loads(tensors["names"].numpy().tobytes())))
            if len(set(names)) != len(coordinates):
                raise ValueError(f"{len(set(names))} node ids for {len(coordinates)} nodes")
        return cls(coordinates, edges.long(), names)

    def tensors(self) -> dict[str, Tensor]:
        """The anchors as a file of tensors can hold them."""
        tensors = {"coordinates": self.coordinates, "edges": self.edges.int()}
        if self.names is not None:
            text = bytearray(json.dumps(self.names).encode())
            tensors["names"] = torch.frombuffer(text, dtype=torch.uint8)
        return tensors

    def align(self, dataset: Dataset) -> Dataset:
        """The dataset with coordinates that mean what they meant in training.

        Raises:
            InputError: if it is not the graph of training, with nodes added or removed.
        """
        place = self._places(dataset)
        self._check_edges(dataset, place)
        known = place >= 0
        graph = dataset.graphs[0].clone()
        own = graph.x[:, -dataset.num_positions :]
        aligned = self.coordinates[place]
        if not known.all():
            pair = own[known].double(), aligned[known].double()
            # Columns may be zero or depend on each other, which this driver allows.
            turn = torch.linalg.lstsq(*pair, driver="gelsd").solution
            aligned[~known] = (own[~known].double() @ turn).float()
        graph.x = torch.cat([graph.x[:, : -dataset.num_positions], aligned], dim=1)
        # They are the model's coordinates from here on, no longer the graph's own.
        return replace(dataset, graphs=[graph], num_positions=0)

    def _places(self, dataset: Dataset) -> Tensor:
        """The row of each of the dataset's nodes here; -1 for new ones."""
        names, count = _ids(dataset), dataset.graphs[0].x.size(0)
        if self.names is None or names is None:
            if count != len(self.coordinates):
                raise _refusal(
                    dataset,
                    f"its nodes have no ids and are {count}, not the {len(self.coordinates)} of "
                    "training",
                )
            return torch.arange(count)
        index = {name: i for i, name in enumerate(self.names)}
        place = torch.tensor([index.get(name, -1) for name in names])
        shared = int((place >= 0).sum())
        if shared < _FEWEST_SHARED * count:
            raise _refusal(dataset, f"only {shared} of its {count} nodes are known from training")
        return place

    def _check_edges(self, dataset: Dataset, place: Tensor) -> None:
        """Refuse another graph whose nodes happen to have the same ids."""
        count, edge_index = len(self.coordinates), dataset.graphs[0].edge_index
        present = torch.zeros(count, dtype=torch.bool)
        present[place[place >= 0]] = True
        expected = self.edges[:, present[self.edges].all(0)]
        ends = place[edge_index]
        keys = (ends[0] * count + ends[1])[(ends >= 0).all(0)]
        found = torch.isin(expected[0] * count + expected[1], keys).float()
        # Without ids, a node removed shifts all that follow it.
        fewest = _FEWEST_SHARED if self.names is not None and _ids(dataset) is not None else 1.0
        if found.numel() and found.mean() < fewest:
            raise _refusal(
                dataset, f"only {found.mean():.0%} of the edges of training between its nodes exist"
            )


def _ids(dataset: Dataset) -> tuple[str, ...] | None:
    """The ids of the nodes, unless two nodes share one."""
    names = dataset.node_names[0] if dataset.node_names else ()
    return names if names and len(set(names)) == len(names) else None


def _refusal(dataset: Dataset, reason: str) -> InputError:
    return InputError(
        f"{dataset.name}: the model was trained without features, or with few, and reads "
        f"coordinates of the graph it was trained on; {reason}; train on this graph, or give the "
        "nodes features and set feature_norm = standard"
    )
