"""SIG-VAE: embeddings whose posterior is a mixture, learned from the edges alone."""

import math

import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn
from torch.distributions import Normal
from torch_geometric.nn import GAE, GCNConv

from vepm.baselines.base import Baseline, single_epoch_curve
from vepm.data import Dataset
from vepm.data.scaling import standardised
from vepm.evaluation import Curve, Split
from vepm.schema import checked


def mixture_log_density(z: Tensor, means: Tensor, scale: Tensor) -> Tensor:
    """Log-density [N] of z [N, D] under an even mixture of normals of means [S, N, D]."""
    each = Normal(means, scale).log_prob(z).sum(2)
    return each.logsumexp(0) - math.log(len(means))


def bound(model: GAE, x: Tensor, edges: Tensor, draws: int, others: Tensor | None = None) -> Tensor:
    """The training loss: the reconstruction of the edges, and the divergence from the prior.

    Edges are told apart from other pairs of nodes, by default random ones.
    """
    means, scale = model.encode(x, edges, draws)
    z = means[0] + scale * torch.randn_like(scale)
    prior = Normal(0.0, 1.0).log_prob(z).sum(1)
    divergence = (mixture_log_density(z, means, scale) - prior).mean()
    if others is None:
        # PyG's own negative samples are drawn by NumPy, which the seed does not reach.
        others = torch.randint(x.size(0), edges.shape, device=x.device)
    return model.recon_loss(z, edges, others) + divergence / x.size(0)


class MixtureEncoder(nn.Module):
    """Normals whose means depend on noise as well, so that their mixture may have any shape."""

    def __init__(self, in_channels: int, settings: "SIGVAE") -> None:
        super().__init__()
        width, latent = settings.hidden_channels, settings.latent_channels
        self.first = GCNConv(in_channels, width)
        self.noise = GCNConv(settings.noise_channels, width, bias=False)
        self.mean, self.log_scale = GCNConv(width, latent), GCNConv(width, latent)
        self.noise_channels = settings.noise_channels

    def forward(self, x: Tensor, edge_index: Tensor, draws: int = 1) -> tuple[Tensor, Tensor]:
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
        graph = standardised(dataset).graphs[0]
        x, edges = graph.x.to_dense().to(self.device), graph.edge_index.to(self.device)
        model = GAE(MixtureEncoder(dataset.num_features, self)).to(self.device)
        optimizer = torch.optim.Adam(model.parameters(), lr=self.learning_rate)
        for _ in range(self.epochs):
            optimizer.zero_grad()
            bound(model, x, edges, self.draws).backward()
            optimizer.step()
        with torch.no_grad():
            return model.eval().encode(x, edges, 1)[0][0].cpu()
