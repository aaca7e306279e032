"""Edges drawn from the model itself."""

import numpy as np
import torch
from torch import Tensor

from vepm.errors import InputError

DRAWN_AT_ONCE = 2**22
"""Ends of edges drawn at a time, which bounds the memory a draw needs beside its result."""


def sample_graph(z: Tensor, activation: Tensor, seed: int | None = None) -> Tensor:
    r"""An exact draw from the Bernoulli-Poisson edge partition model, in O(NC + M).

    .. math:: A_{ij} = 1[m_{ij} \ge 1], \quad
        m_{ij} \sim \mathrm{Poisson}\Big(\sum_c \gamma_c z_{ic} z_{jc}\Big), \quad i < j

    A Poisson number of ordered pairs is drawn for each community, endpoints in proportion to their
    affiliation; by superposition each unordered pair is then hit at exactly its own rate.

    Args:
        z: non-negative affiliations [N, C].
        activation: non-negative activations of the communities [C].
        seed: makes the draw repeatable; without it torch's global generator is used.

    Returns:
        ``edge_index`` [2, E], both directions, sorted by destination and then source.

    Example:
        >>> import torch
        >>> from vepm.data import sample_graph
        >>> z = torch.tensor([[9.0, 0.0], [9.0, 0.0], [0.0, 9.0], [0.0, 9.0]])
        >>> sample_graph(z, torch.ones(2), seed=0).tolist()
        [[1, 0, 3, 2], [0, 1, 2, 3]]
    """
    _check(z, activation)
    num_nodes, num_communities = z.shape
    empty = torch.empty(2, 0, dtype=torch.long, device=z.device)
    if num_nodes < 2 or num_communities == 0:
        return empty
    generator = None if seed is None else torch.Generator(z.device).manual_seed(seed)
    # float64: a float32 running sum over many nodes would lose the small affiliations.
    ends = z.detach().double().t().reshape(-1).cumsum(0)
    upper = ends.view(num_communities, num_nodes)[:, -1]
    lower = torch.cat([upper.new_zeros(1), upper[:-1]])
    rate = 0.5 * activation.detach().double() * (upper - lower) ** 2
    count = torch.poisson(rate, generator=generator).long()
    community = torch.repeat_interleave(count)
    row, col = (_draw_endpoints(ends, lower, upper, community, num_nodes, generator) for _ in "ij")
    del ends, community
    return _undirected(row, col, num_nodes).to(z.device)


def _draw_endpoints(
    ends: Tensor,
    lower: Tensor,
    upper: Tensor,
    community: Tensor,
    num_nodes: int,
    generator: torch.Generator | None,
) -> Tensor:
    """One node for each entry of community, in proportion to its affiliation there."""
    # Rounding up to the very end would step into the next community.
    last = torch.nextafter(upper, torch.full_like(upper, -torch.inf))
    found = torch.empty_like(community)
    for part, place in zip(community.split(DRAWN_AT_ONCE), found.split(DRAWN_AT_ONCE), strict=True):
        u = torch.rand(part.numel(), dtype=torch.double, device=ends.device, generator=generator)
        u.mul_((upper - lower)[part]).add_(lower[part])
        u = torch.minimum(u, last[part])
        place.copy_(torch.searchsorted(ends, u, right=True).remainder_(num_nodes))
    return found


def _undirected(row: Tensor, col: Tensor, num_nodes: int) -> Tensor:
    """Both directions of the pairs, once each and in canonical order, self-pairs dropped.

    Pairs are sorted in place as single integers, which keeps tens of millions of them in memory.
    """
    pairs = torch.minimum(row, col).mul_(num_nodes).add_(torch.maximum(row, col))[row != col]
    keys = pairs.cpu().numpy()
    keys.sort()
    keys = keys[np.diff(keys, prepend=-1) > 0]
    count = len(keys)
    both = np.empty(2 * count, dtype=np.int64)
    both[:count] = keys
    np.multiply(keys % num_nodes, num_nodes, out=both[count:])
    both[count:] += keys // num_nodes
    both.sort()
    edges = torch.empty(2, 2 * count, dtype=torch.long)
    np.remainder(both, num_nodes, out=edges[0].numpy())
    np.floor_divide(both, num_nodes, out=edges[1].numpy())
    return edges


def _check(z: Tensor, activation: Tensor) -> None:
    if z.dim() != 2 or activation.dim() != 1 or activation.numel() != z.size(1):
        raise InputError(
            f"z is {list(z.shape)} and activation {list(activation.shape)}; "
            "[nodes, communities] and [communities] are needed"
        )
    for name, value in (("z", z), ("activation", activation)):
        if not bool((torch.isfinite(value) & (value >= 0)).all()):
            raise InputError(f"{name} holds negative or non-finite values; give finite ones >= 0")
