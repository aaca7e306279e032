"""What spectral coordinates meant in training, so that they mean the same on a changed graph."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor
from torch_geometric.data import Data

from vepm.data.dataset import Dataset
from vepm.data.scaling import NUM_POSITIONS
from vepm.errors import InputError

MOST_EDGES = 10_000  # edges kept to recognise a graph by; more make it no surer
_FEWEST_SHARED = 0.5


@dataclass(frozen=True, eq=False)
class Anchors:
    """Nodes of the graph that a model with few features, or none, was trained on.

    A node more or less may turn all coordinates. On another graph the nodes of training keep those
    [N, P] they had; new nodes get theirs by the linear map that fits best on the shared ones.
    """

    coordinates: Tensor
    edges: Tensor  # some of the edges [2, M], which tell whether it is the same graph
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
        """The anchors behind :meth:`tensors`; ValueError, KeyError, TypeError if they are none."""
        coordinates, edges, names = tensors["coordinates"], tensors["edges"], None
        count = len(coordinates)
        if "names" in tensors:
            names = tuple(map(str, json.loads(tensors["names"].numpy().tobytes())))
        if (
            (coordinates.dtype, coordinates.shape[1:]) != (torch.float32, (NUM_POSITIONS,))
            or not coordinates.isfinite().all()
            or (edges.dtype, edges.dim(), len(edges)) != (torch.int32, 2, 2)
            or ((edges < 0) | (edges >= count)).any()
            or (names is not None and len(set(names)) != count)
        ):
            raise ValueError("its coordinates of nodes are damaged")
        return cls(coordinates, edges.long(), names)

    def tensors(self) -> dict[str, Tensor]:
        """The anchors as a file of tensors can hold them."""
        tensors = {"coordinates": self.coordinates, "edges": self.edges.int()}
        if self.names is not None:
            text = bytearray(json.dumps(self.names).encode())
            tensors["names"] = torch.frombuffer(text, dtype=torch.uint8)
        return tensors

    def align(self, dataset: Dataset) -> Dataset:
        """The dataset with coordinates that mean what they meant in training."""
        graph = dataset.graphs[0].clone()
        own = graph.x[:, -dataset.num_positions :]
        place, reason = self._places(_ids(dataset), graph)
        if reason:
            found = "the model knows nodes by their place in the graph it was trained on"
            remedy = "train on this graph, or give nodes features and set feature_norm = standard"
            raise InputError(f"{dataset.name}: {found}; {reason}; {remedy}")
        known, aligned = place >= 0, self.coordinates[place]
        if not known.all():
            pair = own[known].double(), aligned[known].double()
            # Columns may be zero or depend on each other, which this driver allows.
            turn = torch.linalg.lstsq(*pair, driver="gelsd").solution
            aligned[~known] = (own[~known].double() @ turn).float()
        graph.x = torch.cat([graph.x[:, : -dataset.num_positions], aligned], dim=1)
        # They are the model's coordinates from here on, no longer the graph's own.
        return replace(dataset, graphs=[graph], num_positions=0)

    def _places(self, names: tuple[str, ...] | None, graph: Data) -> tuple[Tensor, str]:
        """The row of each node here, -1 for new ones, and why it is another graph, if it is."""
        total, count = len(self.coordinates), graph.x.size(0)
        # Without ids, a node removed shifts all that follow it.
        fewest, place = 1.0, torch.arange(count)
        if self.names is not None and names is not None:
            index = {name: i for i, name in enumerate(self.names)}
            fewest, place = _FEWEST_SHARED, torch.tensor([index.get(name, -1) for name in names])
        elif count != total:
            return place, f"its nodes have no ids and are {count}, not the {total} of training"
        if (shared := int((place >= 0).sum())) < fewest * count:
            return place, f"only {shared} of its {count} nodes are known from training"
        # The nodes of another graph may happen to have the same ids.
        expected = self.edges[:, torch.isin(self.edges, place).all(0)]
        ends = place[graph.edge_index]
        keys = (ends[0] * total + ends[1])[(ends >= 0).all(0)]
        found = torch.isin(expected[0] * total + expected[1], keys).float().mean()
        wrong = f"only {found:.0%} of the edges of training between its nodes exist"
        # The mean of no edges is NaN.
        return place, wrong if found < fewest else ""


def _ids(dataset: Dataset) -> tuple[str, ...] | None:
    """The ids of the nodes, unless two nodes share one."""
    (names,) = dataset.node_names or (None,)
    return names if names and len(set(names)) == len(names) else None
