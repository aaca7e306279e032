"""Graphs drawn from the model: edges alone, or datasets whose communities or kinds are known."""

import os
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import one_hot
from torch_geometric.data import Data

from vepm.data.canonical import MOST_KINDS, canonical_edges, canonical_kinds
from vepm.data.dataset import Dataset
from vepm.errors import InputError
from vepm.tasks import MASK_NAMES, UNLABELLED, Masks

_FEATURE_NOISE = 2.0
DRAWN_AT_ONCE = 2**22  # ends of edges; bounds the memory a draw needs beside its result


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
    if z.dim() != 2 or activation.shape != z.shape[1:]:
        found = f"z is {list(z.shape)} and activation {list(activation.shape)}"
        raise InputError(f"{found}; [nodes, communities] and [communities] are needed")
    for name, value in (("z", z), ("activation", activation)):
        if not bool((torch.isfinite(value) & (value >= 0)).all()):
            raise InputError(f"{name} holds negative or non-finite values; give finite ones >= 0")
    num_nodes, num_communities = z.shape
    if num_nodes < 2 or num_communities == 0:
        return torch.empty(2, 0, dtype=torch.long, device=z.device)
    generator = None if seed is None else torch.Generator(z.device).manual_seed(seed)
    # float64: a float32 running sum over many nodes would lose the small affiliations.
    ends = z.detach().double().t().reshape(-1).cumsum(0)
    upper = ends.view(num_communities, num_nodes)[:, -1]
    lower = torch.cat([upper.new_zeros(1), upper[:-1]])
    rate = 0.5 * activation.detach().double() * (upper - lower) ** 2
    count = torch.poisson(rate, generator=generator).long()
    community = torch.repeat_interleave(count)
    # Rounding up to the very end would step into the next community.
    last = torch.nextafter(upper, torch.full_like(upper, -torch.inf))
    pairs = torch.empty(2, community.numel(), dtype=torch.long, device=z.device)
    for found in pairs:
        for start in range(0, community.numel(), DRAWN_AT_ONCE):
            part = community[start : start + DRAWN_AT_ONCE]
            u = torch.rand(part.numel(), dtype=torch.double, device=z.device, generator=generator)
            u = torch.minimum(u * (upper - lower)[part] + lower[part], last[part])
            found[start : start + part.numel()] = torch.searchsorted(ends, u, right=True)
    del ends, community
    return canonical_edges(pairs.remainder_(num_nodes).cpu(), num_nodes)[0].to(z.device)


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
    affiliation to others; its activity varies, so degrees do. The affiliations [N, C] are kept as
    ``memberships``. Features are these through a random linear map under heavy noise, so that
    neighbours have something to add. A fifth of the nodes validates and the rest tests.

    Args:
        num_nodes: number of nodes.
        num_communities: number of communities, and so of classes.
        average_degree: about how many neighbours a node has.
        overlap: share of a node's affiliation outside its main community, in [0, 1).
        num_features: number of feature columns.
        labels_per_class: nodes of each class that train; ten, fewer in small graphs, if not given.
        seed: makes the draw repeatable.

    Example:
        >>> from vepm.data import planted_graph
        >>> planted_graph(200, 4, seed=0).graphs[0].memberships.shape
        torch.Size([200, 4])
    """
    seed = int(torch.randint(2**31, ())) if seed is None else seed
    _check_plan((num_nodes, num_communities, num_features), average_degree, seed, overlap)
    generator = torch.Generator().manual_seed(seed)
    edge_seed = int(torch.randint(2**31, (), generator=generator))
    y = torch.randperm(num_nodes, generator=generator) % num_communities
    main = one_hot(y, num_communities).float()
    # Cubed exponentials concentrate the overlap; among millions of draws some are exactly zero.
    uniform = torch.rand(num_nodes, num_communities, generator=generator).clamp_min_(2.0**-25)
    other = uniform.log_().neg_() ** 3
    other = other * (1 - main) + 1e-12 * (1 - main)
    total = other.sum(dim=1, keepdim=True).clamp_min(1e-12)
    activity = 0.5 + torch.rand(num_nodes, 1, generator=generator)
    z = activity * ((1 - overlap) * main + overlap * other / total)
    activation = _activation_for(z, average_degree).expand(num_communities)
    share = z / z.sum(dim=1, keepdim=True)
    signal = share @ torch.randn(num_communities, num_features, generator=generator)
    x = signal + _FEATURE_NOISE * torch.randn(num_nodes, num_features, generator=generator)
    data = Data(x=x, edge_index=sample_graph(z, activation, seed=edge_seed), y=y, memberships=z)
    return _labelled("planted", data, num_communities, labels_per_class, seed)


def planted_relations(
    num_nodes: int = 1000,
    num_relations: int = 3,
    num_communities: int = 8,
    *,
    strength: float = 0.8,
    average_degree: float = 10.0,
    num_features: int = 32,
    labels_per_class: int | None = None,
    seed: int | None = None,
) -> Dataset:
    """A node task whose edges are of several hidden kinds, only one of which tells the label.

    In each of R relations every node belongs to one of B communities, independently of the others,
    and most edges join nodes of the same one. The label is the community in the first relation, so
    the other edges are noise to a model that cannot tell them apart. Features are all memberships
    through a random linear map under heavy noise. The graph keeps the relations of each edge as
    ``edge_kind`` [E, R] and the communities of each node as ``relation_communities`` [N, R].

    Args:
        num_relations: number of relations R, the kinds of edges.
        num_communities: number of communities B in each relation, and so of classes.
        strength: share of a relation's edges inside its communities, in (0, 1].
        average_degree: about how many neighbours a node has in each relation.

    The other arguments are those of :func:`planted_graph`.

    Example:
        >>> from vepm.data import planted_relations
        >>> dataset = planted_relations(200, num_relations=2, num_communities=4, seed=0)
        >>> dataset.kind_names, dataset.graphs[0].edge_kind.shape[1]
        (('relation 1', 'relation 2'), 2)
    """
    seed = int(torch.randint(2**31, ())) if seed is None else seed
    if not 1 <= num_relations <= MOST_KINDS or not 0 < strength <= 1:
        needed = f"give 1 to {MOST_KINDS} relations and a strength above 0, up to 1"
        raise InputError(f"{num_relations} relations of strength {strength}; {needed}")
    size = (num_nodes, num_communities, num_features)
    _check_plan(size, average_degree, seed, relations=num_relations)
    generator = torch.Generator().manual_seed(seed)
    groups = torch.randint(num_communities, (num_nodes, num_relations), generator=generator)
    rates = strength * average_degree, (1 - strength) * average_degree
    listed = [_relation(group, num_communities, rates, generator) for group in groups.unbind(1)]
    maps = torch.randn(num_relations, num_communities, num_features, generator=generator)
    signal = sum(table[group] for table, group in zip(maps, groups.unbind(1), strict=True))
    noise = torch.randn(num_nodes, num_features, generator=generator)
    x = signal / num_relations**0.5 + _FEATURE_NOISE * noise
    data = Data(x=x, y=groups[:, 0].contiguous(), relation_communities=groups)
    edges, counts = torch.cat(listed, dim=1), torch.tensor([part.size(1) for part in listed])
    kinds = torch.eye(num_relations, dtype=torch.bool).repeat_interleave(counts, dim=0)
    data.edge_index, _ = canonical_edges(edges, num_nodes)
    data.edge_kind = canonical_kinds(data.edge_index, edges, kinds)
    dataset = _labelled("planted-relations", data, num_communities, labels_per_class, seed)
    return replace(dataset, kind_names=tuple(f"relation {r + 1}" for r in range(num_relations)))


def _relation(
    group: Tensor, num_communities: int, rates: tuple[float, float], generator: torch.Generator
) -> Tensor:
    """Edges inside the communities of a relation and across them, at these average degrees."""
    seed = int(torch.randint(2**31, (), generator=generator))
    activity = 0.5 + torch.rand(group.numel(), 1, generator=generator)
    z = activity * one_hot(group, num_communities)
    inside = _activation_for(z, rates[0]).expand(num_communities)
    across = _activation_for(activity, rates[1]).expand(1)
    return sample_graph(torch.cat([z, activity], dim=1), torch.cat([inside, across]), seed=seed)


def _labelled(
    name: str, data: Data, num_classes: int, labels_per_class: int | None, seed: int
) -> Dataset:
    """A drawn graph as a dataset, with a random split."""
    num_nodes, per_class = data.y.numel(), labels_per_class
    if per_class is None:
        per_class = max(1, min(10, num_nodes // (4 * num_classes)))
    split = draw_split(data.y, per_class=per_class, num_val=num_nodes // 5, seed=seed)
    data.update(dict(zip(MASK_NAMES, split, strict=True)))
    return Dataset(
        name=name,
        task="node",
        graphs=[data],
        num_classes=num_classes,
        class_names=tuple(str(c) for c in range(num_classes)),
        source=f"drawn from the edge partition model, seed {seed}",
    )


def draw_split(y: Tensor, *, per_class: int, num_val: int, seed: int) -> Masks:
    """A random split: this many per class train, this many validate and the rest test."""
    order = torch.randperm(y.numel(), generator=torch.Generator().manual_seed(seed))
    train = torch.zeros(y.numel(), dtype=torch.bool)
    for label in y[y != UNLABELLED].unique().tolist():
        train[order[y[order] == label][:per_class]] = True
    rest = order[~train[order] & (y[order] != UNLABELLED)]
    val, test = torch.zeros_like(train), torch.zeros_like(train)
    val[rest[:num_val]] = True
    test[rest[num_val:]] = True
    return train, val, test


def _activation_for(z: Tensor, average_degree: float) -> Tensor:
    """The activation, the same for all communities, that gives about this average degree."""
    num_nodes, num_communities = z.shape
    pairs = z.double().sum(dim=0).square().sum() - z.double().square().sum()
    # Several counts on one pair make one edge; 1 - exp(-r) is undone at the typical rate r.
    density = average_degree * num_communities / num_nodes
    correction = -torch.log1p(torch.tensor(-density)) / density if density > 0 else 1.0
    return (average_degree * num_nodes / pairs * correction).float()


def _check_plan(
    size: tuple[int, int, int], degree: float, seed: int, overlap: float = 0.0, relations: int = 1
) -> None:
    """Refuse what cannot be drawn, or needs more memory than the machine has."""
    nodes, communities, features = size
    crowd, limit = f"{nodes} nodes in {communities} communities", 0.8 * nodes / max(communities, 1)
    per_node = 40 * communities + 16 * features + 50 * degree
    needed = nodes * relations * per_node / 2**30
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    memory = f"need about {needed:.1f} GiB, and this machine has {there:.1f}; ask for fewer"
    for right, wrong in (
        (0 <= seed < 2**63, f"seed is {seed}; give an integer from 0 to {2**63 - 1}"),
        (0 < 2 * communities <= nodes, f"{crowd}; give at least 1 community and 2 nodes for each"),
        (0 <= overlap < 1, f"overlap is {overlap}; give a share from 0 up to, but not, 1"),
        (features > 0, f"num_features is {features}; give at least 1"),
        (0 <= degree <= limit, f"average_degree is {degree}; with {crowd} give 0 to {limit:g}"),
        (needed <= there, f"{crowd} with {features} features {memory}"),
    ):
        if not right:
            raise InputError(wrong)
