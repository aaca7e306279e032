"""Edges in canonical form, with their weights and kinds, however the data list them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vepm.errors import InputError

MOST_KINDS = 63
KIND_SEPARATOR = "|"


def canonical_edges(
    edge_index: Tensor, num_nodes: int, *, source: str = "data", directed: bool = False
) -> tuple[Tensor, list[str]]:
    """Every edge in both directions, unless ``directed``, once [2, E], and in words what changed.

    The result is sorted by destination and then source.
    """
    for i in ((edge_index < 0) | (edge_index >= num_nodes)).any(dim=0).nonzero().flatten()[:1]:
        ends = " and ".join(map(str, edge_index[:, i].tolist()))
        nodes = f"nodes run from 0 to {num_nodes - 1}; correct the index or add the node"
        raise InputError(f"{source}: edge {int(i)} joins {ends}, but {nodes}")
    row, col = edge_index.numpy()
    proper = row != col
    keys = listed = _unique((col * num_nodes + row)[proper])
    if not directed:
        reverse = listed % num_nodes * num_nodes + listed // num_nodes
        keys = _unique(np.concatenate([listed, reverse]))
    counts = {
        "removed {} self-loop": int((~proper).sum()),
        "merged {} duplicate edge": int(proper.sum()) - listed.size,
        "added {} missing reverse edge": keys.size - listed.size,
    }
    changes = [text.format(n) + "s" * (n > 1) for text, n in counts.items() if n]
    edges = torch.empty(2, keys.size, dtype=torch.long)
    np.floor_divide(keys, num_nodes, out=edges[1].numpy())
    np.remainder(keys, num_nodes, out=edges[0].numpy())
    return edges, changes


def _unique(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sorted in place: for tens of millions, NumPy's own takes twice the memory and far longer."""
    keys.sort()
    return keys[np.diff(keys, prepend=-1) > 0]


def canonical_weights(
    edge_index: Tensor, listed: Tensor, weights: Tensor, directed: bool, add: bool
) -> Tensor | None:
    """The weights of canonical edges [E] from those of the listed edges [M]; None if all are 1.

    Weights of an edge that is listed several times in one direction are added up, and those of both
    directions with ``add``, or if they differ for any edge.
    """
    if bool((weights == 1).all()):
        return None
    found, back = _totals(edge_index, listed, weights.double(), directed)
    differ = (found > 0) & (back > 0) & ~torch.isclose(found, back)
    return (found + back if add or bool(differ.any()) else torch.maximum(found, back)).float()


def canonical_kinds(
    edge_index: Tensor, listed: Tensor, kinds: Tensor, directed: bool = False
) -> Tensor:
    """The kinds of canonical edges [E, R]: all [M, R] that an edge was listed with, either way."""
    return _totals(edge_index, listed, kinds.float(), directed).sum(0) > 0


def _totals(edge_index: Tensor, listed: Tensor, values: Tensor, directed: bool) -> Tensor:
    """Values of listed edges added up at the canonical ones, and at their reverse [2, E, ...]."""
    base = int(edge_index.max()) + 1 if edge_index.numel() else 1
    keys, proper = edge_index[1] * base + edge_index[0], listed[0] != listed[1]
    row, col = listed[:, proper]
    totals = values.new_zeros(2, keys.numel(), *values.shape[1:])
    wanted = (col * base + row, row * base + col)
    for total, places in zip(totals, wanted[:1] if directed else wanted, strict=False):
        # Sorted queries are found ten times as fast as those in random order.
        places, order = places.sort()
        total.index_add_(0, torch.searchsorted(keys, places), values[proper][order])
    return totals


def kind_table(
    kinds: Tensor | Sequence[str], names: Sequence[str] | None, source: str
) -> tuple[Tensor, tuple[str, ...]]:
    """Kinds of edges as a table [M, R], given so, as bit masks or as text with ``|``, and names."""
    if not isinstance(kinds, Tensor):
        split = [{kind.strip() for kind in text.split(KIND_SEPARATOR)} for text in kinds]
        # One too many is refused below.
        names = sorted(set().union(*split) - {""})[: MOST_KINDS + 1]
        table = [[name in row for name in names] for row in split]
        kinds = torch.tensor(table, dtype=torch.bool).view(len(split), len(names))
    wrong = kinds.is_floating_point() or (kinds.dim() == 1 and bool((kinds < 0).any()))
    if kinds.dim() == 1 and not wrong:
        largest = int(kinds.max()) if kinds.numel() else 0
        kinds = (
            kinds.long()[:, None] >> torch.arange(max(largest.bit_length(), len(names or ()))) & 1
        )
    count = kinds.shape[-1]
    names = [f"kind {i}" for i in range(count)] if names is None else names
    if wrong or count > MOST_KINDS or not len(names) == len(set(names)) == count:
        found = (
            f"edge_kind is {list(kinds.shape)} {kinds.dtype} with {len(set(names))} different names"
        )
        needed = (
            f"a bit mask or a row of True and False per edge, for at most {MOST_KINDS} named kinds"
        )
        raise InputError(f"{source}: {found}; give {needed}")
    return kinds.bool(), tuple(names)


def is_sparse(x: Any) -> bool:
    """Whether features are kept as their non-zero entries."""
    return isinstance(x, Tensor) and x.layout != torch.strided
