"""Baselines that tell neighbours apart, as VEPM does: DisenGCN, FactorGCN and hGANet."""

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, dropout, elu, relu
from torch_geometric.nn import GCNConv, TopKPooling, global_mean_pool
from torch_geometric.nn.pool.select.topk import topk
from torch_geometric.utils import scatter, softmax

from vepm.baselines.base import Classifier, Labelled, NodeBaseline, PooledBaseline
from vepm.baselines.graphs import POOLING, Readout
from vepm.baselines.nodes import FeatureDropout
from vepm.kernels.features import dense
from vepm.nn import Adjacency, aggregate, edge_dot
from vepm.schema import checked
from vepm.training import GraphBatch


def unit_length(x: Tensor) -> Tensor:
    """Channels x [N, K, D] scaled to unit length; zeros stay zero, with a finite gradient."""
    length = x.norm(dim=2, keepdim=True)
    return x / torch.where(length > 1e-6, length, 1.0)


class DisenConv(nn.Module):
    r"""Neighbourhood routing: each neighbour is assigned to the channel that explains its edge.

    .. math:: z_{ik} = \frac{x_{ik}}{\lVert x_{ik} \rVert_2}, \quad
        p_{ijk} = \mathrm{softmax}_k (z_{jk}^\top c_{ik} / \tau), \quad
        c_{ik} \leftarrow \frac{z_{ik} + \sum_j p_{ijk} z_{jk}}{\lVert \cdot \rVert_2}
    """

    def __init__(self, num_iterations: int = 6, temperature: float = 1.0) -> None:
        super().__init__()
        self.num_iterations, self.temperature = num_iterations, temperature

    def forward(self, x: Tensor, edges: Adjacency) -> tuple[Tensor, Tensor]:
        """Centres [N, K, D] of channels x [N, K, D], and each edge's share in each [E, K]."""
        z = unit_length(x)
        centre, share = z, z.new_empty(0)
        for _ in range(self.num_iterations):
            share = torch.softmax(edge_dot(centre, z, edges) / self.temperature, dim=1)
            centre = unit_length(z + aggregate(z, edges, share))
        return centre, share


class _DisenNetwork(Classifier):
    def __init__(self, in_channels: int, out_channels: int, settings: "DisenGCN") -> None:
        super().__init__()
        width = settings.num_factors * settings.factor_channels
        self.project = nn.Linear(in_channels, width)
        # On row-normalised words a random bias would outweigh the words themselves.
        nn.init.zeros_(self.project.bias)
        self.routing = DisenConv(settings.num_iterations, settings.temperature)
        self.head = nn.Linear(width, out_channels)
        self.drop = FeatureDropout(settings.dropout)
        self.settings = settings

    def forward(self, graph: GraphBatch) -> Tensor:
        x = self.project(self.drop(graph.x)).relu()
        x = x.view(x.size(0), self.settings.num_factors, -1)
        for _ in range(self.settings.num_layers):
            x = self.routing(x, graph.edges)[0]
        return self.head(dropout(x.flatten(1), self.settings.dropout, self.training))


class DisenGCN(NodeBaseline):
    """Ma et al. (2019): channels, layers that route neighbours to them, and a linear classifier.

    Dropout is for features and for what the classifier reads, not for what lies in between. The
    settings are ours, chosen on Cora's validation nodes.
    """

    network = _DisenNetwork
    name: str = "disengcn"
    weight_decay: float = 0.03
    dropout: float = 0.7
    patience: int | None = 100
    row_normalize: bool = False
    num_factors: int = 4
    factor_channels: int = 16
    num_layers: int = 6
    num_iterations: int = 3
    temperature: float = 1.0


class FactorConv(nn.Module):
    r"""One layer: split the graph into factor graphs, convolve on each, put the results together.

    .. math:: E_{ije} = \mathrm{sigmoid}(\Psi_e(W h_i, W h_j)), \quad
        h_i^{e} = \sigma\Big(\sum_{j} \frac{E_{ije}}{\sqrt{d_i d_j}} W h_j\Big)

    Every node is also its own neighbour, in every factor. The width is that of all factors.
    """

    def __init__(self, in_channels: int, out_channels: int, num_factors: int) -> None:
        super().__init__()
        self.num_factors = num_factors
        self.project = nn.Linear(in_channels, out_channels)
        self.to_score = nn.Linear(out_channels, num_factors)
        self.from_score = nn.Linear(out_channels, num_factors, bias=False)
        self.norm = nn.BatchNorm1d(out_channels)

    def forward(self, x: Tensor, graph: GraphBatch) -> tuple[Tensor, Tensor]:
        """Node features [N, out_channels] and the factor graphs' edge weights [E, factors]."""
        h = self.project(x)
        source, target = graph.edges.edge_index
        share = torch.sigmoid(self.to_score(h)[target] + self.from_score(h)[source])
        mixed = convolve(h.view(h.size(0), self.num_factors, -1), share, graph)
        return relu(self.norm(mixed.flatten(1))), share


def convolve(h: Tensor, share: Tensor, graph: GraphBatch) -> Tensor:
    """Aggregate h [N, factors, D] on each factor graph, symmetrically normalised by degree."""
    degree = graph.edges.target.bincount(minlength=h.size(0)) + 1
    scale = degree.to(h.dtype).rsqrt().view(-1, 1, 1)
    scaled = h * scale
    return scale * (scaled + aggregate(scaled, graph.edges, share))


class FactorDiscriminator(nn.Module):
    """Tells from a factor graph which factor it is: the factors must differ for it to succeed."""

    def __init__(self, in_channels: int, hidden_channels: int, num_factors: int) -> None:
        super().__init__()
        self.project = nn.Linear(in_channels, hidden_channels)
        self.head = nn.Linear(hidden_channels, num_factors)

    def forward(self, x: Tensor, share: Tensor, graph: GraphBatch) -> Tensor:
        """Cross-entropy of telling every factor graph of every graph."""
        factors = share.size(1)
        same = self.project(x).unsqueeze(1).expand(-1, factors, -1)
        seen = relu(convolve(same, share, graph)).flatten(1)
        pooled = global_mean_pool(seen, graph.batch, graph.num_graphs)
        logits = self.head(pooled.view(graph.num_graphs * factors, -1))
        wanted = torch.arange(factors, device=x.device).repeat(graph.num_graphs)
        return cross_entropy(logits, wanted)


class _FactorNetwork(Classifier):
    def __init__(self, in_channels: int, out_channels: int, settings: "FactorGCN") -> None:
        super().__init__()
        widths = [in_channels] + [settings.hidden_channels] * (settings.num_layers - 1)
        factors, pairs = settings.num_factors, list(pairwise(widths))
        self.convolutions = nn.ModuleList(FactorConv(a, b, factors) for a, b in pairs)
        self.discriminators = nn.ModuleList(FactorDiscriminator(a, b, factors) for a, b in pairs)
        self.readout = Readout(widths, out_channels, settings)
        self.settings = settings

    def _layers(self, graph: GraphBatch) -> tuple[list[Tensor], list[Tensor]]:
        layers, shares = [dense(graph.x)], []
        for convolution in self.convolutions:
            x, share = convolution(layers[-1], graph)
            layers.append(x)
            shares.append(share)
        return layers, shares

    def forward(self, graph: GraphBatch) -> Tensor:
        return self.readout(self._layers(graph)[0], graph)

    def losses(self, batch: Labelled) -> tuple[Tensor, Tensor]:
        """Cross-entropy of the labels, and the weighted loss of the discriminators."""
        layers, shares = self._layers(batch.graph)
        pairs = zip(self.discriminators, layers, shares, strict=False)
        losses = [discriminate(x, share, batch.graph) for discriminate, x, share in pairs]
        penalty = self.settings.discriminator_weight * torch.stack(losses).mean()
        logits = self.readout(layers, batch.graph)[batch.rows]
        return cross_entropy(logits, batch.labels), penalty


class FactorGCN(PooledBaseline):
    """Yang et al. (2020): stacked factor convolutions, their discriminators, and GIN's readout.

    The input counts as a layer. The number of factors must divide ``hidden_channels``.
    """

    network = _FactorNetwork
    name: str = "factorgcn"
    hidden_channels: int = 64
    num_layers: int = 4
    num_factors: int = 4
    discriminator_weight: float = 0.5


class HardAttention(nn.Module):
    r"""Attention to the few neighbours that a projection ranks highest; the node itself is added.

    .. math:: y = |X p| / \lVert p \rVert_2, \quad
        h_i = x_i + \sum_{j \in \mathrm{top}_k(i)} \mathrm{softmax}_j (x_i^\top g_j) \, g_j, \quad
        g_j = \sigma(y_j) \, x_j
    """

    def __init__(self, channels: int, num_neighbours: int) -> None:
        super().__init__()
        self.direction = nn.Parameter(torch.randn(channels) / channels**0.5)
        self.num_neighbours = num_neighbours

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Nodes [N, channels] once each has looked at its best neighbours."""
        score = (x @ self.direction).abs() / self.direction.norm()
        sent, (source, target) = x * score.sigmoid()[:, None], edge_index
        if source.numel():
            kept = topk(score[source], self.num_neighbours, target)
            source, target = source[kept], target[kept]
        match = softmax((x[target] * sent[source]).sum(1), target, num_nodes=x.size(0))
        return x + scatter(match[:, None] * sent[source], target, dim_size=x.size(0))


class _HardNetwork(Classifier):
    def __init__(
        self, in_channels: int, out_channels: int, settings: "HGANet | GraphHGANet"
    ) -> None:
        super().__init__()
        width, depth = settings.hidden_channels, range(settings.num_layers)
        self.embed = GCNConv(in_channels, width)
        self.attend = nn.ModuleList(HardAttention(width, settings.num_neighbours) for _ in depth)
        self.convolve = nn.ModuleList(GCNConv(width, width) for _ in depth)
        self.head: nn.Module = GCNConv(width * (settings.num_layers + 1), out_channels)
        self.settings = settings

    def forward(self, graph: GraphBatch) -> Tensor:
        edges, rate = graph.edges.edge_index, self.settings.dropout
        layers = [self.embed(dropout(dense(graph.x).to_dense(), rate, self.training), edges)]
        for attend, convolve in zip(self.attend, self.convolve, strict=True):
            x = dropout(attend(layers[-1], edges), rate, self.training)
            layers.append(elu(convolve(x, edges)))
        return self.head(dropout(torch.cat(layers, 1), rate, self.training), edges)


class HGANet(NodeBaseline):
    """Gao and Ji (2019): attention to a few neighbours alone, each followed by a convolution."""

    network = _HardNetwork
    name: str = "hganet"
    patience: int | None = 100
    hidden_channels: int = checked(48, low=1)
    num_layers: int = checked(2, low=1)
    num_neighbours: int = checked(8, low=1)


class _GraphHardNetwork(_HardNetwork):
    def __init__(self, in_channels: int, out_channels: int, settings: "GraphHGANet") -> None:
        super().__init__(in_channels, out_channels, settings)
        width, share = settings.hidden_channels, settings.kept_share
        self.shrink = nn.ModuleList(TopKPooling(width, share) for _ in self.attend)
        self.head = nn.Linear(width * (settings.num_layers + 1), out_channels)
        self.pool = POOLING[settings.pooling]

    def forward(self, graph: GraphBatch) -> Tensor:
        edges, batch, count = graph.edges.edge_index, graph.batch, graph.num_graphs
        x = self.embed(dense(graph.x), edges)
        pooled = [self.pool(x, batch, count)]
        for attend, convolve, shrink in zip(self.attend, self.convolve, self.shrink, strict=True):
            x = elu(convolve(attend(x, edges), edges))
            x, edges, _, batch, _, _ = shrink(x, edges, batch=batch)
            pooled.append(self.pool(x, batch, count))
        return self.head(dropout(torch.cat(pooled, 1), self.settings.dropout, self.training))


class GraphHGANet(PooledBaseline):
    """Gao and Ji (2019) on graphs: hard attention, a convolution, the best nodes kept, in turn."""

    network = _GraphHardNetwork
    name: str = "graph-hganet"
    learning_rate: float = checked(0.005, above=0)
    hidden_channels: int = checked(48, low=1)
    num_layers: int = checked(3, low=1)
    num_neighbours: int = checked(8, low=1)
    kept_share: float = checked(0.8, above=0, below=1)
