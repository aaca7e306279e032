"""A matrix of interactions finds communities that link to each other more than within."""

import pytest
import torch
from sklearn.metrics import normalized_mutual_info_score, roc_auc_score
from torch import Tensor
from torch_geometric.data import Data

from vepm import VEPM
from vepm.data import as_dataset
from vepm.nn import draw
from vepm.nn.model import first_interactions
from vepm.scale.batches import single_graph
from vepm.training import Config
from vepm.training.card import ModelCard
from vepm.training.losses import pretraining_loss

TWO_COLOURED = torch.tensor([[0.0, 0.3], [0.3, 0.0]])
SWAPPED = torch.full((4, 4), 0.02)
SWAPPED[[0, 1, 2, 3], [1, 0, 3, 2]] = 0.4
WITHIN = 0.4 * torch.eye(3) + 0.02


def block_graph(density: Tensor, size: int = 30) -> tuple[Data, Tensor]:
    """A graph whose edges only depend on the blocks of their ends, and its adjacency matrix."""
    block = torch.arange(density.size(0)).repeat_interleave(size)
    chance = torch.rand(block.numel(), block.numel(), generator=torch.Generator().manual_seed(0))
    upper = (chance < density[block][:, block]).triu(1)
    joined = upper | upper.T
    edge_index = joined.nonzero().T.contiguous()
    return Data(x=torch.eye(block.numel()), edge_index=edge_index, y=block), joined


def pretrained(density: Tensor, interactions: str) -> tuple[float, float]:
    """Area under the ROC curve of all pairs, and NMI of main communities with the blocks."""
    graph, joined = block_graph(density)
    batch, communities = single_graph(graph), 2 * density.size(0)
    torch.manual_seed(0)
    model = VEPM(
        graph.num_features,
        1,
        num_communities=communities,
        num_metacommunities=communities,
        encoder_channels=32,
        interactions=interactions,
        feature_norm="none",
    )
    optimizer = torch.optim.Adam(model.encoder_parameters(), lr=0.01)
    for _ in range(200):
        optimizer.zero_grad()
        pretraining_loss(model, batch, Config().training).loss.backward()
        optimizer.step()
    with torch.no_grad():
        z = draw(model.eval().encode(batch.x, batch.edges), sample=False)
        between = model.interactions
        rate = z @ (between if between.dim() == 2 else torch.diag(between)) @ z.T
    pairs = torch.ones_like(joined).triu(1)
    main = z.argmax(1)
    return (
        roc_auc_score(joined[pairs], rate[pairs]),
        normalized_mutual_info_score(graph.y, main),
    )


@pytest.mark.parametrize("density", [TWO_COLOURED, SWAPPED], ids=["two-coloured", "swapped"])
def test_blocks_that_link_to_others_are_found_by_the_matrix_alone(density: Tensor) -> None:
    with_diagonal, with_matrix = (pretrained(density, kind) for kind in ("diagonal", "matrix"))
    assert with_matrix[0] > with_diagonal[0] + 0.02
    assert with_matrix[1] > max(0.8, with_diagonal[1] + 0.2)


def test_blocks_that_link_within_are_found_by_both() -> None:
    for kind in ("diagonal", "matrix"):
        auc, nmi = pretrained(WITHIN, kind)
        assert auc > 0.85
        assert nmi > 0.8


@pytest.mark.parametrize("count", [1, 2, 3, 5, 16])
def test_interactions_are_symmetric_and_positive_and_start_as_described(count: int) -> None:
    model = VEPM(4, 2, num_communities=count, num_metacommunities=1, interactions="matrix")
    between = model.interactions.detach()
    torch.testing.assert_close(between, first_interactions(count, 8))
    assert between.equal(between.T)
    assert (between > 0).all()
    torch.testing.assert_close(model.activation, model.interactions.sum(1))
    with torch.no_grad():
        assert model.interaction_logit is not None
        model.interaction_logit.copy_(torch.randn(count, count))
    assert model.interactions.equal(model.interactions.T)
    assert any(p is model.interaction_logit for p in model.encoder_parameters())


@pytest.mark.parametrize(
    ("count", "paired", "found"), [(33, 8, 8), (33, 16, 16), (8, 8, 4), (9, 0, 0)]
)
def test_at_most_half_of_the_communities_begin_as_pairs(
    count: int, paired: int, found: int
) -> None:
    model = VEPM(4, 2, num_communities=count, interactions="matrix", paired=paired)
    partner = model.interactions.argmax(1)
    assert int((partner != torch.arange(count)).sum()) == found
    assert partner[partner].equal(torch.arange(count))


def test_a_negative_number_of_pairs_is_refused() -> None:
    with pytest.raises(ValueError, match="paired must be at least 0, got -2"):
        VEPM(4, 2, num_communities=8, interactions="matrix", paired=-2)


@pytest.mark.parametrize(("alike", "paired"), [(True, 8), (False, 16)])
def test_more_begin_as_pairs_where_features_of_linked_nodes_differ(
    alike: bool, paired: int
) -> None:
    graph, _ = block_graph(WITHIN)
    noise = torch.randn(90, 3, generator=torch.Generator().manual_seed(1))
    graph.x = torch.eye(3)[graph.y] if alike else noise
    config = Config().replace(interactions="matrix", num_communities=33)
    card = ModelCard.of(as_dataset(graph), config)
    assert card.paired == paired
    assert int((card.build().interactions.diagonal() < 0.5).sum()) == paired
