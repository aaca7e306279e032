"""Settings, shapes and training of baselines, as results of theirs were written with."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from baselines.toys import graph_toy
from vepm.baselines import BASELINES, baseline, neural
from vepm.baselines.base import Classifier, Labelled, single_epoch_curve
from vepm.baselines.capsgnn import CapsGNN, squash
from vepm.baselines.communities import _neighbourhoods, density, log_likelihood
from vepm.baselines.graphs import GraphBaseline
from vepm.baselines.neural import NeuralBaseline, Problem
from vepm.errors import InputError
from vepm.evaluation import Split
from vepm.training import GraphBatch

NODE = {
    "epochs": 200,
    "learning_rate": 0.01,
    "weight_decay": 5e-4,
    "dropout": 0.5,
    "patience": None,
    "row_normalize": True,
    "device": "cpu",
}
GRAPH = {
    "epochs": 350,
    "learning_rate": 0.01,
    "weight_decay": 0.0,
    "dropout": 0.5,
    "batch_size": 32,
    "halve_every": 50,
    "hidden_channels": 32,
    "device": "cpu",
}
POOLED = GRAPH | {"pooling": "sum"}
SVM = {"C": [1.0, 10.0, 100.0, 1000.0], "inner_folds": 5}
GCN = NODE | {"patience": 10, "hidden_channels": 16}
DEFAULTS: dict[str, dict[str, Any]] = {
    "mlp": NODE | {"hidden_channels": 64},
    "label-propagation": {"num_layers": 50, "alpha": 0.9},
    "gcn": GCN,
    "gcn-64": GCN | {"hidden_channels": 64},
    "chebnet": GCN | {"order": 3},
    "sage": NODE | {"patience": 100, "hidden_channels": 64},
    "gat": NODE
    | {"epochs": 1000, "learning_rate": 0.005, "dropout": 0.6, "patience": 100}
    | {"heads": 8, "head_channels": 8, "output_heads": 1},
    "disengcn": NODE
    | {"weight_decay": 0.03, "dropout": 0.7, "patience": 100, "row_normalize": False}
    | {"num_factors": 4, "factor_channels": 16, "num_layers": 6, "num_iterations": 3}
    | {"temperature": 1.0},
    "grand": NODE
    | {"epochs": 1500, "patience": 200, "hidden_channels": 32, "order": 8, "node_dropout": 0.5}
    | {"input_dropout": 0.5, "passes": 4, "consistency_weight": 1.0, "temperature": 0.5}
    | {"batch_norm": False},
    "hganet": NODE | {"patience": 100, "hidden_channels": 48, "num_layers": 2, "num_neighbours": 8},
    "sig-vae": {"epochs": 60, "learning_rate": 0.01, "hidden_channels": 64, "device": "cpu"}
    | {"latent_channels": 32, "noise_channels": 32, "draws": 5, "C": 1.0},
    "graph-mlp": POOLED,
    "gin": POOLED | {"num_layers": 5},
    "factorgcn": POOLED
    | {"hidden_channels": 64, "num_layers": 4, "num_factors": 4, "discriminator_weight": 0.5},
    "graph-gat": POOLED
    | {"learning_rate": 0.005, "hidden_channels": 64, "num_layers": 4, "heads": 8},
    "graph-hganet": POOLED
    | {"learning_rate": 0.005, "hidden_channels": 48, "num_layers": 3, "num_neighbours": 8}
    | {"kept_share": 0.8},
    "dgcnn": GRAPH | {"learning_rate": 1e-3, "num_nodes": None, "num_layers": 3},
    "patchy-san": GRAPH
    | {"learning_rate": 1e-3, "hidden_channels": 128, "num_nodes": None, "field_size": 10},
    "capsgnn": GRAPH
    | {"learning_rate": 1e-3, "dropout": 0.0, "hidden_channels": 16, "num_layers": 3}
    | {"num_channels": 2, "num_capsules": 16, "num_iterations": 3},
    "wl": SVM | {"max_iterations": 5},
    "awe": SVM | {"length": 7, "num_walks": 10_000, "gammas": [1.0, 10.0, 100.0]},
}
WEIGHTS = {
    "mlp": 64 * 5 + 64 + 3 * 64 + 3,
    "gcn": 16 * 5 + 16 + 3 * 16 + 3,
    "chebnet": 4 * 16 * 5 + 16 + 4 * 3 * 16 + 3,
    "sage": 2 * 64 * 5 + 64 + 2 * 3 * 64 + 3,
    "gat": 64 * 5 + 3 * 64 + 3 * 64 + 3 * 3,
    "disengcn": 64 * 5 + 64 + 3 * 64 + 3,
    "grand": 32 * 5 + 32 + 3 * 32 + 3,
    "hganet": 48 * 5 + 48 + 2 * (48 + 48 * 48 + 48) + 3 * 144 + 3,
    "graph-mlp": 32 * 5 + 32 * 32 + 6 * 32 + 3 * 32 + 3,
    "gin": 32 * 5 + 7 * 32 * 32 + 24 * 32 + 3 * 5 + 4 * 3 * 32 + 5 * 3,
    # Each layer: a projection, scores of both ends, a norm, and the discriminator of the layer.
    "factorgcn": 2 * (64 * 5 + 2 * 64 * 64)
    + 3 * (64 + 2 * 4 * 64 + 4 + 2 * 64)
    + 3 * (64 + 4 * 64 + 4)
    + 3 * 5
    + 3 * 3 * 64
    + 4 * 3,
    "graph-gat": 64 * 5 + 3 * 64 * 64 + 4 * 3 * 64 + 64 * 256 + 64 + 3 * 64 + 3,
    "graph-hganet": 48 * 5 + 48 + 3 * (48 + 48 * 48 + 48 + 48) + 3 * 192 + 3,
    "dgcnn": 32 * 5
    + 2 * 32 * 32
    + 32
    + 3 * 32
    + 1
    # The convolutions and the perceptron that read ten sorted nodes of 97 channels.
    + (16 * 97 + 16)
    + (32 * 16 * 5 + 32)
    + (128 * 32 + 128)
    + (3 * 128 + 3),
    "patchy-san": (16 * 5 * 10 + 16) + (8 * 16 * 10 + 8) + (128 * 8 + 128) + (3 * 128 + 3),
    "capsgnn": (16 * 5 + 2 * 16 * 16 + 3 * 16)
    + (16 * 48 + 16 + 6 * 16 + 6)
    + 6 * 16 * 8 * 16
    + 16 * 3 * 16 * 16,
}


@pytest.mark.parametrize("name", BASELINES)
def test_defaults(name: str) -> None:
    assert baseline(name).settings() == DEFAULTS[name]


@pytest.mark.parametrize("name", WEIGHTS)
def test_networks_have_as_many_weights_as_in_their_papers(name: str) -> None:
    method = baseline(name)
    assert isinstance(method, NeuralBaseline)
    model = method.build(5, 3)
    assert sum(weight.numel() for weight in model.parameters()) == WEIGHTS[name]


@pytest.mark.parametrize("name", BASELINES)
def test_bounds_of_settings(name: str) -> None:
    """Numbers that count something are at least one, and so on."""
    counted = {"batch_size", "halve_every", "epochs", "num_neighbours", "passes", "draws"}
    counted |= {"latent_channels", "noise_channels", "num_walks", "length", "field_size"}
    bounds: dict[str, tuple[float, float]] = dict.fromkeys(counted, (1, 0))
    bounds |= {"learning_rate": (1e-9, 0.0), "weight_decay": (0.0, -1e-9)}
    bounds |= {"dropout": (0.0, 1.0), "node_dropout": (0.0, 1.0), "input_dropout": (0.0, 1.0)}
    bounds |= {"kept_share": (0.01, 1.0), "consistency_weight": (0.0, -1e-9)}
    bounds |= {"num_nodes": (10, 9)}
    checked_here = {"grand", "hganet", "sig-vae", "graph-gat", "graph-hganet", "dgcnn"}
    checked_here |= {"patchy-san", "capsgnn"}
    if name in checked_here:
        bounds |= {"hidden_channels": (1, 0), "num_layers": (1, 0), "heads": (1, 0)}
        bounds |= {"num_channels": (1, 0), "num_capsules": (1, 0), "num_iterations": (1, 0)}
        bounds |= {"order": (0, -1), "temperature": (1e-9, 0.0)}
    if name == "sig-vae":
        bounds |= {"C": (1e-9, 0.0)}
    # Of these, some settings have defaults of their own, and no bounds.
    free = {"gat": {"epochs", "learning_rate", "dropout"}, "disengcn": {"weight_decay", "dropout"}}
    for setting in (DEFAULTS[name].keys() & bounds.keys()) - free.get(name, set()):
        allowed, refused = bounds[setting]
        assert baseline(name, settings={setting: allowed}).settings()[setting] == allowed
        with pytest.raises(InputError, match=setting):
            baseline(name, settings={setting: refused})


class Steps(Classifier):
    """Scores that do not depend on the graph, and a loss that asks for a step of one."""

    def __init__(self, scores: list[list[list[float]]]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))
        self.scores, self.epoch = [torch.tensor(one) for one in scores], 0
        self.weights: list[float] = []

    def forward(self, graph: Any) -> Tensor:
        self.epoch += 1
        self.weights.append(float(self.weight))
        return self.scores[self.epoch - 1]

    def losses(self, batch: Labelled) -> tuple[Tensor, Tensor]:
        return batch.labels.double().mean() - self.weight * 0, self.weight * -1.0


def rows(*right: bool, sure: float = 1.0) -> list[list[float]]:
    """Scores of two classes for rows whose label is zero."""
    return [[sure, 0.0] if hit else [0.0, sure] for hit in right]


class Stepping(NeuralBaseline):
    """A baseline whose network and problem are given."""

    task = "node"
    name: str = "steps"
    learning_rate: float = 1.0
    weight_decay: float = 0.0
    model: Any = None
    known: Any = None

    def build(self, in_channels: int, out_channels: int) -> Classifier:
        return self.model

    def problem(self, dataset: Any, split: Any) -> Problem:
        return self.known


def train(model: Steps, epochs: int, **options: Any) -> tuple[Any, dict[str, Tensor]]:
    two, labels = torch.tensor([0, 1]), torch.zeros(2, dtype=torch.long)
    held_out = {"val": (two, labels), "test": (torch.tensor([2]), labels[:1])}
    batches = [
        Labelled(None, slice(None), torch.full((size,), value))  # type: ignore[arg-type]
        for size, value in ((3, 1), (1, 5))
    ]
    graph: Any = None
    problem = Problem(lambda _: batches, [graph], held_out, **options)
    nothing: Any = SimpleNamespace(num_features=0, num_classes=2)
    return Stepping(model=model, known=problem, epochs=epochs).fit(nothing, nothing, seed=0)


def test_the_curve_by_hand() -> None:
    model = Steps([rows(True, False, True), rows(True, True, False), rows(False, True, True)])
    curve, found = train(model, 3)
    # Batches of three and one, with losses one and five.
    assert curve["train_loss"] == [2.0, 2.0, 2.0]
    assert curve["val_accuracy"] == [0.5, 1.0, 0.5]
    assert curve["test_accuracy"] == [1.0, 0.0, 1.0]
    right, wrong = math.log(1 + math.exp(-1)), math.log(1 + math.exp(1))
    mixed = (right + wrong) / 2
    assert curve["val_loss"] == pytest.approx([mixed, right, mixed])
    # The scores are those of the second epoch, where validation is best.
    assert found["test"].tolist() == [[0.0, 1.0]]
    assert found["val"].tolist() == [[1.0, 0.0], [1.0, 0.0]]
    # Two batches of an epoch, each with a step of one.
    assert model.weights == pytest.approx([2.0, 4.0, 6.0])


def test_the_learning_rate_is_halved_again_and_again() -> None:
    model = Steps([rows(True, True, True)] * 5)
    train(model, 5, halve_every=2)
    assert model.weights == pytest.approx([2.0, 4.0, 5.0, 6.0, 6.5])


@pytest.mark.parametrize(("patience", "epochs"), [(1, 2), (2, 5), (None, 6)])
def test_patience_by_hand(patience: int | None, epochs: int) -> None:
    """It ends where accuracy and loss have both been worse for so long."""
    good, bad = rows(True, True, True), rows(False, False, True)
    scores = [good, bad, rows(True, True, True, sure=2.0), bad, bad, bad]
    assert len(train(Steps(scores), 6, patience=patience)[0]["val_loss"]) == epochs


def test_mini_batches_are_of_about_equal_size() -> None:
    dataset = graph_toy(12)
    split = Split("half", torch.arange(7), torch.tensor([7]), torch.arange(8, 12))
    for size, counts in ((7, [7]), (6, [4, 3]), (3, [3, 2, 2]), (1, [1] * 7)):
        method = baseline("gin", settings={"batch_size": size})
        assert isinstance(method, GraphBaseline)
        problem = method.problem(dataset, split)
        batches = list(problem.training(torch.Generator().manual_seed(0)))
        assert [batch.labels.numel() for batch in batches] == counts
        assert sum(batch.graph.num_graphs for batch in batches) == 7
    assert {name: part[0].tolist() for name, part in problem.held_out.items()} == {
        "val": [0],
        "test": [1, 2, 3, 4],
    }
    assert [graph.num_graphs for graph in problem.graphs] == [1, 4]


def test_curves_without_epochs() -> None:
    guess, labels = torch.tensor([0, 1, 1, 0]), torch.tensor([0, 1, 0, 0])
    split = Split("s", torch.tensor([0]), torch.tensor([1, 2]), torch.tensor([3]))
    assert single_epoch_curve(guess, labels, split) == {
        "train_loss": [],
        "val_loss": [],
        "val_accuracy": [0.5],
        "test_accuracy": [1.0],
    }


def test_capsules_of_a_length() -> None:
    found = squash(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    torch.testing.assert_close(found, torch.tensor([[0.6, 0.8], [0.0, 0.0]]) * 25 / 26)


def test_margins_of_capsules(monkeypatch: pytest.MonkeyPatch) -> None:
    model = CapsGNN().build(2, 3)
    lengths = torch.tensor([[0.5, 0.3, 0.05], [0.95, 0.1, 0.9]])
    monkeypatch.setattr(model, "forward", lambda graph: lengths)
    graph: Any = GraphBatch
    loss, added = model.losses(Labelled(graph, slice(None), torch.tensor([0, 1])))
    expected = (0.4**2 + 0.5 * 0.2**2 + 0.8**2 + 0.5 * (0.85**2 + 0.8**2)) / 2
    assert float(loss) == pytest.approx(expected)
    assert float(added) == 0.0


def two_triangles() -> Any:
    """Joined by one edge."""
    once = np.array([[0, 0, 1, 2, 3, 3, 4], [1, 2, 2, 3, 4, 5, 5]])
    return np.hstack([once, once[::-1]])


def test_neighbourhoods_of_lowest_conductance_come_first() -> None:
    f = _neighbourhoods(two_triangles(), 7, 2, seed=0)
    # Around 0 (and 1) one edge leaves the triangle; around 5 (and 4) likewise.
    members = [set(np.flatnonzero(column == 1)) for column in f.T]
    assert members == [{0, 1, 2}, {3, 4, 5}]
    noise = f[f != 1]
    assert ((noise >= 0) & (noise < 0.1)).all()
    assert noise.std() > 0.01
    assert (_neighbourhoods(two_triangles(), 7, 2, seed=1) != f).any()
    # With room for more, nodes that are covered start nothing, and what is alone comes last.
    three = _neighbourhoods(two_triangles(), 7, 3, seed=0)
    assert np.flatnonzero(three[:, 2] == 1).tolist() == [6]


def test_likelihood_and_density_by_hand() -> None:
    edges = two_triangles()
    assert density(edges.shape[1], 6) == pytest.approx(14 / 30)
    assert density(0, 1) == 0
    z = torch.rand(6, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    expected = 0.0
    linked = {tuple(pair) for pair in edges.T.tolist()}
    for i in range(6):
        for j in range(i):
            rate = float(z[i] @ z[j]) + 0.01
            expected += math.log(1 - math.exp(-rate)) if (i, j) in linked else -rate
    found = float(log_likelihood(z, torch.from_numpy(edges), 0.01))
    assert found == pytest.approx(expected)


def test_training_goes_on_while_either_measure_improves() -> None:
    assert not neural._stalled([0.5], [1.0], 1)
    assert not neural._stalled([0.5, 0.6], [1.0, 2.0], 1)
    assert not neural._stalled([0.5, 0.4], [1.0, 0.9], 1)
    assert not neural._stalled([0.5, 0.5], [1.0, 2.0], 1)
    assert neural._stalled([0.5, 0.4], [1.0, 2.0], 1)
    assert not neural._stalled([0.5, 0.4], [1.0, 2.0], 2)


def test_loss_of_an_epoch_is_the_mean_over_its_labels() -> None:
    class Known(Classifier):
        """A network whose losses are given, whatever it reads."""

        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(()))

        def losses(self, batch: Any) -> tuple[Any, Any]:
            return batch.graph + 0 * self.weight, 100 + 0 * self.weight

    model = Known()
    batches: Any = [
        SimpleNamespace(graph=torch.tensor(loss), labels=torch.zeros(size))
        for loss, size in ((0.5, 3), (1.5, 1))
    ]
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    assert neural._train_epoch(model, batches, optimizer) == pytest.approx(0.75)
