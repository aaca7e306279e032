"""Sums over neighbours of features that never change, found once.

The first layer of a GCN maps features and sums them over the edges. Both are linear, so the sum
may come first, and where neither features nor edges change it is always the same.
"""

import weakref
from typing import NamedTuple

import torch
from torch import Tensor

from vepm.kernels.aggregation import Adjacency, EdgeIndex
from vepm.kernels.features import Features, normalize_rows
from vepm.nn.convolution import Smoothed, plain_propagation

FEWEST_EDGES = 2**20
"""Edges below which the sums are found so fast that nothing is worth keeping."""


class Seen(NamedTuple):
    """Features that came with some edges before."""

    x: weakref.ref[Tensor]
    version: int
    """Changes when the features are written to."""
    sums: Tensor | None
    """Their sums, if they came more than once."""


def smoothed(x: Features, edge_index: EdgeIndex, norm: str) -> Smoothed | None:
    """Normalised features summed as GCN does it, kept with the edges from the second time on.

    Nothing comes back the first time, when they may well never come again, and where sums are
    not worth keeping: on small graphs, for sparse features, on a GPU.

    Args:
        x: Node features [N, F].
        edge_index: The edges; only an :class:`Adjacency` keeps anything.
        norm: Row normalisation of the features, as in :func:`normalize_rows`.
    """
    if not isinstance(edge_index, Adjacency) or not isinstance(x, Tensor):
        return None
    if edge_index.under_vmap:
        return None
    fixed = not x.requires_grad and not x.is_inference()
    if not fixed or x.device.type != "cpu" or edge_index.source.numel() < FEWEST_EDGES:
        return None
    seen = edge_index.seen.get(norm)
    if not isinstance(seen, Seen) or seen.x() is not x or seen.version != x._version:
        edge_index.seen[norm] = Seen(weakref.ref(x), x._version, None)
        return None
    if seen.sums is None:
        seen = seen._replace(sums=_sums(x, edge_index, norm))
        edge_index.seen[norm] = seen
    assert seen.sums is not None
    return Smoothed(seen.sums)


@torch.no_grad()
def _sums(x: Tensor, edges: Adjacency, norm: str) -> Tensor:
    normalised = normalize_rows(x, norm)
    assert isinstance(normalised, Tensor)
    return plain_propagation(edges, x, "gcn").spread(normalised[:, None], edges).squeeze(1)
