"""The boxes of the model, built from its options; every option is checked first."""

from types import SimpleNamespace
from typing import Any

from vepm.nn.bank import CommunityBank
from vepm.nn.composer import COMPOSERS, POOLINGS, READOUTS, GraphComposer, NodeComposer
from vepm.nn.convolution import CONVOLUTIONS, require_one_of
from vepm.nn.encoder import CommunityEncoder
from vepm.nn.partitioner import PARTITIONS, EdgePartitioner, segment_sizes

FUSIONS = ("concat", "mass", "softmax")
INTERACTIONS = ("diagonal", "matrix")
FEATURE_NORMS = ("none", "l1", "l2")
CHOICES = {
    "task": ("node", "graph"),
    "partition": PARTITIONS,
    "grouping": ("segments", "learned"),
    "interactions": INTERACTIONS,
    "inputs": ("x", "z", "both", "random"),
    "fusion": FUSIONS,
    "feature_norm": FEATURE_NORMS,
    "composer": COMPOSERS,
    "pooling": POOLINGS,
    "readout": READOUTS,
    "encoder_conv": ("same", *CONVOLUTIONS),
}


def check_options(given: SimpleNamespace) -> None:
    """Raise a ValueError for values that options of :class:`vepm.nn.VEPM` do not have."""
    for name, allowed in CHOICES.items():
        require_one_of(name, getattr(given, name), allowed)
    for name in ("encoder_layers", "bank_layers", "composer_layers"):
        if (depth := getattr(given, name)) < 1:
            raise ValueError(f"{name} must be at least 1, got {depth}")
    if given.paired < 0:
        raise ValueError(f"paired must be at least 0, got {given.paired}")
    for name in ("encoder_dropout", "dropout", "node_dropout"):
        if not 0 <= (probability := getattr(given, name)) <= 1:
            raise ValueError(f"{name} must be between 0 and 1, got {probability}")
    communities, groups = given.num_communities, given.num_metacommunities
    segment_sizes(communities, groups)
    if given.background and communities < 2:
        raise ValueError("num_communities must be at least 2 where one of them is the background")
    if given.directed and given.grouping == "segments" and communities % groups:
        wanted = f"a multiple of num_metacommunities ({groups}) where links have directions"
        raise ValueError(f"num_communities ({communities}) must be {wanted}")


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
    read = {"x": given.in_channels, "z": width}
    bank = CommunityBank(
        read.get(given.inputs, sum(read.values())),
        given.hidden_channels,
        given.num_metacommunities,
        num_layers=given.bank_layers,
        conv=given.conv,
        normalize=given.normalize,
        # Inputs are dropped as GCN does; GIN, for graphs, does not.
        dropout=given.dropout if given.task == "node" else 0.0,
        node_dropout=given.node_dropout,
    )
    shared: dict[str, Any] = {
        "in_channels": bank.out_channels,
        "out_channels": given.out_channels,
        "kind": given.composer,
        "num_metacommunities": given.num_metacommunities,
        "num_layers": given.composer_layers,
        "conv": given.conv,
        "dropout": given.dropout,
    }
    if given.task == "node":
        composer = NodeComposer(**shared, hops=given.hops, teleport=given.teleport)
        return encoder, partitioner, bank, composer
    skips = [bank.in_channels, *[bank.out_channels] * given.bank_layers]
    how = {"pooling": given.pooling, "readout": given.readout}
    return encoder, partitioner, bank, GraphComposer(**shared, skip_channels=skips, **how)
