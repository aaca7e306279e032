"""The four boxes wired together."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.distributions import Weibull

from vepm.kernels.aggregation import Adjacency, EdgeIndex, as_adjacency
from vepm.kernels.draws import normal_on_nodes
from vepm.kernels.features import Features, dense, normalize_rows, row_mass
from vepm.kernels.shares import Shares
from vepm.nn.bank import CommunityBank
from vepm.nn.composer import COMPOSERS, POOLINGS, READOUTS, GraphComposer, NodeComposer
from vepm.nn.convolution import Smoothed
from vepm.nn.distributions import draw
from vepm.nn.encoder import CommunityEncoder
from vepm.nn.partitioner import PARTITIONS, EdgePartitioner, segment_sizes
from vepm.nn.smoothing import smoothed

TASKS = ("node", "graph")
INPUTS = ("x", "z", "both", "random")
FUSIONS = ("concat", "mass", "softmax")
GROUPINGS = ("segments", "learned")
FEATURE_NORMS = ("none", "l1", "l2")


class Prediction(NamedTuple):
    """What the generative network says, given affiliations and the split of the edges."""

    logits: Tensor
    """Class scores, [N, classes] for nodes or [G, classes] for graphs."""
    community_embeddings: Tensor
    """What each metacommunity knows of each node [N, K, H/K]."""
    embeddings: Tensor
    """The composed representation of each node or graph."""


class VEPMOutput(NamedTuple):
    """Everything a forward pass computes."""

    logits: Tensor
    """Class scores, [N, classes] for nodes or [G, classes] for graphs."""
    posterior: Weibull
    """Posterior of the affiliations [N, C]."""
    z: Tensor
    """The affiliations this pass used [N, C]."""
    edge_weight: Tensor
    """Share of each edge in each metacommunity [E, K]."""
    community_embeddings: Tensor
    """What each metacommunity knows of each node [N, K, H/K]."""
    embeddings: Tensor
    """The composed representation of each node or graph."""


class VEPM(nn.Module):
    r"""Variational edge partition model.

    .. math:: Z \sim q_\phi(Z \mid A, X), \quad A = \textstyle\sum_k A^{(k)}(Z), \quad
              y \sim p_\theta(y \mid X, A^{(1)}, \dots, A^{(K)}, Z)

    Args:
        in_channels: Width of the node features F.
        out_channels: Number of classes.
        task: ``"node"`` or ``"graph"``: what is labelled.
        num_communities: Number of communities C.
        num_metacommunities: Number of parts K each edge is split into.
        hidden_channels: Total width H of the community-GNN bank.
        conv: ``"gcn"`` or ``"gin"`` throughout.
        encoder_channels: Hidden width of the community encoder.
        encoder_layers: Convolutions in the community encoder.
        encoder_batch_norm: Batch normalisation inside the encoder.
        encoder_dropout: Dropout inside the encoder.
        shape: Weibull shapes per ``"entry"`` or per ``"node"``.
        partition: ``"learned"``, ``"even"`` or ``"random"`` split of the edges.
        temperature: Sharpness of the learned and random splits.
        shares: ``"softmax"`` of the rates or ``"posterior"``, proportional to them.
        grouping: Communities of a metacommunity: consecutive ``"segments"``, or a ``"learned"``
            assignment that the labels teach.
        normalize: How shares become message weights: ``"none"``, ``"graph"``,
            ``"community"`` or ``"neighbours"``.
        inputs: What the bank reads: features ``"x"``, affiliations ``"z"``, ``"both"``, or
            ``"random"`` noise of the width of both, drawn once and for all.
        fusion: How Z stands beside X: ``"concat"`` as it is, ``"mass"`` scaled to
            ``fusion_weight`` of the node's feature mass, ``"softmax"`` over communities.
        fusion_weight: Mass of Z beside X, for ``fusion="mass"``.
        feature_norm: Row normalisation of X: ``"none"``, ``"l1"`` or ``"l2"``.
        bank_layers: Convolutions per community.
        composer: ``"gnn"`` over the whole graph, ``"weighted"`` over its parts weighed by their
            relevance to the labels, or ``"fc"``.
        composer_layers: Convolutions in the composer.
        hops: Steps that class scores walk over the graph after the composer, for nodes.
        teleport: Share of its own first scores that a node keeps in each of them.
        dropout: Dropout in bank and composer.
        node_dropout: Probability that the bank reads nothing of a node in a training pass.
        pooling: ``"sum"`` or ``"mean"``, for graphs.
        readout: ``"jumping"`` or ``"last"``, for graphs.

    Example:
        >>> model = VEPM(5, 3, num_communities=8, num_metacommunities=4, hidden_channels=16)
        >>> out = model(torch.rand(4, 5), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))
        >>> out.logits.shape, out.edge_weight.shape
        (torch.Size([4, 3]), torch.Size([4, 4]))
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        task: str = "node",
        num_communities: int = 64,
        num_metacommunities: int = 8,
        hidden_channels: int = 64,
        conv: str = "gcn",
        encoder_channels: int = 64,
        encoder_layers: int = 2,
        encoder_batch_norm: bool = True,
        encoder_dropout: float = 0.0,
        shape: str = "entry",
        partition: str = "learned",
        temperature: float = 1.0,
        shares: str = "softmax",
        grouping: str = "segments",
        normalize: str = "community",
        inputs: str = "both",
        fusion: str = "concat",
        fusion_weight: float = 0.03,
        feature_norm: str = "l2",
        bank_layers: int = 1,
        composer: str = "gnn",
        composer_layers: int = 1,
        hops: int = 0,
        teleport: float = 0.1,
        dropout: float = 0.5,
        node_dropout: float = 0.0,
        pooling: str = "sum",
        readout: str = "jumping",
    ) -> None:
        super().__init__()
        for name, value, allowed in [
            ("task", task, TASKS),
            ("partition", partition, PARTITIONS),
            ("grouping", grouping, GROUPINGS),
            ("inputs", inputs, INPUTS),
            ("fusion", fusion, FUSIONS),
            ("feature_norm", feature_norm, FEATURE_NORMS),
            ("composer", composer, COMPOSERS),
            ("pooling", pooling, POOLINGS),
            ("readout", readout, READOUTS),
        ]:
            if value not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")
        for name, depth in [
            ("encoder_layers", encoder_layers),
            ("bank_layers", bank_layers),
            ("composer_layers", composer_layers),
        ]:
            if depth < 1:
                raise ValueError(f"{name} must be at least 1, got {depth}")
        segment_sizes(num_communities, num_metacommunities)
        self.task = task
        self.inputs = inputs
        self.fusion = fusion
        self.fusion_weight = fusion_weight
        self.feature_norm = feature_norm
        self.encoder = CommunityEncoder(
            in_channels,
            num_communities,
            hidden_channels=encoder_channels,
            num_layers=encoder_layers,
            conv=conv,
            shape=shape,
            batch_norm=encoder_batch_norm,
            dropout=encoder_dropout,
        )
        # softplus(log(e - 1)) = 1: every community starts equally active.
        self.activation_logit = nn.Parameter(torch.full((num_communities,), math.log(math.e - 1)))
        # How much surer probabilities are than class scores say; training on labels fits it last.
        self.sharpness: Tensor
        self.register_buffer("sharpness", torch.ones(()))
        self.partitioner = EdgePartitioner(
            num_metacommunities,
            temperature,
            partition,
            shares=shares,
            num_communities=num_communities if grouping == "learned" else None,
        )
        widths = {"x": in_channels, "z": num_communities}
        bank_channels = widths.get(inputs, in_channels + num_communities)
        self.bank = CommunityBank(
            bank_channels,
            hidden_channels,
            num_metacommunities,
            num_layers=bank_layers,
            conv=conv,
            normalize=normalize,
            dropout=dropout if task == "node" else 0.0,
            node_dropout=node_dropout,
        )
        width = self.bank.out_channels
        self.composer: NodeComposer | GraphComposer
        if task == "node":
            self.composer = NodeComposer(
                width,
                out_channels,
                kind=composer,
                num_metacommunities=num_metacommunities,
                num_layers=composer_layers,
                conv=conv,
                hops=hops,
                teleport=teleport,
                dropout=dropout,
            )
        else:
            self.composer = GraphComposer(
                width,
                [bank_channels, *[width] * bank_layers],
                out_channels,
                kind=composer,
                num_metacommunities=num_metacommunities,
                num_layers=composer_layers,
                conv=conv,
                pooling=pooling,
                readout=readout,
                dropout=dropout,
            )

    @property
    def activation(self) -> Tensor:
        """Activation of each community, positive [C]."""
        return nn.functional.softplus(self.activation_logit)

    @property
    def learns_grouping(self) -> bool:
        """Whether labels teach which metacommunity each community belongs to."""
        return self.partitioner.assignment_logit is not None

    def encoder_parameters(self) -> list[nn.Parameter]:
        """Parameters phi of the inference network, the activations among them."""
        return [self.activation_logit, *self.encoder.parameters()]

    def predictor_parameters(self) -> list[nn.Parameter]:
        """Parameters theta: of the bank, the composer and a learned grouping."""
        parts = (self.bank, self.composer, self.partitioner)
        return [parameter for part in parts for parameter in part.parameters()]

    def undecayed_parameters(self) -> list[nn.Parameter]:
        """Those of theta that weight decay would pull towards an even, unweighted split."""
        relevance = self.composer.relevance
        return [*self.partitioner.parameters(), *(relevance.parameters() if relevance else ())]

    def probabilities(self, logits: Tensor) -> Tensor:
        """Class probabilities that class scores [..., classes] stand for."""
        return torch.softmax(self.sharpness * logits, dim=-1)

    def encode(self, x: Features, edge_index: EdgeIndex) -> Weibull:
        """Posterior of the affiliations [N, C]."""
        inputs: Features | Smoothed | None = None
        if self.encoder.conv == "gcn":
            inputs = smoothed(x, edge_index, self.feature_norm)
        if inputs is None:
            inputs = normalize_rows(x, self.feature_norm)
        posterior: Weibull = self.encoder(inputs, edge_index)
        return posterior

    def split_edges(self, z: Tensor, edge_index: EdgeIndex, batch: Tensor | None = None) -> Tensor:
        """Share of each edge in each metacommunity [E, K]."""
        shares: Tensor = self.partitioner(z, self.activation, edge_index, batch)
        return shares

    def plan_split(
        self, z: Tensor, edge_index: EdgeIndex, batch: Tensor | None = None
    ) -> Tensor | Shares:
        """The split of the edges for :meth:`classify` alone, which may never write it down."""
        return self.partitioner.plan(z, self.activation, edge_index, batch)

    def classify(
        self,
        x: Features,
        z: Tensor,
        edge_weight: Tensor | Shares,
        edge_index: EdgeIndex,
        batch: Tensor | None = None,
        num_graphs: int | None = None,
    ) -> Prediction:
        """Predict labels from features, affiliations and the split of the edges."""
        edges = as_adjacency(edge_index, x.size(0))
        if self.composer.relevance is not None and isinstance(edge_weight, Shares):
            # Read again by the composer, so written down once.
            edge_weight = edge_weight.tensor()
        inputs = self.fuse(normalize_rows(x, self.feature_norm), z, edges, batch)
        states = self.bank(inputs, edges, edge_weight)
        logits, embeddings = self._compose(inputs, states, edges, edge_weight, batch, num_graphs)
        return Prediction(logits, states[-1], embeddings)

    def classify_without_each(
        self,
        x: Features,
        z: Tensor,
        edge_weight: Tensor,
        edge_index: EdgeIndex,
        batch: Tensor | None = None,
        num_graphs: int | None = None,
    ) -> Iterator[Tensor]:
        """Class scores as in :meth:`classify`, with one metacommunity at a time having no say.

        What it knows of each node is replaced by what it knows of all nodes on average, before
        the composer sees it.
        """
        edges = as_adjacency(edge_index, x.size(0))
        inputs = self.fuse(normalize_rows(x, self.feature_norm), z, edges, batch)
        states = self.bank(inputs, edges, edge_weight)
        for k in range(states[0].size(1)):
            muted = [state.clone() for state in states]
            for state in muted:
                state[:, k] = state[:, k].mean(0)
            yield self._compose(inputs, muted, edges, edge_weight, batch, num_graphs)[0]

    def _compose(
        self,
        inputs: list[Features],
        states: list[Tensor],
        edges: Adjacency,
        edge_weight: Tensor | Shares,
        batch: Tensor | None,
        num_graphs: int | None,
    ) -> tuple[Tensor, Tensor]:
        """Class scores and composed representations from the states of the bank."""
        flat = [state.flatten(1) for state in states]
        if isinstance(self.composer, NodeComposer):
            logits = self.composer(flat[-1], edges, edge_weight)
            return logits, logits
        if batch is None:
            batch = edges.source.new_zeros(flat[-1].size(0))
        if num_graphs is None:
            num_graphs = int(batch.max()) + 1 if batch.numel() else 0
        skips = [torch.cat([dense(part) for part in inputs], dim=1), *flat]
        logits, pooled = self.composer(flat[-1], edges, skips, batch, num_graphs, edge_weight)
        return logits, pooled

    def forward(
        self,
        x: Features,
        edge_index: EdgeIndex,
        batch: Tensor | None = None,
        num_graphs: int | None = None,
        *,
        sample: bool | None = None,
    ) -> VEPMOutput:
        """Infer communities, split the edges and predict.

        Args:
            x: Node features [N, F], dense or :class:`SparseFeatures`.
            edge_index: Edges [2, E] in both directions, or an :class:`Adjacency`.
            batch: Graph of each node [N], for graph tasks with several graphs.
            num_graphs: Number of graphs in the batch, counted if not given.
            sample: Draw Z from its posterior, or use its mean; by default a draw in training
                mode and the mean in evaluation mode.
        """
        edges: Adjacency = as_adjacency(edge_index, x.size(0))
        posterior = self.encode(x, edges)
        z = draw(posterior, self.training if sample is None else sample)
        edge_weight = self.split_edges(z, edges, batch)
        prediction = self.classify(x, z, edge_weight, edges, batch, num_graphs)
        return VEPMOutput(
            prediction.logits,
            posterior,
            z,
            edge_weight,
            prediction.community_embeddings,
            prediction.embeddings,
        )

    def fuse(
        self, x: Features, z: Tensor, edges: Adjacency, batch: Tensor | None = None
    ) -> list[Features]:
        """The parts of X*, the bank's input, from normalised features and affiliations.

        Only random inputs, which belong to the nodes of each graph, look at edges and batch.
        """
        if self.inputs == "random":
            return [normal_on_nodes(edges, batch, x.size(1) + z.size(1)).to(z.dtype)]
        if self.fusion == "softmax":
            z = torch.softmax(z, dim=1)
        elif self.fusion == "mass":
            z = self.fusion_weight * row_mass(x) / z.sum(1, keepdim=True) * z
        parts: dict[str, list[Features]] = {"x": [x], "z": [z], "both": [x, z]}
        return parts[self.inputs]
