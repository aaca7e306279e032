"""The evidence of a link: what each node brings to it, and how likely it makes a pair."""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.decomposition import TruncatedSVD
from sklearn.preprocessing import normalize
from torch import Tensor
from torch_geometric.nn import APPNP

from vepm.data.canonical import is_sparse
from vepm.errors import InputError
from vepm.estimators.inputs import plain
from vepm.estimators.pairs import Pairs

Floats = NDArray[Any]
EVIDENCE = ("likeness", "strength", "features", "degree")
LEAST_RATE = 1e-30
AT_ONCE = 2**18
WIDTH = 256  # features of more columns are reduced to so many, which bounds memory
STEPS, TELEPORT = 10, 0.2  # of personalised PageRank: its length, and how often it returns


class Links(NamedTuple):
    """Pairs of nodes with what the model says of them, the most remarkable first."""

    nodes: list[tuple[Any, Any]]  # the two ends of each pair, by name
    probability: Floats  # that they are joined [P]
    share: Floats  # share of each community in their rate [P, C]; rows sum to one

    @property
    def surprise(self) -> Floats:
        """How surprising it is that they are joined: bits, the negative logarithm [P]."""
        return -np.log2(np.maximum(self.probability, LEAST_RATE))


class Nodes(NamedTuple):
    """What each node of a graph brings to its links."""

    names: list[Any]
    edge_index: Tensor
    z: Floats  # affiliations [N, C]
    meeting: Floats  # what the communities of another node meet in it [N, C]
    surroundings: Floats  # mean features around it, rows of length one [N, F]
    degree: Floats  # logarithm of one plus its degree [N]

    def indices_of(self, pairs: Any) -> Pairs:
        """Pairs of names as indices [2, P]."""
        place = {name: i for i, name in enumerate(self.names)}
        try:
            found = [(place[plain(i)], place[plain(j)]) for i, j in pairs]
        except KeyError as error:
            raise InputError(f"the graph has no node {error.args[0]!r}") from None
        except (TypeError, ValueError):
            raise InputError("pairs must be a list of pairs of nodes") from None
        return np.array(found, dtype=np.int64).reshape(-1, 2).T

    def evidence(self, pairs: Pairs) -> Floats:
        """The values of ``EVIDENCE`` for pairs of indices [2, P], one column each [P, 4]."""
        own = np.log(np.maximum((self.meeting * self.z).sum(1), LEAST_RATE)) / 2
        found = np.empty((pairs.shape[1], len(EVIDENCE)))
        for start in range(0, pairs.shape[1], AT_ONCE):
            i, j = pairs[:, start : start + AT_ONCE]
            rate = np.einsum("pc,pc->p", self.meeting[i], self.z[j])
            strength, degree = own[i] + own[j], self.degree[i] + self.degree[j]
            likeness = np.log(np.maximum(rate, LEAST_RATE)) - strength
            cosine = np.einsum("pf,pf->p", self.surroundings[i], self.surroundings[j])
            found[start : start + AT_ONCE] = np.stack([likeness, strength, cosine, degree], axis=1)
        return found

    def log_odds(self, pairs: Pairs, calibration: dict[str, float]) -> Floats:
        """Log-odds of pairs of indices [2, P] among as many edges as non-edges."""
        weights = np.array([calibration[name] for name in EVIDENCE])
        return self.evidence(pairs) @ weights + calibration["intercept"]

    def probability(self, pairs: Pairs, calibration: dict[str, float]) -> Floats:
        """Probability of pairs of indices [2, P] among all pairs, of which few are edges."""
        return expit(self.log_odds(pairs, calibration) + calibration["log_odds"])

    def links(self, pairs: Pairs, calibration: dict[str, float]) -> Links:
        """Probability of pairs of indices [2, P], and the communities behind it."""
        (i, j), z, meeting = pairs, self.z, self.meeting
        # Both are equal, unless communities interact with each other.
        parts = meeting[i] * z[j] + z[i] * meeting[j]
        return Links(
            [(self.names[i], self.names[j]) for i, j in pairs.T.tolist()],
            self.probability(pairs, calibration),
            parts / np.maximum(parts.sum(1, keepdims=True), LEAST_RATE),
        )


def surroundings(x: Tensor, edge_index: Tensor) -> Floats:
    """Mean features around each node, by personalised PageRank; rows of length one [N, F]."""
    if is_sparse(x):
        x = x.coalesce()
        entries = x.values().numpy(), tuple(x.indices().numpy())
        table: Any = normalize(sp.csr_array(entries, shape=(x.size(0), x.size(1))))
    else:
        table = normalize(x.numpy())
    if x.size(1) > WIDTH:
        # Cosines hardly change, and what is left out is mostly noise.
        table = TruncatedSVD(WIDTH, random_state=0).fit_transform(table)
    elif is_sparse(x):
        table = table.toarray()
    centred = torch.from_numpy(table)
    centred -= centred.mean(0)
    return normalize(APPNP(STEPS, TELEPORT)(centred, edge_index).numpy())
