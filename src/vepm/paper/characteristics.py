"""What kind of communities a method finds, in four numbers."""

import math

from torch import Tensor

from vepm.nn import interactions, members
from vepm.paper.setting import Finding, Setting


def characteristics(
    setting: Setting,
    blocks: Tensor | None = None,
    *,
    z: Tensor | None = None,
    activation: Tensor | None = None,
) -> Finding:
    """Size balance, density and overlap of communities that no label had a say in.

    Args:
        setting: the graph and the number of communities.
        blocks: community of each node [N]; or else
        z: affiliations [N, C], and
        activation: of each community [C].
    """
    edge_index = setting.graph.edge_index
    overlap = 0.0
    if z is not None and activation is not None:
        blocks = interactions(z, activation, setting.parts).argmax(1)
        member = members(z, activation, setting.parts, edge_index)
        overlap = float((member.sum(1) > 1).double().mean())
    assert blocks is not None
    return Finding(
        numbers={
            "size_imbalance": size_imbalance(blocks, setting.parts),
            "density_ratio": density_ratio(blocks, edge_index),
            "overlap": overlap,
            "task_dependence": 0.0,
        }
    )


def size_imbalance(blocks: Tensor, parts: int) -> float:
    """Size of the largest community over the mean size; 1 where all are of one size.

    Example:
        >>> size_imbalance(torch.tensor([0, 0, 0, 1]), 2)
        1.5
    """
    return float(blocks.bincount(minlength=parts).max()) * parts / blocks.numel()


def density_ratio(blocks: Tensor, edge_index: Tensor) -> float:
    """Share of the edges that lie within communities over the share of pairs that do.

    Example:
        >>> density_ratio(torch.tensor([0, 0, 1, 1]), torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]]))
        3.0
    """
    source, target = blocks[edge_index]
    edges_within = float((source == target).double().mean())
    sizes = blocks.bincount().double()
    nodes = blocks.numel()
    pairs_within = float((sizes * (sizes - 1)).sum()) / (nodes * (nodes - 1))
    return edges_within / pairs_within if pairs_within else math.nan
