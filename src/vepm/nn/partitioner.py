"""Second box: split every edge among the metacommunities that explain it."""

import networkx as nx
import torch
from torch import Tensor, nn
from torch_geometric.nn import global_add_pool

from vepm.kernels.aggregation import EdgeIndex, as_adjacency
from vepm.kernels.shares import couple, posterior_shares, softmax_shares, uniform_on_edges
from vepm.nn.convolution import require_one_of

PARTITIONS = ("learned", "even", "random", "kinds")
SHARES = ("softmax", "posterior")
MEMBER_SHARE = 0.3  # a node with more than this share of the links of a typical member is a member
CLEAR_GROUPS = 0.3  # modularity from which communities count as groups that exclude each other
UNUSED_SHARE = 0.01  # metacommunities of a smaller share of the largest have no members
ASSIGNMENT_SCALE = 3.0
"""Logits of a learned assignment per unit of its parameters, so that it learns as fast as weights
do. A community starts with a logit of this size for its own segment and zero for the others."""


def segment_sizes(num_communities: int, num_metacommunities: int) -> list[int]:
    """Sizes of the consecutive segments; they differ by at most one.

    Example:
        >>> segment_sizes(10, 4)
        [3, 3, 2, 2]
    """
    if not 1 <= num_metacommunities <= num_communities:
        allowed = f"between 1 and num_communities ({num_communities}), got {num_metacommunities}"
        reason = "a metacommunity is a group of at least one community"
        raise ValueError(f"num_metacommunities must be {allowed}: {reason}")
    size, larger = divmod(num_communities, num_metacommunities)
    return [size + (k < larger) for k in range(num_metacommunities)]


def stack_segments(z: Tensor, num_metacommunities: int) -> Tensor:
    """Fold communities [N, C] into metacommunities [N, K, max size], padded with zeros."""
    sizes = segment_sizes(z.size(1), num_metacommunities)
    if sizes[0] == sizes[-1]:
        return z.view(z.size(0), num_metacommunities, sizes[0])
    parts = z.split(sizes, dim=1)
    return torch.stack([nn.functional.pad(p, (0, sizes[0] - p.size(1))) for p in parts], dim=1)


def interactions(
    z: Tensor, activation: Tensor, grouping: Tensor | int, batch: Tensor | None = None
) -> Tensor:
    r"""How much each node interacts with all nodes of its graph in each metacommunity [N, K].

    .. math:: \mu_{uk} = \sum_v \sum_{c \in k} \gamma_c z_{uc} z_{vc}

    A community to which all nodes belong equally, such as a background, distinguishes none and
    counts for nothing. With interactions [C, C] instead of activations [C] it is
    :math:`\sum_v \sum_{c \in k} z_{uc} (\Lambda z_v)_c`. The grouping is an assignment [C, K], or
    the number K of consecutive segments. O(N C).

    Example:
        >>> interactions(torch.tensor([[1.0, 2.0], [0.0, 1.0]]), torch.ones(2), 2)
        tensor([[1., 6.],
                [0., 3.]])
    """
    alike = (z == z[:1]).all(0)
    if not alike.all():
        z = z.masked_fill(alike, 0)
    total = global_add_pool(z, batch)
    total = total if batch is None else total[batch]
    if activation.dim() == 2:
        links = z * couple(total, activation + activation.mT) / 2
    else:
        links = z * activation * total
    if isinstance(grouping, int):
        return stack_segments(links, grouping).sum(-1)
    return links @ grouping


def members(interaction: Tensor, batch: Tensor | None = None) -> Tensor:
    r"""Which nodes are members of which metacommunities [N, K]; of none, one or several.

    A node is a member where it has more than 0.3 times the links of a typical member; if that is
    anywhere, then also where most of its links run. Links are expected ones, :math:`\mu_{uk}` of
    :func:`interactions`; a typical member has
    :math:`\sqrt{\sum_u \mu_{uk}^4 / \sum_u \mu_{uk}^2}`, which hardly counts nodes of few links. A
    metacommunity where that is below a hundredth of the largest has no members.

    Example:
        >>> members(torch.tensor([[6.0, 3.0, 1.0], [5.0, 1.0, 9.0]]))
        tensor([[ True,  True, False],
                [ True,  True,  True]])
    """
    # Fourth powers of large rates would overflow single precision.
    square = interaction.double().square()
    of_graph = square.new_zeros(square.size(0), dtype=torch.long) if batch is None else batch
    total, fourth = (global_add_pool(part, of_graph) for part in (square, square.square()))
    typical = fourth / total.clamp_min(torch.finfo(torch.double).tiny)
    used = typical > UNUSED_SHARE**2 * typical.amax(1, keepdim=True)
    found = (square > MEMBER_SHARE**2 * typical[of_graph]) & used[of_graph]
    main = nn.functional.one_hot(square.argmax(1), square.size(1)).bool()
    return found | (main & found.any(1, keepdim=True))


def exclusive_groups(z: Tensor) -> list[list[int]]:
    """Groups of communities that exclude each other, the largest first; none if this is unclear.

    Where edges are of several hidden kinds and every node has one community of each kind, its
    affiliations [N, C] to communities of one kind are negatively correlated, and to those of
    different kinds they are not. Louvain's method finds groups in the negative correlations; they
    are clear if their modularity is at least 0.3. O(N C^2).

    Example:
        >>> first, second = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1])
        >>> one_hot = nn.functional.one_hot
        >>> exclusive_groups(torch.cat([one_hot(first), one_hot(second)], dim=1).float())
        [[0, 1], [2, 3]]
    """
    if len(z) < 2:
        return []
    # A column that does not vary is correlated with none.
    correlation = torch.corrcoef(z.double().T).nan_to_num_().reshape(z.size(1), z.size(1))
    graph = nx.from_numpy_array(correlation.neg().clamp_min(0).fill_diagonal_(0).cpu().numpy())
    if not graph.size(weight="weight"):
        return []
    groups = nx.community.louvain_communities(graph, seed=0)
    clear = nx.community.modularity(graph, groups) >= CLEAR_GROUPS
    return sorted(map(sorted, groups), key=len, reverse=True) if clear else []


class EdgePartitioner(nn.Module):
    r"""Share of each edge that runs through each metacommunity; shares of an edge sum to one.

    .. math:: A^{(k)}_{ij} = A_{ij} \cdot \mathrm{softmax}_k ( r_{ijk} / \tau ), \qquad
              r_{ijk} = \sum_{c \in k} \gamma_c z_{ic} z_{jc}

    Where communities interact with each other, half of the interaction of communities c and d
    counts for the metacommunity of c and half for that of d:
    :math:`r_{ijk} = \tfrac{1}{2} \sum_{c \in k} \big( z_{ic} (\Lambda z_j)_c
    + (\Lambda^\top z_i)_c z_{jc} \big)`, which is the same if :math:`\Lambda` is diagonal.
    If links have directions, rates are those of the links that exist between i and j.

    With ``shares="posterior"`` they are the posterior of the Poisson counts behind the edge,
    sharpened by the temperature as an exponent:
    :math:`A^{(k)}_{ij} = A_{ij} \, r_{ijk}^{1/\tau} / \sum_l r_{ijl}^{1/\tau}`.

    Args:
        num_metacommunities: Number of shares K.
        temperature: :math:`\tau`; low is close to a hard assignment, high to an even one.
        scheme: ``"learned"`` as above; ``"even"`` gives 1/K to each; ``"random"`` draws rates
            from U(0, 100) once and for all, regardless of Z; ``"kinds"`` splits by the known
            kinds of the edges, an upper bound where a graph has them.
        shares: ``"softmax"`` of the rates, or ``"posterior"``: proportional to them.
        directed: Whether the interactions need not be symmetric, and links have directions.
        num_communities: Number of communities C, if the model learns which metacommunity each
            belongs to; by default they are K consecutive segments.
        num_background: How many of them, the last, start as a metacommunity of their own.

    Example:
        >>> z = torch.tensor([[1.0, 0.0], [1.0, 1.0]])
        >>> partition = EdgePartitioner(num_metacommunities=2, temperature=0.1)
        >>> partition(z, torch.ones(2), torch.tensor([[0, 1], [1, 0]])).round(decimals=2)
        tensor([[1., 0.],
                [1., 0.]])
    """

    def __init__(
        self,
        num_metacommunities: int,
        temperature: float = 1.0,
        scheme: str = "learned",
        *,
        shares: str = "softmax",
        num_communities: int | None = None,
        directed: bool = False,
        num_background: int = 0,
    ) -> None:
        super().__init__()
        if not temperature > 0:
            raise ValueError(f"temperature must be positive, got {temperature}")
        require_one_of("scheme", scheme, PARTITIONS)
        require_one_of("shares", shares, SHARES)
        self.num_metacommunities, self.temperature = num_metacommunities, temperature
        self.scheme, self.shares = scheme, shares
        self.directed, self.num_background = directed, num_background
        self.assignment_logit = None
        if num_communities is not None:
            self.assignment_logit = nn.Parameter(torch.empty(num_communities, num_metacommunities))
            self.reset_parameters()

    def reset_parameters(self) -> None:
        """Start a learned assignment close to consecutive segments."""
        if self.assignment_logit is not None:
            communities, parts = self.assignment_logit.shape
            apart = self.num_background if parts > 1 else 0
            sizes = segment_sizes(communities - apart, parts - bool(apart))
            own = torch.eye(len(sizes))[[k for k, size in enumerate(sizes) for _ in range(size)]]
            if apart:
                own = torch.block_diag(own, torch.ones(apart, 1))
            with torch.no_grad():
                self.assignment_logit.copy_(own)

    def grouping(self) -> Tensor | int:
        """How communities are grouped: an assignment [C, K], or the number of segments."""
        if self.assignment_logit is None:
            return self.num_metacommunities
        return torch.softmax(ASSIGNMENT_SCALE * self.assignment_logit, dim=1)

    def rates(self, z: Tensor, activation: Tensor, edge_index: EdgeIndex) -> Tensor:
        """Rate of interaction of the two ends of each edge in each metacommunity [E, K]."""
        edges = as_adjacency(edge_index, z.size(0))
        ways = []
        for between in (activation, activation.mT) if self.directed else (activation,):
            grouping = self.grouping()
            # The factors at the two ends of an edge, by community, in one or two parts.
            if between.dim() == 1:
                near, far = [couple(z, between)], [z]
            else:
                sent, received = couple(z, between / 2), couple(z, between.mT / 2)
                near, far = [received, z], [z, sent]
            if isinstance(grouping, int):
                near, far = ([stack_segments(t, grouping) for t in end] for end in (near, far))
            # Joining a single part would copy it.
            target, source = (e[0] if len(e) == 1 else torch.cat(e, dim=-1) for e in (near, far))
            if isinstance(grouping, int):
                ways.append(edges.dot_ends(target, source))
            else:
                ways.append(edges.group_ends(target, source, torch.cat([grouping] * len(near))))
        if not self.directed:
            return ways[0]
        both = torch.stack(ways, dim=1)
        return (both if edges.arcs is None else both * (edges.arcs > 0)[..., None]).sum(1)

    def forward(
        self, z: Tensor, activation: Tensor, edge_index: EdgeIndex, batch: Tensor | None = None
    ) -> Tensor:
        """Shares [E, K] in the order of ``edge_index``.

        Args:
            z: Affiliations [N, C].
            activation: Positive community activations [C], or interactions [C, C].
            edge_index: Edges [2, E] or an ``Adjacency``.
            batch: Graph of each node [N]; only the random scheme looks at it.
        """
        edges = as_adjacency(edge_index, z.size(0))
        if self.scheme == "even":
            share = 1 / self.num_metacommunities
            return z.new_full((edges.source.numel(), self.num_metacommunities), share)
        if self.scheme == "random":
            draws = uniform_on_edges(edges, batch, self.num_metacommunities).to(z.dtype)
            return torch.softmax(100 * draws / self.temperature, dim=-1)
        if self.scheme == "kinds":
            return _by_kind(edges.kinds, self.num_metacommunities).to(z.dtype)
        shares = posterior_shares if self.shares == "posterior" else softmax_shares
        return shares(self.rates(z, activation, edges), 1 / self.temperature)


def _by_kind(kinds: Tensor | None, num_metacommunities: int) -> Tensor:
    """Equal shares among the kinds of each edge [E, R]; an edge of no kind is split evenly."""
    if kinds is None:
        raise ValueError('partition "kinds" needs a graph that says of which kind its edges are')
    if kinds.size(1) != num_metacommunities:
        wanted = f'partition "kinds" needs as many metacommunities, got {num_metacommunities}'
        raise ValueError(f"the edges are of {kinds.size(1)} kinds: {wanted}")
    held = torch.where(kinds.any(1, keepdim=True), kinds, True).double()
    return held / held.sum(1, keepdim=True)
