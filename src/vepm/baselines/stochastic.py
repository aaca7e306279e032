"""Baselines on nodes that draw in every pass: GRAND's dropped nodes, SIG-VAE's embeddings."""

import math

import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn
from torch.distributions import Normal
from torch.nn.functional import cross_entropy
from torch_geometric.nn import GAE, GCNConv
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from vepm.baselines.base import Baseline, Classifier, Labelled, NodeBaseline, single_epoch_curve
from vepm.data import Dataset
from vepm.evaluation import Curve, Split
from vepm.kernels.features import dense
from vepm.schema import checked
from vepm.training import GraphBatch


def mean_of_powers(x: Tensor, edge_index: Tensor, order: int) -> Tensor:
    r"""Features averaged over powers of the normalised adjacency up to the order K.

    .. math:: \frac{1}{K + 1} \sum_{k=0}^{K} \hat A^k X
    """
    ends, weight = gcn_norm(edge_index, None, x.size(0))
    size = (x.size(0), x.size(0))
    matrix = torch.sparse_coo_tensor(ends, weight, size, check_invariants=False).coalesce()
    total = power = x
    for _ in range(order):
        power = matrix @ power
        total = total + power
    return total / (order + 1)


def disagreement(probabilities: Tensor, temperature: float) -> Tensor:
    """Mean squared distance of passes [S, N, classes] from their sharpened mean."""
    mean = probabilities.mean(0).pow(1 / temperature)
    target = (mean / mean.sum(1, keepdim=True)).detach()
    return (probabilities - target).square().sum(2).mean()


class _GrandNetwork(Classifier):
    def __init__(self, in_channels: int, out_channels: int, settings: "GRAND") -> None:
        super().__init__()
        width = settings.hidden_channels
        norm: type[nn.Module] = nn.BatchNorm1d if settings.batch_norm else nn.Identity
        self.perceptron = nn.Sequential(
            norm(in_channels),
            nn.Dropout(settings.input_dropout),
            nn.Linear(in_channels, width),
            nn.ReLU(),
            norm(width),
            nn.Dropout(settings.dropout),
            nn.Linear(width, out_channels),
        )
        self.settings = settings

    def forward(self, graph: GraphBatch) -> Tensor:
        x = dense(graph.x).to_dense()
        kept = torch.full((x.size(0), 1), 1 - self.settings.node_dropout, device=x.device)
        x = x * (torch.bernoulli(kept) if self.training else kept)
        return self.perceptron(mean_of_powers(x, graph.edges.edge_index, self.settings.order))

    def losses(self, batch: Labelled) -> tuple[Tensor, Tensor]:
        """Mean cross-entropy of the passes, and how far they are from agreeing on all nodes."""
        passes = torch.stack([self(batch.graph) for _ in range(self.settings.passes)])
        losses = [cross_entropy(one[batch.rows], batch.labels) for one in passes]
        apart = disagreement(passes.softmax(2), self.settings.temperature)
        return torch.stack(losses).mean(), self.settings.consistency_weight * apart


class GRAND(NodeBaseline):
    """Feng et al. (2020): nodes dropped, features propagated, and passes that should agree.

    ``node_dropout`` is for whole nodes before the propagation, ``input_dropout`` for single
    features after it. A temperature below one sharpens the mean that the passes should agree on.
    """

    network = _GrandNetwork
    name: str = "grand"
    epochs: int = checked(1500, low=1)
    patience: int | None = 200
    hidden_channels: int = checked(32, low=1)
    order: int = checked(8, low=0)
    node_dropout: float = checked(0.5, low=0, below=1)
    input_dropout: float = checked(0.5, low=0, below=1)
    passes: int = checked(4, low=1)
    consistency_weight: float = checked(1.0, low=0)
    temperature: float = checked(0.5, above=0)
    batch_norm: bool = False


def mixture_log_density(z: Tensor, means: Tensor, scale: Tensor) -> Tensor:
    """Log-density [N] of z [N, D] under an even mixture of normals of means [S, N, D]."""
    each = Normal(means, scale).log_prob(z).sum(2)
    return each.logsumexp(0) - math.log(len(means))


def bound(model: GAE, x: Tensor, edges: Tensor, draws: int) -> Tensor:
    """What training lowers: how badly edges are told apart, and the divergence from the prior."""
    means, scale = model.encode(x, edges, draws)
    z = means[0] + scale * torch.randn_like(scale)
    prior = Normal(0.0, 1.0).log_prob(z).sum(1)
    divergence = (mixture_log_density(z, means, scale) - prior).mean()
    # PyG's own negative samples are drawn by NumPy, which the seed does not reach.
    pairs = torch.randint(x.size(0), edges.shape, device=x.device)
    return model.recon_loss(z, edges, pairs) + divergence / x.size(0)


class _Encoder(nn.Module):
    """Normals whose means depend on noise as well, so that their mixture may have any shape."""

    def __init__(self, in_channels: int, settings: "SIGVAE") -> None:
        super().__init__()
        width, latent = settings.hidden_channels, settings.latent_channels
        self.first = GCNConv(in_channels, width)
        self.noise = GCNConv(settings.noise_channels, width, bias=False)
        self.mean, self.log_scale = GCNConv(width, latent), GCNConv(width, latent)
        self.noise_channels = settings.noise_channels

    def forward(self, x: Tensor, edge_index: Tensor, draws: int) -> tuple[Tensor, Tensor]:
        """Means [S, N, D] by draw of the noise, and the scale [N, D] they share."""
        hidden, means = self.first(x, edge_index), []
        for _ in range(draws):
            # Embeddings are read without noise.
            noise = self.training * torch.randn(x.size(0), self.noise_channels, device=x.device)
            seen = (hidden + self.noise(noise, edge_index)).relu()
            means.append(self.mean(seen, edge_index))
        return torch.stack(means), self.log_scale(hidden.relu(), edge_index).clamp(-5, 5).exp()


class SIGVAE(Baseline):
    """Hasanzadeh et al. (2019): embeddings that explain the edges, read by logistic regression.

    Edges and as many random pairs are told apart by inner products, labels unseen. The noise fed
    to each node is drawn ``draws`` times in every step. The classifier, whose penalty has inverse
    strength ``C``, reads the mean of each embedding, without noise.
    """

    task = "node"
    name: str = "sig-vae"
    epochs: int = checked(60, low=1)
    learning_rate: float = checked(0.01, above=0)
    hidden_channels: int = checked(64, low=1)
    latent_channels: int = checked(32, low=1)
    noise_channels: int = checked(32, low=1)
    draws: int = checked(5, low=1)
    C: float = checked(1.0, above=0)
    device: str = "cpu"

    def train(self, dataset: Dataset, split: Split, seed: int) -> tuple[Curve, Tensor]:
        """Embed all nodes, then fit the classifier to the training part."""
        z, labels = self.embed(dataset).numpy(), dataset.labels
        model = make_pipeline(StandardScaler(), LogisticRegression(C=self.C, max_iter=1000))
        model.fit(z[split.train], labels[split.train].numpy())
        found = torch.zeros(len(z), dataset.num_classes, dtype=torch.double)
        found[:, model.classes_] = torch.from_numpy(model.predict_proba(z)).double()
        return single_epoch_curve(found.argmax(dim=1), labels, split), found[split.test]

    def embed(self, dataset: Dataset) -> Tensor:
        """Means of the embeddings [N, D] of all nodes."""
        graph = dataset.graphs[0]
        x, edges = graph.x.to_dense().to(self.device), graph.edge_index.to(self.device)
        model = GAE(_Encoder(dataset.num_features, self)).to(self.device)
        optimizer = torch.optim.Adam(model.parameters(), lr=self.learning_rate)
        for _ in range(self.epochs):
            optimizer.zero_grad()
            bound(model, x, edges, self.draws).backward()
            optimizer.step()
        with torch.no_grad():
            return model.eval().encode(x, edges, 1)[0][0].cpu()
