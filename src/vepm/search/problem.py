"""What a search is about: data whose test labels are gone, settings to start from, a space."""

import copy
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import torch
from torch import Tensor
from torch_geometric.data import Data

from vepm.data import Dataset
from vepm.data.sparse import is_sparse
from vepm.errors import InputError
from vepm.search.space import Space
from vepm.tasks import UNLABELLED
from vepm.training import Config


@dataclass(frozen=True, eq=False)
class Problem:
    """Settings to improve on, and what decides which are better.

    Make it with :meth:`of`, which leaves only the labels that may be looked at.
    """

    dataset: Dataset
    """The graphs; only what trains or validates still has labels."""
    train: Tensor
    """Numbers of the nodes or graphs to learn from."""
    val: Tensor
    """Numbers of those that score the settings."""
    base: Config
    """The settings that trial 0 tries; the others change what the space names."""
    space: Space
    seeds: int = 1
    """Trainings per trial, with seeds 0, 1, ...; their mean scores it."""
    sampler_seed: int = 0
    """Seed of the search itself."""

    @classmethod
    def of(
        cls,
        dataset: Dataset,
        train: Tensor,
        val: Tensor,
        base: Config,
        space: Space,
        *,
        seeds: int = 1,
        sampler_seed: int = 0,
    ) -> Self:
        """A problem on a dataset from which every other label is removed.

        Raises:
            InputError: if nothing trains or nothing validates.
        """
        for role, rows in (("train", train), ("validate", val)):
            if rows.numel() == 0:
                raise InputError(
                    f"{dataset.name}: no {dataset.task} is there to {role} on; tuning needs "
                    "labels to learn from and others to choose by"
                )
        seen = _keep_labels(dataset, torch.cat([train, val]))
        return cls(seen, train, val, base, space, seeds, sampler_seed)

    @property
    def base_values(self) -> dict[str, Any]:
        """Every setting to start from, by name."""
        return {**vars(self.base.model), **vars(self.base.training)}

    @cached_property
    def identity(self) -> dict[str, Any]:
        """All that must be the same for a search to go on; no test label has a part in it."""
        graphs = self.dataset.graphs
        tensors = [t for graph in graphs for t in (graph.x, graph.edge_index, graph.y)]
        return {
            "dataset": self.dataset.name,
            "task": self.dataset.task,
            "data": _digest([*tensors, self.train, self.val]),
            "settings": self.base.to_dict(),
            "space": self.space.to_dict(),
            "seeds": self.seeds,
            "sampler_seed": self.sampler_seed,
        }


def _keep_labels(dataset: Dataset, rows: Tensor) -> Dataset:
    """The dataset without the labels of any other node or graph.

    Args:
        dataset: the graphs.
        rows: numbers of the nodes or graphs that keep their labels.
    """
    if dataset.task == "node":
        graph = dataset.graphs[0]
        y = torch.full_like(graph.y, UNLABELLED)
        y[rows] = graph.y[rows]
        return replace(dataset, graphs=[_with_labels(graph, y)])
    kept = set(rows.tolist())
    graphs = [
        _with_labels(graph, graph.y if i in kept else torch.full_like(graph.y, UNLABELLED))
        for i, graph in enumerate(dataset.graphs)
    ]
    return replace(dataset, graphs=graphs)


def _with_labels(graph: Data, y: Tensor) -> Data:
    labelled = copy.copy(graph)
    labelled.y = y
    return labelled


def _digest(tensors: Iterable[Tensor]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for tensor in tensors:
        digest.update(repr(tuple(tensor.shape)).encode())
        parts = (tensor.indices(), tensor.values()) if is_sparse(tensor) else (tensor,)
        for part in parts:
            digest.update(part.contiguous().numpy().tobytes())
    return digest.hexdigest()
