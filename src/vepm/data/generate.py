"""Graphs drawn from the model itself."""

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from vepm.data.dataset import Dataset
from vepm.data.masks import draw_split
from vepm.errors import InputError
from vepm.tasks import MASK_NAMES

_FEATURE_NOISE = 2.0
DRAWN_AT_ONCE = 2**22
"""Ends of edges drawn at a time; what a draw needs beside its result is kept this small."""


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

    Sorted in place as single numbers: of tens of millions of pairs there is room for few copies.
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


def planted_graph(
    num_nodes: int = 1000,
    num_communities: int = 8,
    *,
    average_degree: float = 10.0,
    overlap: float = 0.1,
    num_features: int = 32,
    labels_per_class: int | None = None,
    seed: int | None = None,
) -> Dataset:
    """A node task whose communities are known, drawn from the edge partition model.

    Each node has a main community, which is its label, and gives the share ``overlap`` of its
    affiliation to others; its activity varies, so degrees do. Features are the memberships through
    a random linear map under heavy noise, so that neighbours have something to add. Ten nodes a
    class train (fewer in small graphs), a fifth of the nodes validate and the rest test.

    Args:
        num_nodes: number of nodes.
        num_communities: number of communities, and so of classes.
        average_degree: about how many neighbours a node has.
        overlap: share of a node's affiliation outside its main community, in [0, 1).
        num_features: number of feature columns.
        labels_per_class: nodes of each class that train; ten or fewer if not given.
        seed: makes the draw repeatable.

    Returns:
        The dataset; its graph keeps the affiliations [N, C] as ``memberships``.

    Example:
        >>> from vepm.data import planted_graph
        >>> planted_graph(200, 4, seed=0).graphs[0].memberships.shape
        torch.Size([200, 4])
    """
    _check_plan(num_nodes, num_communities, average_degree, overlap, num_features)
    seed = int(torch.randint(2**31, ())) if seed is None else seed
    generator = torch.Generator().manual_seed(seed)
    edge_seed = int(torch.randint(2**31, (), generator=generator))
    y = torch.randperm(num_nodes, generator=generator) % num_communities
    z = _plant_memberships(y, num_communities, overlap, generator)
    activation = _activation_for(z, average_degree).expand(num_communities)
    share = z / z.sum(dim=1, keepdim=True)
    signal = share @ torch.randn(num_communities, num_features, generator=generator)
    x = signal + _FEATURE_NOISE * torch.randn(num_nodes, num_features, generator=generator)
    data = Data(x=x, edge_index=sample_graph(z, activation, seed=edge_seed), y=y, memberships=z)
    per_class = labels_per_class
    if per_class is None:
        per_class = max(1, min(10, num_nodes // (4 * num_communities)))
    split = draw_split(y, per_class=per_class, num_val=num_nodes // 5, seed=seed)
    for name, mask in zip(MASK_NAMES, split, strict=True):
        data[name] = mask
    return Dataset(
        name="planted",
        task="node",
        graphs=[data],
        num_classes=num_communities,
        class_names=tuple(str(c) for c in range(num_communities)),
        source=f"drawn from the edge partition model, seed {seed}",
    )


def _plant_memberships(
    y: Tensor, num_communities: int, overlap: float, generator: torch.Generator
) -> Tensor:
    """Affiliations [N, C]: a node's activity, shared out to its main community and others."""
    num_nodes = y.numel()
    main = torch.nn.functional.one_hot(y, num_communities).float()
    # Cubed exponentials concentrate the overlap on one or two other communities.
    # Among millions of draws some are exactly zero, whose logarithm is no number to go on with.
    uniform = torch.rand(num_nodes, num_communities, generator=generator).clamp_min_(2.0**-25)
    other = uniform.log_().neg_() ** 3
    other = other * (1 - main) + 1e-12 * (1 - main)
    total = other.sum(dim=1, keepdim=True).clamp_min(1e-12)
    activity = 0.5 + torch.rand(num_nodes, 1, generator=generator)
    return activity * ((1 - overlap) * main + overlap * other / total)


def _activation_for(z: Tensor, average_degree: float) -> Tensor:
    """The activation, the same for all communities, that gives about this average degree."""
    num_nodes, num_communities = z.shape
    pairs = z.double().sum(dim=0).square().sum() - z.double().square().sum()
    # Several counts on one pair make one edge; 1 - exp(-r) is undone at the typical rate r.
    density = average_degree * num_communities / num_nodes
    correction = -torch.log1p(torch.tensor(-density)) / density if density > 0 else 1.0
    return (average_degree * num_nodes / pairs * correction).float()


def _check_plan(
    num_nodes: int, num_communities: int, average_degree: float, overlap: float, num_features: int
) -> None:
    if num_communities < 1 or num_nodes < 2 * num_communities:
        raise InputError(
            f"{num_nodes} nodes in {num_communities} communities; give at least 1 community "
            "and 2 nodes for each"
        )
    if not 0 <= overlap < 1:
        raise InputError(f"overlap is {overlap}; give a share from 0 up to, but not, 1")
    if num_features < 1:
        raise InputError(f"num_features is {num_features}; give at least 1")
    limit = 0.8 * num_nodes / num_communities
    if not 0 <= average_degree <= limit:
        raise InputError(
            f"average_degree is {average_degree}; with {num_nodes} nodes in {num_communities} "
            f"communities give 0 to {limit:g}"
        )
