"""Studies: what they measure on graphs whose answer is known."""

import itertools
from dataclasses import replace
from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch
from sklearn.metrics import normalized_mutual_info_score
from sklearn.metrics import normalized_mutual_info_score as nmi
from torch import Tensor
from torch_geometric.data import Data

from vepm.data import as_dataset, planted_graph
from vepm.estimators.pairs import draw_at_distance_two, ranked
from vepm.evaluation import PROTOCOLS, public_split
from vepm.paper import links, studies
from vepm.paper.cells import Setting
from vepm.paper.communities import (
    DIVISIONS,
    block_scores,
    characteristics,
    density_ratio,
    link_bound,
    mmsb,
    shown_nodes,
)
from vepm.paper.studies import STUDIES
from vepm.training import preset


def test_characteristics_by_hand() -> None:
    path = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
    blocks = torch.tensor([0, 0, 1, 1])
    # 2 of 3 edges lie within; 2 of 6 pairs do.
    assert density_ratio(blocks, path) == pytest.approx((2 / 3) / (1 / 3))
    links_of = torch.eye(4)[[0, 0, 0, 2] * 30]
    found = characteristics(links_of, setting().graph.edge_index)
    assert found["size_imbalance"] == pytest.approx(90 / (120 / 4))
    assert found["overlap"] == 0


PARTS = 4
TRUTH = torch.arange(PARTS).repeat_interleave(12)


@pytest.fixture(scope="module")
def caves() -> Data:
    """Four dense groups of a dozen nodes, joined in a ring."""
    return as_dataset(nx.connected_caveman_graph(PARTS, 12), task="node").graphs[0]


def memberships_and_rates() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Weights in blocks [6, 3], rates between blocks, edges, and the same as a matrix."""
    torch.manual_seed(0)
    weight, half = torch.rand(6, 3).double(), torch.rand(3, 3).double()
    once = torch.tensor([[0, 0, 1, 2, 4], [1, 2, 2, 3, 5]])
    edges = torch.cat([once, once.flip(0)], dim=1)
    return weight, half + half.T, edges, torch.zeros(6, 6).index_put(tuple(edges), torch.ones(1))


def test_scores_of_blocks_are_sums_over_pairs() -> None:
    weight, _, edges, linked = memberships_and_rates()
    tau = weight / weight.sum(1, keepdim=True)
    apart = 1 - torch.eye(6).double()
    rate = torch.einsum("pk,ql,pq->kl", tau, tau, linked.double())
    rate /= torch.einsum("pk,ql,pq->kl", tau, tau, apart)
    expected = torch.einsum("ql,pq,kl->pk", tau, linked.double(), rate.log())
    expected += torch.einsum("ql,pq,kl->pk", tau, apart - linked, (1 - rate).log())
    torch.testing.assert_close(block_scores(tau, edges), expected + tau.sum(0).log())


def test_the_bound_of_mixed_memberships_is_a_sum_over_pairs() -> None:
    weight, rate, edges, linked = memberships_and_rates()
    total = weight.sum(1)
    expected = torch.zeros(()).double()
    for p, q in itertools.combinations(range(6), 2):
        both = weight[p] @ rate @ weight[q]
        if linked[p, q]:
            expected += both.log()
        else:
            # As for edges, but log(1 - x) counts as -x.
            expected += (total[p] * total[q]).log() - both / (total[p] * total[q])
    torch.testing.assert_close(link_bound(weight, rate, edges), expected)


@pytest.mark.parametrize("name", list(DIVISIONS))
def test_every_division_finds_the_caves(name: str, caves: Data) -> None:
    if name == "metis":
        pytest.importorskip("pymetis")
    found = DIVISIONS[name](caves, PARTS, 0)
    assert nmi(found.argmax(1), TRUTH) > 0.95
    assert torch.allclose(found.sum(1), torch.ones(48, dtype=torch.double))
    if name == "metis":
        assert found.sum(0).tolist() == [12] * PARTS


def test_nodes_between_groups_are_mixed() -> None:
    # Two cliques that share two nodes.
    network = nx.complete_graph(12)
    network.add_edges_from((a, b) for a in range(10, 22) for b in range(10, a))
    found = mmsb(as_dataset(network, task="node").graphs[0], 2, seed=0)
    assert found[:10].amax(1).min() > 0.9
    assert found[12:].amax(1).min() > 0.9
    assert found[10:12].amin() > 0.2


@pytest.mark.parametrize("name", [name for name in DIVISIONS if name != "metis"])
def test_every_division_is_characterised(name: str) -> None:
    numbers = STUDIES[name](setting()).numbers
    assert numbers["size_imbalance"] >= 1
    assert numbers["density_ratio"] > 1
    assert (numbers["overlap"] > 0) == (name == "mmsb")
    assert numbers["task_dependence"] == 0


def test_graphs_with_rare_labels_are_not_shown() -> None:
    def graph(*labels: int) -> Data:
        return Data(x=torch.eye(3)[list(labels)])

    graphs = [graph(0, 1, 0), *(graph(i % 2, 1) for i in range(14)), graph(0, 2)]
    nodes, labels = shown_nodes(graphs, seed=0)
    every = torch.cat([g.x.argmax(1) for g in graphs])
    assert torch.equal(every[nodes], labels)
    assert set(labels.tolist()) == {0, 1}
    starts = torch.tensor([0, *(g.x.size(0) for g in graphs)]).cumsum(0)
    assert len(set(torch.bucketize(nodes, starts, right=True).tolist())) == 10
    assert not torch.equal(nodes, shown_nodes(graphs, seed=1)[0])


def setting(**changes: Any) -> Setting:
    dataset = planted_graph(120, 4, seed=0)
    config = preset("tuned", "node").replace(
        **{
            "num_communities": 4,
            "num_metacommunities": 4,
            "pretrain_epochs": 3,
            "epochs": 3,
            "encoder_interval": 1,
            **changes,
        },
    )
    return Setting(dataset, public_split(dataset), config, seed=0, device="cpu", quick=True)


def test_communities_are_characterised() -> None:
    numbers = STUDIES["communities"](setting()).numbers
    assert numbers["size_imbalance"] >= 1
    assert numbers["density_ratio"] > 0


def test_communities_before_and_after() -> None:
    given = setting()
    found = STUDIES["communities"](given)
    nodes, edges = given.graph.x.size(0), given.graph.edge_index.size(1)
    assert found.arrays["pretrained_z"].shape == (nodes, 4)
    assert found.arrays["edge_weight"].shape == (edges, 4)
    assert found.arrays["community_embeddings"].shape == (nodes, 4, 32)
    assert not torch.equal(found.arrays["pretrained_z"], found.arrays["z"])
    # A draw is noisy, and agrees with its mean on average.
    drawn, mean = found.arrays["drawn_z"], found.arrays["z"]
    assert (drawn / mean).std() > 0.1
    assert (drawn / mean).mean().item() == pytest.approx(1, abs=0.1)
    assert found.result is not None
    assert len(found.result.curve["test_accuracy"]) == 3


def test_agreement_with_labels_by_the_strongest_affiliation() -> None:
    given = setting()
    found = STUDIES["communities"](given)
    for when, name in (("pretrained", "pretrained_z"), ("finetuned", "z")):
        expected = normalized_mutual_info_score(given.graph.y, found.arrays[name].argmax(1))
        assert found.numbers[f"affiliation_nmi_{when}"] == pytest.approx(expected)


def test_finetuning_starts_from_the_communities_that_are_shown() -> None:
    found = STUDIES["communities"](setting(encoder_interval=10))
    # Three steps of the predictor and none of the encoder: nothing has moved yet.
    assert torch.equal(found.arrays["pretrained_z"], found.arrays["z"])
    assert found.numbers["task_dependence"] == pytest.approx(0)


def test_confusion_counts_every_node_once_per_community() -> None:
    given = setting()
    found = STUDIES["confusion"](given)
    y = given.graph.y
    assert found.arrays["confusion"].sum(dim=2).tolist() == [y.bincount().tolist()] * 4
    right = found.arrays["confusion"].diagonal(dim1=1, dim2=2).sum() / (4 * y.numel())
    assert found.numbers["svm_accuracy"] == pytest.approx(right.item())
    assert right > 1 / given.dataset.num_classes


def test_statistics_and_timing() -> None:
    given = setting()
    numbers = STUDIES["statistics"](given).numbers
    assert (numbers["graphs"], numbers["nodes"], numbers["classes"]) == (1, 120, 4)
    assert numbers["edges"] == given.graph.edge_index.size(1) / 2
    timed = STUDIES["timing"](given)
    assert timed.numbers["seconds_per_epoch"] > 0
    assert timed.result is not None


@pytest.mark.parametrize(
    ("study", "fitted"),
    [("calibration", "sampled_calibration_error"), ("gcn_calibration", "fitted_calibration_error")],
)
def test_each_prediction_is_fitted_on_its_own(study: str, fitted: str) -> None:
    found = STUDIES[study](setting())
    assert found.result is not None
    assert set(found.numbers) == {"calibration_error", fitted}
    assert found.numbers["calibration_error"] != found.numbers[fitted]


def test_fitting_corrects_an_underconfident_gcn() -> None:
    found = STUDIES["gcn_calibration"](replace(setting(), quick=False)).numbers
    assert found["fitted_calibration_error"] < found["calibration_error"]


def test_an_even_partition_is_of_no_use() -> None:
    found = STUDIES["partition_use"](setting(partition="even"))
    assert found.result is not None
    assert found.numbers["partition_entropy"] == pytest.approx(1)
    assert found.numbers["split_gradient"] == 0
    kept = found.result.curve["test_accuracy"][found.result.best_epoch]
    assert found.numbers["evened_accuracy"] == found.numbers["shuffled_accuracy"] == kept


def test_the_colder_a_partition_the_sharper_it_is() -> None:
    cold, warm = (
        STUDIES["partition_use"](setting(partition="learned", temperature=temperature)).numbers
        for temperature in (0.01, 10.0)
    )
    assert 0 < cold["partition_entropy"] < warm["partition_entropy"] < 1
    assert 0 < warm["split_gradient"] < 1
    assert 0 < warm["label_gradient"] < 1


def test_the_use_of_a_partition_of_graphs() -> None:
    pair, path = torch.tensor([[0, 1], [1, 0]]), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    dataset = as_dataset(
        [
            Data(x=torch.eye(3), edge_index=edge_index, y=torch.tensor([y]))
            for y, edge_index in enumerate([pair, path])
            for _ in range(10)
        ],
        task="graph",
    )
    config = preset("tuned", "graph").replace(pretrain_epochs=2, epochs=2)
    split = PROTOCOLS["capsgnn"](dataset, 0)[0]
    numbers = STUDIES["partition_use"](
        Setting(dataset, split, config, seed=0, device="cpu")
    ).numbers
    assert 0 < numbers["partition_entropy"] < 1
    # A fold tests one graph of each kind.
    assert numbers["shuffled_accuracy"] in (0.0, 0.5, 1.0)


def test_entropy_of_a_share_of_everything() -> None:
    assert studies.entropy(torch.ones(3, 1)) == 0
    assert studies.entropy(torch.tensor([[0.25] * 4])) == pytest.approx(1)


LINKS = ["link_prediction", "common_neighbours", "gae", "vgae", "sigvae_links"]


@pytest.mark.parametrize("name", LINKS)
def test_links_are_ranked_better_than_by_chance(name: str) -> None:
    data = planted_graph(150, 3, overlap=0.02, average_degree=14, num_features=8, seed=1)
    config = preset("links", "node").replace(num_communities=3, num_metacommunities=1)
    config = config.replace(pretrain_epochs=60)
    setting = Setting(data, PROTOCOLS["unsupervised"](data)[0], config, 0, "cpu")
    found = STUDIES[name](setting).numbers
    assert found["auc"] > 0.6
    assert found["average_precision"] > 0.55
    # Pairs with a common neighbour are mostly of one community.
    assert found["hard_auc"] < found["auc"]
    assert STUDIES[name](setting).numbers == found
    assert STUDIES[name](replace(setting, seed=1)).numbers != found
    if name == "link_prediction":
        assert found["rate_auc"] != found["surroundings_auc"]


@pytest.mark.parametrize("name", ["found_communities", "nocd", "bigclam", "louvain"])
def test_known_communities_are_found(name: str) -> None:
    data = planted_graph(150, 3, overlap=0.02, average_degree=20, num_features=8, seed=1)
    config = preset("communities", "node").replace(pretrain_epochs=150)
    setting = Setting(data, PROTOCOLS["unsupervised"](data)[0], config, 0, "cpu")
    # BigCLAM leaves nodes of few links in no community.
    least = 0.3 if name == "bigclam" else 0.5
    found = STUDIES[name](setting).numbers
    assert found["overlapping_nmi"] > least
    assert ("nmi" in found) == (name == "found_communities")


def test_the_number_of_communities_may_be_found() -> None:
    """Far more than are known to start from; what is left of them is about as good."""
    data = planted_graph(150, 3, overlap=0.1, average_degree=20, num_features=8, seed=1)
    config = preset("communities", "node").replace(
        num_communities="auto", num_metacommunities=32, pretrain_epochs=150
    )
    setting = Setting(data, PROTOCOLS["unsupervised"](data)[0], config, 0, "cpu", quick=True)
    found = STUDIES["found_communities"](setting).numbers
    given = replace(setting, config=config.replace(shrinkage=0.0))
    assert found["nmi"] > 0.5
    assert found != STUDIES["found_communities"](given).numbers


def test_vepm_reads_coordinates_beside_features_that_are_all_alike() -> None:
    data = planted_graph(150, 3, overlap=0.02, average_degree=20, seed=1)
    data.graphs[0].x = torch.ones(150, 1)
    config = preset("communities", "node").replace(feature_norm="coordinates")
    setting = Setting(data, PROTOCOLS["unsupervised"](data)[0], config, 0, "cpu", quick=True)
    assert STUDIES["found_communities"](setting).numbers["nmi"] > 0.8
    assert data.graphs[0].x.shape == (150, 1)


def test_pairs_at_distance_two() -> None:
    network = nx.gnp_random_graph(40, 0.08, seed=0)
    data = as_dataset(network, task="node")
    graph = data.graphs[0]
    every = {
        (i, j)
        for i, j in nx.non_edges(nx.Graph(graph.edge_index.T.tolist()))
        if list(nx.common_neighbors(network, i, j))
    }
    every = {(min(pair), max(pair)) for pair in every}
    found = draw_at_distance_two(graph, 30, seed=0)
    assert found.shape == (2, 30)
    pairs = {(int(i), int(j)) for i, j in found.T}
    assert len(pairs) == 30
    assert pairs <= every
    assert {(int(i), int(j)) for i, j in draw_at_distance_two(graph, len(every), seed=0).T} == every
    other = draw_at_distance_two(graph, 30, seed=1)
    assert (other != found).any()


def test_graph_autoencoders_are_those_of_their_paper() -> None:
    assert (links.VALIDATED, links.TESTED) == (0.05, 0.1)
    assert (links.EPOCHS, links.LEARNING_RATE) == (200, 0.01)
    model = links._Encoder(7, 2)
    assert [tuple(weight.shape) for weight in model.parameters()] == [
        *((32,), (32, 7)),
        *(((16,), (16, 32)) * 2),
    ]
    edges = torch.tensor([[0, 1], [1, 0]])
    assert isinstance(model(torch.rand(3, 7), edges), tuple)
    assert links._Encoder(7, 1)(torch.rand(3, 7), edges).shape == (3, 16)
    y, scores = ranked(lambda pairs: pairs[0] * 2.0, (np.ones((2, 3), int), np.zeros((2, 2), int)))
    assert y.tolist() == [1, 1, 1, 0, 0]
    assert scores.tolist() == [2, 2, 2, 0, 0]


def test_parts_of_a_gradient() -> None:
    assert studies._part(3.0, 1.0) == 0.75
    assert studies._part(0.0, 0.0) == 0.0
    x, y = torch.tensor([3.0], requires_grad=True), torch.tensor([4.0], requires_grad=True)
    assert studies._length((x.square() / 2 + y.square() / 2).sum(), [x, y]) == pytest.approx(5)
