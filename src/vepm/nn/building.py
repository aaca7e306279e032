"""The boxes of the model, built from its options; every option is checked first."""

from types import SimpleNamespace
from typing import NamedTuple

import torch
from torch import Tensor

from vepm.nn.bank import CommunityBank
from vepm.nn.composer import COMPOSERS, POOLINGS, READOUTS, GraphComposer, NodeComposer
from vepm.nn.convolution import CONVOLUTIONS, require_one_of
from vepm.nn.encoder import CommunityEncoder
from vepm.nn.partitioner import PARTITIONS, EdgePartitioner, segment_sizes


class Head(NamedTuple):
    """What distinguishes the boxes of a task."""

    composer: type[NodeComposer] | type[GraphComposer]
    options: tuple[str, ...]  # options of the composer that those of other tasks do not have
    bank_dropout: bool  # whether inputs of the bank are dropped, as GCN does and GIN does not


HEADS = {
    "node": Head(NodeComposer, ("hops", "teleport"), bank_dropout=True),
    "graph": Head(GraphComposer, ("pooling", "readout", "skip_channels"), bank_dropout=False),
}
TASKS = tuple(HEADS)
INPUTS = ("x", "z", "both", "random")
FUSIONS = ("concat", "mass", "softmax")
GROUPINGS = ("segments", "learned")
INTERACTIONS = ("diagonal", "matrix")
FEATURE_NORMS = ("none", "l1", "l2")
ENCODER_CONVOLUTIONS = ("same", *CONVOLUTIONS)
CHOICES = {
    "task": TASKS,
    "partition": PARTITIONS,
    "grouping": GROUPINGS,
    "interactions": INTERACTIONS,
    "inputs": INPUTS,
    "fusion": FUSIONS,
    "feature_norm": FEATURE_NORMS,
    "composer": COMPOSERS,
    "pooling": POOLINGS,
    "readout": READOUTS,
    "encoder_conv": ENCODER_CONVOLUTIONS,
}
DEPTHS = ("encoder_layers", "bank_layers", "composer_layers")
REST = 0.1
"""Initial sum of the rates between a community and all others but its partner, whose rate is 1."""
MOST_PAIRS = 4
"""Pairs of communities, at most, that begin with links to each other."""


def check_options(given: SimpleNamespace) -> None:
    """Refuse options of :class:`vepm.nn.VEPM` that it does not have, with a ValueError."""
    for name, allowed in CHOICES.items():
        require_one_of(name, getattr(given, name), allowed)
    for name in DEPTHS:
        if (depth := getattr(given, name)) < 1:
            raise ValueError(f"{name} must be at least 1, got {depth}")
    communities, groups = given.num_communities, given.num_metacommunities
    segment_sizes(communities, groups)
    if given.background and communities < 2:
        raise ValueError("num_communities must be at least 2 where one of them is the background")
    if given.directed and given.grouping == "segments" and communities % groups:
        raise ValueError(
            f"num_communities ({communities}) must be a multiple of num_metacommunities "
            f"({groups}) where links have directions"
        )


def build_boxes(
    given: SimpleNamespace,
) -> tuple[CommunityEncoder, EdgePartitioner, CommunityBank, NodeComposer | GraphComposer]:
    """The four boxes of the paper's drawing, in their order, given options of the model."""
    # Where links have directions, each community has two affiliations.
    ways = 2 if given.directed else 1
    width, background = ways * given.num_communities, ways if given.background else 0
    encoder = CommunityEncoder(
        given.in_channels,
        width,
        hidden_channels=given.encoder_channels,
        num_layers=given.encoder_layers,
        conv=given.conv if given.encoder_conv == "same" else given.encoder_conv,
        shape=given.shape,
        batch_norm=given.encoder_batch_norm,
        dropout=given.encoder_dropout,
        num_background=background,
        sparse=given.sparse,
    )
    partitioner = EdgePartitioner(
        given.num_metacommunities,
        given.temperature,
        given.partition,
        shares=given.shares,
        num_communities=width if given.grouping == "learned" else None,
        directed=given.directed,
        num_background=background,
    )
    head, read = HEADS[given.task], {"x": given.in_channels, "z": width}
    bank = CommunityBank(
        read.get(given.inputs, sum(read.values())),
        given.hidden_channels,
        given.num_metacommunities,
        num_layers=given.bank_layers,
        conv=given.conv,
        normalize=given.normalize,
        dropout=given.dropout if head.bank_dropout else 0.0,
        node_dropout=given.node_dropout,
    )
    skips = [bank.in_channels, *[bank.out_channels] * given.bank_layers]
    known = vars(given) | {"skip_channels": skips}
    composer = head.composer(
        in_channels=bank.out_channels,
        out_channels=given.out_channels,
        kind=given.composer,
        num_metacommunities=given.num_metacommunities,
        num_layers=given.composer_layers,
        conv=given.conv,
        dropout=given.dropout,
        **{name: known[name] for name in head.options},
    )
    return encoder, partitioner, bank, composer


def first_interactions(num_communities: int) -> Tensor:
    """Rates between communities [C, C] before training.

    From communities that all link to themselves, training would never find out that a graph joins
    unlike nodes: it would only make the affiliations of linked nodes more alike.

    Example:
        >>> first_interactions(4).round(decimals=1)
        tensor([[0., 1., 0., 0.],
                [1., 0., 0., 0.],
                [0., 0., 1., 0.],
                [0., 0., 0., 1.]])
    """
    each = torch.arange(num_communities)
    paired = 2 * min((num_communities + 1) // 4, MOST_PAIRS)
    other = torch.where(each < paired, each ^ 1, each)
    rates = torch.full((num_communities, num_communities), REST / num_communities)
    rates[each, other] = 1
    return rates
