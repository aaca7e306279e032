"""Evidence of a link between two nodes: their rate, their surroundings and their degrees."""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.decomposition import TruncatedSVD
from sklearn.preprocessing import normalize
from torch import Tensor
from torch_geometric.nn import APPNP

from vepm.data.features import is_sparse
from vepm.estimators.pairs import Pairs

EVIDENCE = ("likeness", "strength", "features", "degree")
LEAST_RATE = 1e-30
AT_ONCE = 2**18
WIDTH = 256
"""Features of more columns are reduced to so many, which bounds memory."""
STEPS, TELEPORT = 10, 0.2
"""Steps of personalised PageRank, and the probability of returning to the node."""


class Nodes(NamedTuple):
    """What each node of a graph brings to its links."""

    z: NDArray[Any]
    """Affiliations [N, C]."""
    meeting: NDArray[Any]
    """What the communities of another node meet in it [N, C]."""
    surroundings: NDArray[Any]
    """Mean features around it, rows of length one [N, F]."""
    degree: NDArray[Any]
    """Logarithm of one plus its degree [N]."""

    def evidence(self, pairs: Pairs) -> NDArray[Any]:
        """The values of ``EVIDENCE`` for pairs of indices [2, P], one column each [P, 4]."""
        own = np.log(np.maximum((self.meeting * self.z).sum(1), LEAST_RATE)) / 2
        found = np.empty((pairs.shape[1], len(EVIDENCE)))
        for start in range(0, pairs.shape[1], AT_ONCE):
            part = slice(start, start + AT_ONCE)
            i, j = pairs[:, part]
            rate = np.einsum("pc,pc->p", self.meeting[i], self.z[j])
            strength = own[i] + own[j]
            found[part, 0] = np.log(np.maximum(rate, LEAST_RATE)) - strength
            found[part, 1] = strength
            found[part, 2] = np.einsum("pf,pf->p", self.surroundings[i], self.surroundings[j])
            found[part, 3] = self.degree[i] + self.degree[j]
        return found


def surroundings(x: Tensor, edge_index: Tensor) -> NDArray[Any]:
    """Mean features around each node, by personalised PageRank; rows of length one [N, F]."""
    centred = torch.from_numpy(_narrow(x))
    centred -= centred.mean(0)
    spread: Tensor = APPNP(STEPS, TELEPORT)(centred, edge_index)
    rows: NDArray[Any] = normalize(spread.numpy())
    return rows


def _narrow(x: Tensor) -> NDArray[Any]:
    """Features with rows of length one, in at most ``WIDTH`` columns."""
    table: Any = x.numpy() if not is_sparse(x) else _scipy(x.coalesce())
    table = normalize(table)
    if x.size(1) > WIDTH:
        # Cosines hardly change, and what is left out is mostly noise.
        table = TruncatedSVD(WIDTH, random_state=0).fit_transform(table)
    return np.asarray(table.toarray() if is_sparse(x) and x.size(1) <= WIDTH else table)


def _scipy(x: Tensor) -> Any:
    rows, columns = x.indices().numpy()
    return csr_array((x.values().numpy(), (rows, columns)), shape=(x.size(0), x.size(1)))
