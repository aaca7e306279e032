"""What the communities of a run look like, in numbers."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array

from vepm import nn

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


def part_of_each(num_communities: int, grouping: Floats | int) -> Ints:
    """The metacommunity to which each community mostly belongs [C]."""
    if not isinstance(grouping, int):
        return grouping.argmax(axis=1)
    return np.repeat(np.arange(grouping), nn.segment_sizes(num_communities, grouping))


def interactions(
    memberships: Floats,
    activation: Floats,
    grouping: Floats | int,
    batch: Ints | None = None,
) -> Floats:
    """:func:`vepm.nn.interactions` of arrays: each node's links by metacommunity [N, K]."""
    z, gamma, graphs = _tensor(memberships), _tensor(activation), _tensor(batch)
    found: Floats = nn.interactions(z, gamma, _tensor(grouping), graphs).numpy()
    return found


def members(interaction: Floats, batch: Ints | None = None) -> Bools:
    """:func:`vepm.nn.members` of an array: who is a member of what [N, K]."""
    found: Bools = nn.members(_tensor(interaction), _tensor(batch)).numpy()
    return found


def _tensor(array: Any) -> Any:
    """A tensor of an array's numbers; a number, or None, as it is."""
    if not isinstance(array, np.ndarray):
        return array
    dtype = np.float64 if array.dtype.kind == "f" else np.int64
    return torch.from_numpy(np.array(array, dtype=dtype))


def adjacency_matrix(edge_index: Ints, num_nodes: int) -> Any:
    """Edges as a SciPy sparse matrix [N, N], whose type SciPy's graph functions do not agree on."""
    return csr_array((np.ones(edge_index.shape[1]), edge_index), shape=(num_nodes, num_nodes))


def shares(interaction: Floats) -> Floats:
    """Each node's interactions as parts of one [N, K]; even where a node has none."""
    total = interaction.sum(axis=1, keepdims=True)
    even = np.full_like(interaction, 1 / interaction.shape[1])
    return np.divide(interaction, total, out=even, where=total > 0)


def bucket_order(interaction: Floats) -> tuple[Ints, Ints]:
    """Nodes sorted by bucket, and the bucket of each node.

    A node's bucket is the metacommunity with which it interacts most; within a bucket nodes go by
    descending interaction.
    """
    bucket = interaction.argmax(axis=1)
    strength = interaction[np.arange(len(bucket)), bucket]
    return np.lexsort((-strength, bucket)), bucket


@dataclass(frozen=True)
class CommunityTable:
    """One entry per metacommunity."""

    nodes: Ints
    """Nodes that interact most through it."""
    members: Ints
    """Nodes that are members of it, by :func:`vepm.nn.members`."""
    edge_mass: Floats
    """Sum of its shares over the edges."""
    density: Floats
    """Edges among its members over pairs of members; NaN under two members."""
    overlapping: Floats
    """Part of its members that are members elsewhere too; NaN without members."""
    jaccard: Floats
    """Shared over joint members of each pair of metacommunities [K, K]."""


def community_table(
    interaction: Floats,
    member: Bools,
    edge_index: Ints,
    edge_weight: Floats,
    batch: Ints | None = None,
) -> CommunityTable:
    """Size, density and overlap of each metacommunity."""
    count = member.sum(axis=0)
    source, target = edge_index
    inside = (member[source] & member[target]).sum(axis=0) / 2
    pairs = _pairs(member, batch)
    elsewhere = (member & (member.sum(axis=1, keepdims=True) > 1)).sum(axis=0)
    both = member.T.astype(np.float64) @ member
    union = count[:, None] + count[None, :] - both
    return CommunityTable(
        nodes=np.bincount(interaction.argmax(axis=1), minlength=interaction.shape[1]),
        members=count,
        edge_mass=edge_weight.sum(axis=0) / 2,
        density=_ratio(inside, pairs),
        overlapping=_ratio(elsewhere, count),
        jaccard=np.nan_to_num(_ratio(both, union)),
    )


def typical_nodes(interaction: Floats, count: int = 6) -> list[Ints]:
    """The nodes of each metacommunity's bucket that interact most through it."""
    order, bucket = bucket_order(interaction)
    return [order[bucket[order] == k][:count] for k in range(interaction.shape[1])]


def typical_features(
    features: Floats, interaction: Floats, count: int = 8
) -> list[list[tuple[int, float]]]:
    """Features whose mean in a metacommunity lies highest above the overall mean.

    Returns:
        Per metacommunity, pairs of a feature and its distance in standard deviations.
    """
    weight = shares(interaction)
    weight = weight / np.maximum(weight.sum(axis=0), np.finfo(float).tiny)
    deviation = features.std(axis=0)
    lift = weight.T @ features - features.mean(axis=0)
    lift = np.divide(lift, deviation, out=np.zeros_like(lift), where=deviation > 0)
    best = np.argsort(-lift, axis=1, kind="stable")[:, :count]
    return [
        [(int(f), float(lift[k, f])) for f in row if lift[k, f] > 0] for k, row in enumerate(best)
    ]


def _pairs(member: Bools, batch: Ints | None) -> Floats:
    if batch is None:
        sizes = member.sum(axis=0, keepdims=True).astype(np.float64)
    else:
        sizes = np.zeros((int(batch.max()) + 1, member.shape[1]))
        np.add.at(sizes, batch, member)
    total: Floats = (sizes * (sizes - 1) / 2).sum(axis=0)
    return total


def _ratio(part: NDArray[Any], whole: NDArray[Any]) -> Floats:
    empty = np.full(np.shape(whole), np.nan)
    return np.divide(part, whole, out=empty, where=np.asarray(whole) > 0)
