"""The number of communities found by a prior that empties those which links can do without."""

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from strategies import uniform
from vepm import VEPM
from vepm.errors import InputError
from vepm.kernels.shares import SMALLEST_SHARE, link_shares
from vepm.nn import interactions
from vepm.objective import shrinking_penalty
from vepm.scale.batches import single_graph
from vepm.training import Config
from vepm.training.config import AUTO
from vepm.training.losses import pretraining_loss

BLOCKS = 4


@pytest.mark.parametrize("matrix", [False, True])
def test_shares_are_those_of_the_expected_links_of_all_nodes(matrix: bool) -> None:
    z = uniform(0, 7, 3)
    activation = uniform(1, 3, 3) if matrix else uniform(1, 3)
    between = activation if matrix else torch.diag(activation)
    links = interactions(z, between + between.T, 3).sum(0)
    shares = link_shares(z, activation)
    torch.testing.assert_close(shares, links / links.sum())
    torch.testing.assert_close(link_shares(10 * z, activation / 3), shares)
    expected = torch.log(1 + shares / SMALLEST_SHARE).sum()
    torch.testing.assert_close(shrinking_penalty(z, activation), expected)


def test_a_community_gains_nothing_by_growing() -> None:
    z, activation = uniform(0, 5, 3).requires_grad_(), uniform(1, 3).requires_grad_()
    links = activation * z.sum(0).square()
    constant = SMALLEST_SHARE * float(links.sum().detach())
    expected = torch.autograd.grad(torch.log1p(links / constant).sum(), [z, activation])
    found = torch.autograd.grad(shrinking_penalty(z, activation), [z, activation])
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs)
        assert (ours > 0).all()


def test_auto_stands_for_a_bound_and_a_prior() -> None:
    config = Config().replace(num_communities="auto")
    assert config.model.num_communities == AUTO["num_communities"]
    assert config.training.shrinkage == AUTO["shrinkage"]
    assert Config.from_toml('[model]\nnum_communities = "auto"\n') == config
    assert Config.from_toml(config.to_toml()) == config
    stronger = Config().replace(num_communities="auto", shrinkage=0.5)
    assert stronger.training.shrinkage == 0.5
    with pytest.raises(InputError, match="num_communities must be of type int"):
        Config().replace(num_communities="some")


def block_graph(size: int = 40) -> Data:
    """Four blocks, linked within."""
    block = torch.arange(BLOCKS).repeat_interleave(size)
    chance = torch.rand(block.numel(), block.numel(), generator=torch.Generator().manual_seed(0))
    same = block[:, None] == block
    upper = (chance < torch.where(same, 0.3, 0.02)).triu(1)
    edge_index = (upper | upper.T).nonzero().T.contiguous()
    return Data(x=torch.eye(block.numel()), edge_index=edge_index, y=block)


def used(config: Config, directed: bool = False) -> Tensor:
    """Communities that are left after pretraining."""
    graph = block_graph()
    batch = single_graph(graph)
    torch.manual_seed(0)
    model = VEPM(
        graph.num_features,
        1,
        num_communities=config.model.num_communities,
        num_metacommunities=1,
        directed=directed,
    )
    optimizer = torch.optim.Adam(model.encoder_parameters(), lr=0.01)
    for _ in range(200):
        optimizer.zero_grad()
        pretraining_loss(model, batch, config.training).loss.backward()
        optimizer.step()
    with torch.no_grad():
        return model.used_communities(model.eval().encode(batch.x, batch.edges).mean)


@pytest.mark.parametrize("directed", [False, True])
def test_the_stronger_the_prior_the_fewer_communities_are_left(directed: bool) -> None:
    auto = Config().replace(num_communities="auto")
    none, weak, strong = (
        used(auto.replace(shrinkage=weight), directed) for weight in (0.0, AUTO["shrinkage"], 0.003)
    )
    assert none.numel() > weak.numel() >= strong.numel() == BLOCKS
    assert weak.numel() <= BLOCKS + 3
    assert strong.max() < AUTO["num_communities"]
