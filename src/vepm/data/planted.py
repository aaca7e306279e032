"""Graphs whose communities or kinds of edges are known."""

import os
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch_geometric.data import Data

from vepm.data.dataset import Dataset
from vepm.data.edges import MOST_KINDS, canonical_edges, canonical_kinds
from vepm.data.generate import sample_graph
from vepm.data.labels import draw_split
from vepm.errors import InputError
from vepm.tasks import MASK_NAMES

_FEATURE_NOISE = 2.0


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
    _check_plan(num_nodes, num_communities, average_degree, overlap, num_features, seed)
    _require_memory(num_nodes, num_communities, average_degree, num_features)
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

    In each of R relations every node belongs to one of B communities, independently of the other
    relations. Edges of a relation mostly join nodes of the same community. The label is the
    community in the first relation, so edges of the other relations are noise to a model that
    cannot tell them apart. Features are all memberships through a random linear map under heavy
    noise. The draw takes time linear in the number of edges.

    Args:
        num_nodes: number of nodes.
        num_relations: number of relations R, the kinds of edges.
        num_communities: number of communities B in each relation, and so of classes.
        strength: share of a relation's edges inside its communities, in (0, 1]; the others join
            nodes at random.
        average_degree: about how many neighbours a node has in each relation.
        num_features: number of feature columns.
        labels_per_class: nodes of each class that train; ten or fewer if not given.
        seed: makes the draw repeatable.

    Returns:
        The dataset; its graph keeps the relations of each edge as ``edge_kind`` [E, R], and the
        community of each node in each relation as ``relation_communities`` [N, R].

    Example:
        >>> from vepm.data import planted_relations
        >>> dataset = planted_relations(200, num_relations=2, num_communities=4, seed=0)
        >>> dataset.kind_names, dataset.graphs[0].edge_kind.shape[1]
        (('relation 1', 'relation 2'), 2)
    """
    _check_plan(num_nodes, num_communities, average_degree, 0.0, num_features, seed)
    _check_relations(num_relations, strength)
    _require_memory(num_nodes * num_relations, num_communities, average_degree, num_features)
    seed = int(torch.randint(2**31, ())) if seed is None else seed
    generator = torch.Generator().manual_seed(seed)
    groups = torch.randint(num_communities, (num_nodes, num_relations), generator=generator)
    rates = strength * average_degree, (1 - strength) * average_degree
    listed = [_relation(group, num_communities, rates, generator) for group in groups.unbind(1)]
    maps = torch.randn(num_relations, num_communities, num_features, generator=generator)
    signal = sum(table[group] for table, group in zip(maps, groups.unbind(1), strict=True))
    noise = torch.randn(num_nodes, num_features, generator=generator)
    x = signal / num_relations**0.5 + _FEATURE_NOISE * noise
    data = Data(x=x, y=groups[:, 0].contiguous(), relation_communities=groups)
    data.edge_index, data.edge_kind = _merged(listed, num_nodes)
    dataset = _labelled("planted-relations", data, num_communities, labels_per_class, seed)
    names = tuple(f"relation {r + 1}" for r in range(num_relations))
    return replace(dataset, kind_names=names)


def _check_relations(num_relations: int, strength: float) -> None:
    if not 1 <= num_relations <= MOST_KINDS or not 0 < strength <= 1:
        raise InputError(
            f"{num_relations} relations of strength {strength}; give 1 to {MOST_KINDS} relations "
            "and a strength above 0, up to 1"
        )


def _relation(
    group: Tensor, num_communities: int, rates: tuple[float, float], generator: torch.Generator
) -> Tensor:
    """Edges inside the communities of a relation and across them, at these average degrees."""
    seed = int(torch.randint(2**31, (), generator=generator))
    activity = 0.5 + torch.rand(group.numel(), 1, generator=generator)
    z = activity * torch.nn.functional.one_hot(group, num_communities)
    inside = _activation_for(z, rates[0]).expand(num_communities)
    across = _activation_for(activity, rates[1]).expand(1)
    return sample_graph(torch.cat([z, activity], dim=1), torch.cat([inside, across]), seed=seed)


def _merged(listed: Sequence[Tensor], num_nodes: int) -> tuple[Tensor, Tensor]:
    """The edges of all relations, and the relations each of them belongs to."""
    edges = torch.cat(list(listed), dim=1)
    counts = torch.tensor([part.size(1) for part in listed])
    relation = torch.arange(len(listed)).repeat_interleave(counts)
    kinds = torch.nn.functional.one_hot(relation, len(listed)).bool()
    edge_index, _ = canonical_edges(edges, num_nodes)
    return edge_index, canonical_kinds(edge_index, edges, kinds, num_nodes)


def _labelled(
    name: str, data: Data, num_classes: int, labels_per_class: int | None, seed: int
) -> Dataset:
    """A drawn graph as a dataset, with a random split."""
    num_nodes = data.y.numel()
    per_class = labels_per_class
    if per_class is None:
        per_class = max(1, min(10, num_nodes // (4 * num_classes)))
    split = draw_split(data.y, per_class=per_class, num_val=num_nodes // 5, seed=seed)
    for mask_name, mask in zip(MASK_NAMES, split, strict=True):
        data[mask_name] = mask
    return Dataset(
        name=name,
        task="node",
        graphs=[data],
        num_classes=num_classes,
        class_names=tuple(str(c) for c in range(num_classes)),
        source=f"drawn from the edge partition model, seed {seed}",
    )


def _plant_memberships(
    y: Tensor, num_communities: int, overlap: float, generator: torch.Generator
) -> Tensor:
    """Affiliations [N, C]: a node's activity, shared out to its main community and others."""
    num_nodes = y.numel()
    main = torch.nn.functional.one_hot(y, num_communities).float()
    # Cubed exponentials concentrate the overlap on one or two other communities.
    # Among millions of draws some are exactly zero, whose logarithm is infinite.
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


def _require_memory(
    num_nodes: int, num_communities: int, average_degree: float, num_features: int
) -> None:
    """Refuse a draw that needs more memory than the machine has."""
    per_node = 40 * num_communities + 16 * num_features + 50 * average_degree
    need, there = num_nodes * per_node, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if need > there:
        raise InputError(
            f"{num_nodes} nodes with {num_communities} communities and {num_features} features "
            f"need about {need / 2**30:.1f} GiB, and this machine has {there / 2**30:.1f}; ask for "
            "fewer"
        )


def _check_plan(
    num_nodes: int,
    num_communities: int,
    average_degree: float,
    overlap: float,
    num_features: int,
    seed: int | None,
) -> None:
    if seed is not None and not 0 <= seed < 2**63:
        raise InputError(f"seed is {seed}; give an integer from 0 to {2**63 - 1}")
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
