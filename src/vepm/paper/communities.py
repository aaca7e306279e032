"""Communities: VEPM's before and after they meet the labels, other methods', and known ones."""

import math
import warnings
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from sklearn.cluster import SpectralClustering
from sklearn.metrics import confusion_matrix
from sklearn.metrics import normalized_mutual_info_score as nmi
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from torch import Tensor
from torch.distributions import Dirichlet, kl_divergence
from torch.nn.functional import one_hot
from torch_geometric.data import Data
from torch_geometric.utils import to_scipy_sparse_matrix

from vepm.baselines.communities import DETECTORS
from vepm.errors import InputError
from vepm.estimators import CommunityDetector
from vepm.evaluation.communities import Cover, compare, known_communities
from vepm.nn import draw, interactions, members
from vepm.paper.cells import Finding, Setting, finetune
from vepm.scale.batches import GraphBatch
from vepm.training import Fitted, explain, fit
from vepm.training.prediction import seeded

STEPS, LEARNING_RATE, TINY = 500, 0.05, 1e-6  # of inference in blockmodels
QUICK_NODES = 400
SHOWN_GRAPHS, RARE = 10, 5  # as in the paper: graphs that are drawn, and least nodes of a label


def communities(setting: Setting) -> Finding:
    """Communities after pretraining and after finetuning, how far they agree, and their arrays."""
    # With one seed, pretraining finds the same communities in both.
    pretrained = fit(setting.dataset, setting.config, seed=setting.seed, device=setting.device)
    fitted, result = finetune(setting)
    before, after = (explain(found.model, found.source) for found in (pretrained, fitted))
    arrays = {
        "pretrained_z": before.memberships,
        "z": after.memberships,
        "community_embeddings": after.community_embeddings,
    }
    single = setting.dataset.single_graph
    if single:
        arrays |= {
            "pretrained_activation": pretrained.model.activation.detach(),
            "activation": fitted.model.activation.detach(),
            "drawn_z": _drawn(fitted, setting.seed),
            "edge_index": after.edge_index,
            "edge_weight": after.edge_weight,
            "y": setting.dataset.labels,
        }
    else:
        nodes, y = shown_nodes(setting.dataset.graphs, setting.seed)
        arrays = {name: array.cpu()[nodes] for name, array in arrays.items()} | {"y": y}
    arrays = {name: array.cpu().contiguous() for name, array in arrays.items()}
    return Finding(_compare(arrays) if single else {}, arrays, result)


@torch.no_grad()
def _drawn(fitted: Fitted, seed: int) -> Tensor:
    assert isinstance(fitted.source, GraphBatch)
    with seeded(fitted.model, seed):
        return draw(fitted.model.encode(fitted.source.x, fitted.source.edges), sample=True)


def shown_nodes(graphs: Sequence[Data], seed: int) -> tuple[Tensor, Tensor]:
    """Nodes of some graphs without rare labels, counted over all, and their own labels."""
    labels = [graph.x.to_dense().argmax(1) for graph in graphs]
    rare = torch.cat(labels).bincount() < RARE
    common = [i for i, own in enumerate(labels) if not rare[own].any()]
    generator = torch.Generator().manual_seed(seed)
    kept = {common[i] for i in torch.randperm(len(common), generator=generator)[:SHOWN_GRAPHS]}
    inside = torch.cat([torch.full_like(own, i in kept) for i, own in enumerate(labels)]).bool()
    return inside.nonzero().flatten(), torch.cat(labels)[inside]


def _compare(arrays: dict[str, Tensor]) -> dict[str, float]:
    y = arrays["y"]
    known = y >= 0
    numbers, main = {}, []
    for when, start in (("pretrained", "pretrained_"), ("finetuned", "")):
        z, activation = arrays[f"{start}z"], arrays[f"{start}activation"]
        links = interactions(z, activation, arrays["edge_weight"].size(1))
        main.append(links.argmax(1))
        numbers[f"affiliation_nmi_{when}"] = nmi(z.argmax(1)[known], y[known])
        numbers[f"nmi_{when}"] = nmi(main[-1][known], y[known])
    numbers["task_dependence"] = 1 - nmi(*main)
    return characteristics(links, arrays["edge_index"]) | numbers


def confusion(setting: Setting) -> Finding:
    """How well an SVM classifies nodes by each community's embeddings alone, cross-validated."""
    found = communities(setting)
    y = found.arrays["y"].numpy()
    rows = np.flatnonzero(y >= 0)
    if setting.quick:
        rows = rows[:QUICK_NODES]
    folds = StratifiedKFold(2 if setting.quick else 10, shuffle=True, random_state=setting.seed)
    matrices = []
    for embeddings in found.arrays["community_embeddings"].numpy()[rows].swapaxes(0, 1):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The least populated class")
            svm = make_pipeline(StandardScaler(), SVC())
            guess = cross_val_predict(svm, embeddings, y[rows], cv=folds)
        matrices.append(confusion_matrix(y[rows], guess, labels=range(setting.dataset.num_classes)))
    stacked = torch.from_numpy(np.stack(matrices))
    right = stacked.diagonal(dim1=1, dim2=2).sum() / stacked.sum()
    return Finding({"svm_accuracy": float(right)}, {"confusion": stacked}, found.result)


def divided(divide: Callable[[Data, int, int], Tensor], setting: Setting) -> Finding:
    """Communities of a method that divides the graph by its edges alone."""
    parts = setting.config.model.num_metacommunities
    found = divide(setting.graph, parts, setting.seed)
    links = interactions(found, torch.ones(parts), parts)
    return Finding(characteristics(links, setting.graph.edge_index))


def characteristics(links: Tensor, edge_index: Tensor) -> dict[str, float]:
    """Size balance, density and overlap of communities, given each node's links in each [N, K]."""
    blocks = links.argmax(1)
    return {
        "size_imbalance": float(blocks.bincount().max()) * links.size(1) / len(links),
        "density_ratio": density_ratio(blocks, edge_index),
        "overlap": float((members(links).sum(1) > 1).double().mean()),
        "task_dependence": 0.0,
    }


def density_ratio(blocks: Tensor, edge_index: Tensor) -> float:
    """Share of the edges that lie within communities over the share of pairs that do."""
    source, target = blocks[edge_index]
    edges_within = float((source == target).double().mean())
    sizes = blocks.bincount().double()
    nodes = blocks.numel()
    pairs_within = float((sizes * (sizes - 1)).sum()) / (nodes * (nodes - 1))
    return edges_within / pairs_within if pairs_within else math.nan


def found_communities(setting: Setting) -> Finding:
    """Communities of VEPM, as many as are known unless the settings ask to find the number."""
    (truth, number), dataset = _known(setting), setting.dataset
    model = CommunityDetector(
        config=setting.config,
        num_communities=None if setting.config.training.shrinkage else number,
        random_state=setting.seed,
        device=setting.device,
        n_init=1 if setting.quick else 4,
    )
    found = model.fit(dataset).communities(dataset)
    numbers = compare(found.overlapping, truth)
    if dataset.num_classes:
        y = dataset.labels
        numbers["nmi"] = nmi(torch.from_numpy(found.hard)[y >= 0], y[y >= 0])
    return Finding(numbers)


def detected(detect: Callable[..., Cover], setting: Setting) -> Finding:
    """Communities of a method that looks at the edges alone and knows their number."""
    (truth, number), graph = _known(setting), setting.graph
    found = detect(graph.edge_index.numpy(), graph.num_nodes, number, setting.seed)
    return Finding(compare(found, truth))


def _known(setting: Setting) -> tuple[Cover, int]:
    """The communities that come with the graph, and how many have members."""
    truth = known_communities(setting.dataset)
    assert truth is not None
    return truth, int((truth.sum(0) > 0).sum())


def metis(graph: Data, parts: int, seed: int) -> Tensor:
    """Parts [N, K] of equal size with few edges between, by METIS (Karypis and Kumar, 1998)."""
    try:
        import pymetis
    except ImportError:
        raise InputError("METIS needs pymetis: pip install 'vepm[metis]'") from None
    edges = to_scipy_sparse_matrix(graph.edge_index, num_nodes=graph.num_nodes).tocsr()
    neighbours = np.split(edges.indices, edges.indptr[1:-1])
    found = pymetis.part_graph(parts, neighbours, options=pymetis.Options(seed=seed))
    return one_hot(torch.tensor(found[1]), parts).double()


def spectral(graph: Data, parts: int, seed: int) -> Tensor:
    """Parts [N, K] by spectral clustering of the normalised Laplacian."""
    edges = to_scipy_sparse_matrix(graph.edge_index, num_nodes=graph.num_nodes).tocsr()
    model = SpectralClustering(
        parts, affinity="precomputed", assign_labels="cluster_qr", random_state=seed
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Graph is not fully connected")
        return one_hot(torch.from_numpy(model.fit_predict(edges)).long(), parts).double()


def sbm(graph: Data, parts: int, seed: int, steps: int = STEPS) -> Tensor:
    """Blocks [N, K] of the stochastic blockmodel (Holland et al., 1983), by mean-field updates."""
    tau = 0.9 * spectral(graph, parts, seed) + 0.1 / parts
    for _ in range(steps):
        before, tau = tau, (tau + block_scores(tau, graph.edge_index).softmax(1)) / 2
        if (tau - before).abs().max() < TINY:
            break
    return one_hot(tau.argmax(1), parts).double()


def block_scores(tau: Tensor, edge_index: Tensor) -> Tensor:
    """Expected log-likelihood of a node's pairs in each block [N, K], all else as it is in tau."""
    source, target = edge_index
    size = tau.sum(0)
    near = torch.zeros_like(tau).index_add_(0, target, tau[source])
    pairs = size[:, None] * size - tau.T @ tau
    rate = (tau.T @ near / pairs.clamp_min(TINY)).clamp(TINY, 1 - TINY)
    return near @ rate.logit() + (size - tau) @ (-rate).log1p() + size.clamp_min(TINY).log()


def mmsb(graph: Data, parts: int, seed: int, steps: int = STEPS) -> Tensor:
    r"""Memberships [N, K] of the mixed-membership stochastic blockmodel (Airoldi et al., 2008).

    Variational inference with a Dirichlet distribution for each node, the blocks of a pair summed
    out; of pairs without an edge :math:`\log(1 - x)` counts as :math:`-x`.
    """
    nodes = int(graph.num_nodes or 0)
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(nodes, parts, generator=generator, dtype=torch.double)
    log_gamma = (noise / 2 + math.log(nodes / parts)).requires_grad_()
    density = graph.num_edges / nodes**2
    # Communities start as denser within than between.
    log_rate = (4 * torch.eye(parts, dtype=torch.double) + math.log(density / 4)).requires_grad_()
    prior = Dirichlet(torch.full((nodes, parts), 1 / parts, dtype=torch.double))
    optimizer = torch.optim.Adam([log_gamma, log_rate], lr=LEARNING_RATE)
    for _ in range(steps):
        gamma, rate = log_gamma.exp(), ((log_rate + log_rate.T) / 2).exp()
        weight = (gamma.digamma() - gamma.sum(1, keepdim=True).digamma()).exp()
        bound = link_bound(weight, rate, graph.edge_index)
        loss = kl_divergence(Dirichlet(gamma), prior).sum() - bound
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return (log_gamma.exp() / log_gamma.exp().sum(1, keepdim=True)).detach()


def link_bound(weight: Tensor, rate: Tensor, edge_index: Tensor) -> Tensor:
    """Bound of the log-likelihood of all pairs, given the weights of nodes in blocks [N, K]."""
    (source, target), total = edge_index, weight.sum(1)
    others = len(total) - 1.0 - target.bincount(minlength=len(total)).double()
    share = weight / total[:, None]
    every = (share.sum(0) @ rate) @ share.sum(0)
    sent = share @ rate
    own, linked = (sent * share).sum(), (sent[source] * share[target]).sum(1)
    edges = linked.log() + total[source].log() + total[target].log()
    return edges.sum() / 2 + others @ total.log() - (every - own - linked.sum()) / 2


DIVISIONS: dict[str, Callable[[Data, int, int], Tensor]] = {
    function.__name__: function for function in (metis, spectral, sbm, mmsb)
}
"""By name, from a graph, the number of communities and a seed to memberships [N, K]."""
COMMUNITY_STUDIES: dict[str, Callable[[Setting], Finding]] = {
    "communities": communities,
    "confusion": confusion,
    **{name: partial(divided, divide) for name, divide in DIVISIONS.items()},
    "found_communities": found_communities,
    **{name: partial(detected, DETECTORS[name]) for name in ("bigclam", "nocd", "louvain")},
}
