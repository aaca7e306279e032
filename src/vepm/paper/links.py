"""Link prediction: VEPM, graph autoencoders and common neighbours on the same held-out edges."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor
from torch_geometric.nn import GAE, VGAE, GCNConv

from vepm.baselines.sigvae import SIGVAE, MixtureEncoder, bound
from vepm.estimators import LinkPredictor
from vepm.estimators.pairs import (
    EdgeSplit,
    Pairs,
    adjacency,
    draw_at_distance_two,
    draw_non_edges,
    ranked,
    split_edges,
)
from vepm.paper.cells import Finding, Setting

VALIDATED, TESTED, QUICK_EPOCHS = 0.05, 0.10, 2
# As in the paper of the graph autoencoders (Kipf and Welling, 2016).
HIDDEN, LATENT, EPOCHS, LEARNING_RATE = 32, 16, 200, 0.01

Floats = NDArray[np.float64]
Score = Callable[[Pairs], Floats]


def link_prediction(setting: Setting) -> Finding:
    """Held-out edges ranked by VEPM: against random pairs, and against pairs at distance two."""
    parts = split_edges(setting.graph, VALIDATED, TESTED, setting.seed)
    model = LinkPredictor(config=setting.config, random_state=setting.seed, device=setting.device)
    model.fit_edges(setting.dataset, parts)
    seen = replace(setting.dataset, graphs=[parts.graph])
    nodes = model.nodes(seen)
    found = _measure(setting, parts, lambda pairs: nodes.log_odds(pairs, model.calibration_))
    found.numbers["calibration_error"] = model.scores_["calibration_error"]
    (y, x), (y_test, x_test) = (ranked(nodes.evidence, part) for part in (parts.val, parts.test))
    for name, columns in (("rate_auc", [0, 1]), ("surroundings_auc", [2, 3])):
        # From part of the evidence, with weights fitted anew to the validation edges.
        curve = make_pipeline(StandardScaler(), LogisticRegression()).fit(x[:, columns], y)
        ranks = curve.decision_function(x_test[:, columns])
        found.numbers[name] = float(roc_auc_score(y_test, ranks))
    return found


def common_neighbours(setting: Setting) -> Finding:
    """Held-out edges ranked by the number of common neighbours."""
    parts = split_edges(setting.graph, VALIDATED, TESTED, setting.seed)
    matrix = adjacency(parts.graph)
    return _measure(setting, parts, lambda pairs: (matrix[pairs[0]] * matrix[pairs[1]]).sum(1))


class _Encoder(torch.nn.Module):
    def __init__(self, in_channels: int, num_outputs: int) -> None:
        super().__init__()
        self.hidden = GCNConv(in_channels, HIDDEN)
        self.outputs = torch.nn.ModuleList(GCNConv(HIDDEN, LATENT) for _ in range(num_outputs))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor | tuple[Tensor, ...]:
        h = torch.relu(self.hidden(x, edge_index))
        found = tuple(output(h, edge_index) for output in self.outputs)
        return found if len(found) > 1 else found[0]


def _reconstruction(model: GAE, x: Tensor, edges: Tensor, others: Tensor) -> Tensor:
    """Loss of GAE and VGAE: how badly edges are told from other pairs, and any divergence."""
    loss = model.recon_loss(model.encode(x, edges), edges, others)
    return loss + model.kl_loss() / len(x) if isinstance(model, VGAE) else loss


class Autoencoder(NamedTuple):
    """A graph autoencoder: how to build it, its loss, and its embeddings."""

    build: Callable[[int], GAE]  # from the number of features
    loss: Callable[[GAE, Tensor, Tensor, Tensor], Tensor] = _reconstruction
    embed: Callable[[GAE, Tensor, Tensor], Tensor] = GAE.encode


MIXTURE = SIGVAE(hidden_channels=HIDDEN, latent_channels=LATENT)
AUTOENCODERS = {
    "gae": Autoencoder(lambda width: GAE(_Encoder(width, 1))),
    "vgae": Autoencoder(lambda width: VGAE(_Encoder(width, 2)), embed=VGAE.encode),
    "sigvae_links": Autoencoder(
        lambda width: GAE(MixtureEncoder(width, MIXTURE)),
        lambda model, x, edges, others: bound(model, x, edges, MIXTURE.draws, others),
        lambda model, x, edges: model.encode(x, edges)[0][0],  # without noise, one draw will do
    ),
}


def autoencoder(kind: Autoencoder, setting: Setting) -> Finding:
    """Held-out edges ranked by an autoencoder, at the epoch of highest AUC on validation."""
    parts = split_edges(setting.graph, VALIDATED, TESTED, setting.seed)
    # As in their code, rows are not normalised: then 200 epochs would not be enough.
    x, edges = setting.graph.x.to_dense(), parts.graph.edge_index
    with torch.random.fork_rng():
        model = kind.build(x.size(1))
        torch.manual_seed(setting.seed)
        model.reset_parameters()
        optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
        random = np.random.default_rng(setting.seed)
        best, z = 0.0, torch.empty(0)
        for _ in range(QUICK_EPOCHS if setting.quick else EPOCHS):
            model.train()
            optimizer.zero_grad()
            # PyG would draw them from a generator that is not seeded here.
            others = torch.from_numpy(draw_non_edges(parts.graph, edges.size(1) // 2, random))
            kind.loss(model, x, edges, others).backward()
            optimizer.step()
            model.eval()
            with torch.no_grad():
                found = kind.embed(model, x, edges)
            reached = roc_auc_score(*ranked(_products(found), parts.val))
            if reached >= best:
                best, z = reached, found
    return _measure(setting, parts, _products(z))


LINK_STUDIES: dict[str, Callable[[Setting], Finding]] = {
    "link_prediction": link_prediction,
    "common_neighbours": common_neighbours,
    **{name: partial(autoencoder, kind) for name, kind in AUTOENCODERS.items()},
}


def _products(z: Tensor) -> Score:
    return lambda pairs: (z[pairs[0]] * z[pairs[1]]).sum(1).double().numpy()


def _measure(setting: Setting, parts: EdgeSplit, score: Score) -> Finding:
    edges = parts.test[0]
    found = ranked(score, parts.test)
    apart = draw_at_distance_two(setting.graph, edges.shape[1], setting.seed)
    hard = ranked(score, (edges, apart))
    return Finding(
        {
            "auc": float(roc_auc_score(*found)),
            "average_precision": float(average_precision_score(*found)),
            "hard_auc": float(roc_auc_score(*hard)),
        }
    )
