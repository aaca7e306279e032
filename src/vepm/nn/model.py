"""The four boxes wired together."""

import math
from types import SimpleNamespace
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.distributions import Weibull

from vepm.kernels.aggregation import Adjacency, EdgeIndex, as_adjacency
from vepm.kernels.features import Features, dense, normalize_rows, row_mass
from vepm.kernels.shares import SMALLEST_SHARE, link_shares, normal_on_nodes
from vepm.nn.building import build_boxes, check_options
from vepm.nn.composer import NodeComposer
from vepm.nn.encoder import draw

REST = 0.1  # initial sum of a community's rates with all but its partner, whose rate is 1


class Prediction(NamedTuple):
    """Output of the generative network, given affiliations and the split of the edges."""

    logits: Tensor  # class scores, [N, classes] for nodes or [G, classes] for graphs
    community_embeddings: Tensor  # of each node in each metacommunity [N, K, H/K]
    embeddings: Tensor  # the composed representation of each node or graph


class VEPMOutput(NamedTuple):
    """Everything a forward pass computes; a :class:`Prediction` and what it rests on."""

    logits: Tensor
    posterior: Weibull  # of the affiliations [N, C]
    z: Tensor  # the affiliations this pass used [N, C]
    edge_weight: Tensor  # share of each edge in each metacommunity [E, K]
    community_embeddings: Tensor
    embeddings: Tensor


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
        conv: ``"gcn"``, ``"gin"`` or ``"sage"`` throughout.
        encoder_channels: Hidden width of the community encoder.
        encoder_layers: Convolutions in the community encoder.
        encoder_batch_norm: Batch normalisation inside the encoder.
        encoder_dropout: Dropout inside the encoder.
        shape: Weibull shapes per ``"entry"`` or per ``"node"``.
        partition: ``"learned"``, ``"even"`` or ``"random"`` split of the edges.
        temperature: How evenly learned and random splits share an edge out; low is one part.
        shares: ``"softmax"`` of the rates or ``"posterior"``, proportional to them.
        grouping: Communities of a metacommunity: consecutive ``"segments"``, or a ``"learned"``
            assignment that the labels teach.
        interactions: ``"diagonal"`` joins nodes through communities that they share; ``"matrix"``
            learns how readily each links to every other.
        directed: Give every node two affiliations to each community, one for the links it sends
            and one for those it receives. Columns of Z then alternate between the two [N, 2C].
        normalize: How shares become message weights: ``"none"``, ``"graph"``,
            ``"community"`` or ``"neighbours"``.
        inputs: What the bank reads: features ``"x"``, affiliations ``"z"``, ``"both"``, or
            ``"random"`` noise of the width of both, drawn once and for all.
        fusion: How Z is joined to X: ``"concat"`` as it is, ``"mass"`` scaled to
            ``fusion_weight`` of the node's feature mass, ``"softmax"`` over communities.
        fusion_weight: Mass of Z relative to X, for ``fusion="mass"``.
        feature_norm: Row normalisation of X: ``"none"``, ``"l1"`` or ``"l2"``.
        bank_layers: Convolutions per community.
        composer: ``"gnn"`` over the whole graph, ``"weighted"`` over its parts weighted by their
            relevance to the labels, or ``"fc"``.
        composer_layers: Convolutions in the composer.
        hops: Steps that propagate class scores over the graph after the composer, for nodes.
        teleport: Share of its own first scores that a node keeps in each of them.
        dropout: Dropout in bank and composer.
        node_dropout: Probability that the bank reads nothing of a node in a training pass.
        pooling: ``"sum"`` or ``"mean"``, for graphs.
        readout: ``"jumping"`` or ``"last"``, for graphs.
        encoder_conv: Convolution of the community encoder, by default the ``"same"``.
        background: Make the last community one to which all nodes belong equally, for links that no
            other explains; a learned grouping starts with it as a metacommunity of its own.
        sparse: Let nodes not belong to a community at all.
        paired: Number of communities, at most half, that start as pairs linked to each other; the
            others start linked to themselves. For ``interactions="matrix"``.

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
        interactions: str = "diagonal",
        directed: bool = False,
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
        encoder_conv: str = "same",
        background: bool = False,
        sparse: bool = False,
        paired: int = 8,
    ) -> None:
        given = SimpleNamespace(**{k: v for k, v in locals().items() if k != "__class__"})
        super().__init__()
        check_options(given)
        self.task, self.directed, self.feature_norm = task, directed, feature_norm
        self.inputs, self.fusion, self.fusion_weight = inputs, fusion, fusion_weight
        self.encoder, self.partitioner, self.bank, self.composer = build_boxes(given)
        # softplus(log(e - 1)) = 1: every community starts equally active.
        self.activation_logit = nn.Parameter(torch.full((num_communities,), math.log(math.e - 1)))
        self.interaction_logit = None
        if interactions == "matrix":
            logits = first_interactions(num_communities, paired).expm1().log()
            self.activation_logit.data.copy_(logits.diagonal())
            self.interaction_logit = nn.Parameter(logits)
        # The inverse temperature of probabilities, fitted last, under its name in saved models.
        self.sharpness: Tensor
        self.register_buffer("sharpness", torch.ones(()))

    @property
    def activation(self) -> Tensor:
        """Activation of each community, positive [C]; its interactions with all summed up."""
        found = self.interactions
        if found.dim() == 1:
            return found
        return found.sum(0) + found.sum(1) if self.directed else found.sum(1)

    @property
    def interactions(self) -> Tensor:
        """Coefficients of the rates: activations [C], or symmetric interactions [C, C].

        With directed links they are [2C, 2C], from affiliations for sending to those for receiving.
        """
        found = own = nn.functional.softplus(self.activation_logit)
        if self.interaction_logit is not None:
            between = nn.functional.softplus(self.interaction_logit)
            if not self.directed:
                between = (between + between.mT) / 2
            found = torch.where(torch.eye(own.numel(), device=own.device).bool(), own, between)
        if not self.directed:
            return found
        between = found if found.dim() == 2 else torch.diag_embed(found)
        return torch.kron(between, own.new_ones(2, 2).triu(1))

    def used_communities(self, z: Tensor) -> Tensor:
        """Communities through which three in a thousand links run or more, given Z [N, C]."""
        shares = link_shares(z, self.interactions)
        if self.directed:
            shares = shares.view(-1, 2).sum(1)
        return (shares >= SMALLEST_SHARE).nonzero().flatten()

    @property
    def learns_grouping(self) -> bool:
        """Whether labels teach which metacommunity each community belongs to."""
        return self.partitioner.assignment_logit is not None

    def encoder_parameters(self) -> list[nn.Parameter]:
        """Parameters phi of the inference network, the activations among them."""
        between = () if self.interaction_logit is None else (self.interaction_logit,)
        return [self.activation_logit, *between, *self.encoder.parameters()]

    def predictor_parameters(self) -> list[nn.Parameter]:
        """Parameters theta: of the bank, the composer and a learned grouping."""
        parts = (self.bank, self.composer, self.partitioner)
        return [parameter for part in parts for parameter in part.parameters()]

    def undecayed_parameters(self) -> list[nn.Parameter]:
        """Those of theta that weight decay would pull towards an even, unweighted split."""
        relevance = self.composer.relevance
        return [*self.partitioner.parameters(), *(relevance.parameters() if relevance else ())]

    def probabilities(self, logits: Tensor) -> Tensor:
        """Class probabilities from class scores [..., classes]."""
        return torch.softmax(self.sharpness * logits, dim=-1)

    def encode(self, x: Features, edge_index: EdgeIndex) -> Weibull:
        """Posterior of the affiliations [N, C]."""
        posterior: Weibull = self.encoder(normalize_rows(x, self.feature_norm), edge_index)
        return posterior

    def split_edges(self, z: Tensor, edge_index: EdgeIndex, batch: Tensor | None = None) -> Tensor:
        """Share of each edge in each metacommunity [E, K]."""
        shares: Tensor = self.partitioner(z, self.interactions, edge_index, batch)
        return shares

    def classify(
        self,
        x: Features,
        z: Tensor,
        edge_weight: Tensor,
        edge_index: EdgeIndex,
        batch: Tensor | None = None,
        num_graphs: int | None = None,
    ) -> Prediction:
        """Predict labels from features, affiliations and the split of the edges."""
        edges = as_adjacency(edge_index, x.size(0))
        inputs = self.fuse(normalize_rows(x, self.feature_norm), z, edges, batch)
        states = self.bank(inputs, edges, edge_weight)
        logits, embeddings = self.compose(inputs, states, edges, edge_weight, batch, num_graphs)
        return Prediction(logits, states[-1], embeddings)

    def compose(
        self,
        inputs: list[Features],
        states: list[Tensor],
        edges: Adjacency,
        edge_weight: Tensor,
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
        return self.composer(flat[-1], edges, skips, batch, num_graphs, edge_weight)

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
            sample: Draw Z from its posterior or use its mean; by default, draw while training.
        """
        edges = as_adjacency(edge_index, x.size(0))
        posterior = self.encode(x, edges)
        z = draw(posterior, self.training if sample is None else sample)
        edge_weight = self.split_edges(z, edges, batch)
        logits, *embeddings = self.classify(x, z, edge_weight, edges, batch, num_graphs)
        return VEPMOutput(logits, posterior, z, edge_weight, *embeddings)

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


def first_interactions(num_communities: int, paired: int) -> Tensor:
    """Rates between communities [C, C] before training; ``paired`` of them, at most half, in pairs.

    From communities that all link to themselves, training would never find out that a graph joins
    unlike nodes: it would only make the affiliations of linked nodes more alike.
    """
    each = torch.arange(num_communities)
    most = 2 * min((num_communities + 1) // 4, paired // 2)
    other = torch.where(each < most, each ^ 1, each)
    rates = torch.full((num_communities, num_communities), REST / num_communities)
    rates[each, other] = 1
    return rates
