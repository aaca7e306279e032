"""How good a prediction is, what each part of the edges is worth, and what that was measured on."""

import contextlib
import functools
import importlib.metadata
import os
import platform
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.metrics import normalized_mutual_info_score, roc_auc_score
from torch import Tensor

from vepm.nn import VEPM

PACKAGES = ("vepm", "torch", "torch_geometric", "numpy", "scikit-learn")
RANKED_EDGES = 200_000
"""Edges, evenly spaced, by which shares are ranked against kinds."""
FEWEST_JOINED = 50
"""Edges between training nodes below which how often they join equal labels is mostly chance."""


def accuracy(probabilities: Tensor, y: Tensor) -> float:
    """Share of labels [n] that the most probable class of [n, classes] hits."""
    return float((probabilities.argmax(1) == y).double().mean())


def calibration_error(probabilities: Tensor, y: Tensor, bins: int = 15) -> float:
    """Expected calibration error: how far confidence is from accuracy, over equal-width bins."""
    confidence, predicted = probabilities.double().max(1)
    hit = (predicted == y).double()
    bucket = (confidence * bins).long().clamp(max=bins - 1)
    gap = torch.zeros(bins, dtype=torch.double, device=hit.device)
    gap.index_add_(0, bucket, hit - confidence)
    return round(float(gap.abs().sum()) / max(y.numel(), 1), 12)


def agreement(communities: Tensor, y: Tensor) -> float:
    """Normalised mutual information of two groupings of the same nodes."""
    return float(normalized_mutual_info_score(y.cpu().numpy(), communities.cpu().numpy()))


class Part(NamedTuple):
    """A metacommunity's part of the edges."""

    relevance: float | None
    """Weight the labels gave it in the composer, one on average; None without."""
    share: float
    """Its share of all edges."""
    homophily: float | None
    """How often its edges join equal labels among the training nodes; None if few join two."""
    kinds: dict[str, float]
    """Share of its edges that is of each known kind."""


@torch.no_grad()
def summarise_parts(
    model: VEPM,
    edge_index: Tensor,
    shares: Tensor,
    labels: Tensor,
    train: Tensor,
    kinds: Tensor | None = None,
    kind_names: tuple[str, ...] | None = None,
) -> list[Part]:
    """One :class:`Part` for each metacommunity, from the shares of the edges [E, K].

    Labels are those of nodes [N], empty if graphs are labelled; ``kinds`` [E, R] are known kinds.
    """
    relevance = model.composer.relevance
    weights = [None] * shares.size(1) if relevance is None else relevance.weight.tolist()
    shares = shares.double()
    total = shares.sum(0).clamp_min(torch.finfo(torch.float64).tiny)
    known = torch.isin(edge_index, train).all(0)
    enough = int(known.sum()) >= 2 * FEWEST_JOINED
    equal = labels[edge_index[0, known]] == labels[edge_index[1, known]]
    among = shares[known].sum(0)
    joined = (shares[known] * equal[:, None]).sum(0)
    by_kind = () if kinds is None else kinds.double().t() @ shares
    return [
        Part(
            relevance=weights[k],
            share=float(total[k] / max(len(shares), 1)),
            homophily=float(joined[k] / among[k]) if enough and among[k] > 0 else None,
            kinds={
                name: float(row[k] / total[k])
                for name, row in zip(kind_names or (), by_kind, strict=True)
            },
        )
        for k in range(shares.size(1))
    ]


class KindAgreement(NamedTuple):
    """How well a split finds the known kinds of edges."""

    mutual_information: float
    """Normalised mutual information of an edge's strongest part and its kind, 0 to 1; over the
    edges of exactly one kind."""
    ranking: float
    """Area under the ROC curve with which the best part of each kind ranks its edges, mean over
    kinds; 0.5 is chance."""


def agreement_with_kinds(shares: Tensor, kinds: Tensor) -> KindAgreement:
    """Compare shares [E, K] with known kinds [E, R], which the model never saw."""
    single = kinds.sum(1) == 1
    parts = shares[single].argmax(1).numpy()
    information = normalized_mutual_info_score(kinds[single].int().argmax(1).numpy(), parts)
    every = max(1, len(shares) // RANKED_EDGES)
    some, truth = shares[::every].numpy(), kinds[::every].numpy()
    areas = [
        max(roc_auc_score(of_kind, part) for part in some.T)
        for of_kind in truth.T
        if of_kind.any() and not of_kind.all()
    ]
    return KindAgreement(float(information), float(np.mean(areas)) if areas else float("nan"))


def describe_machine() -> dict[str, Any]:
    """Versions and hardware behind a number."""
    versions: dict[str, str | None] = dict.fromkeys(PACKAGES)
    for name in PACKAGES:
        # A source tree need not be installed.
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        **versions,
        "commit": commit(),
    }


def peak_memory() -> dict[str, float]:
    """The most memory this process has held at once so far, in MiB, and the GPU's if there is one.

    The first is all of the process: packages take a few hundred MiB before any data do.
    """
    # Linux counts in KiB, macOS in bytes.
    unit = 2**20 if sys.platform == "darwin" else 2**10
    found = {"peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit}
    if torch.cuda.is_available():
        found["peak_gpu_memory_mib"] = torch.cuda.max_memory_allocated() / 2**20
    return found


def commit() -> str | None:
    """Commit of the source tree, with a plus if its code has changed since; None if installed.

    The environment variable VEPM_COMMIT names it where there is no Git history to ask.
    """
    return os.environ.get("VEPM_COMMIT", "").strip() or _commit_of_tree()


@functools.cache
def _commit_of_tree() -> str | None:
    folder = Path(__file__).parents[1]
    if not (folder.parents[1] / ".git").exists():
        return None
    head, changes = ("rev-parse", "HEAD"), ("status", "--porcelain", "--untracked-files=no", ".")
    git = functools.partial(subprocess.check_output, cwd=folder, text=True, stderr=subprocess.PIPE)
    try:
        return git(["git", *head]).strip() + ("+" if git(["git", *changes]).strip() else "")
    except (OSError, subprocess.CalledProcessError):
        return None
