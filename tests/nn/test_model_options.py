"""Every option of the model does something, and refuses what it cannot do."""

import inspect
from typing import Any

import pytest
import torch
from torch import Tensor

from strategies import join, path, random_graph
from vepm import VEPM
from vepm.kernels.features import dense
from vepm.nn import Adjacency
from vepm.nn.building import CHOICES
from vepm.nn.convolution import CONVOLUTIONS, NORMALIZATIONS
from vepm.nn.encoder import SHAPES
from vepm.nn.partitioner import SHARES

BATCH = join([random_graph(6), path(4)])
EDGES = Adjacency(*path(5))

# Option, another value than the default's, and what else must be set for it to matter.
ALTERNATIVES: list[tuple[str, Any, dict[str, Any]]] = [
    ("task", "graph", {}),
    ("num_communities", 8, {}),
    ("num_metacommunities", 2, {}),
    ("hidden_channels", 12, {}),
    ("conv", "gin", {}),
    ("encoder_channels", 9, {}),
    ("encoder_conv", "gin", {}),
    ("encoder_layers", 3, {}),
    ("encoder_batch_norm", False, {}),
    ("encoder_dropout", 0.5, {}),
    ("shape", "node", {}),
    *[("partition", value, {}) for value in ("even", "random")],
    ("temperature", 0.01, {}),
    ("temperature", 0.1, {"shares": "posterior"}),
    ("shares", "posterior", {}),
    ("grouping", "learned", {}),
    ("grouping", "learned", {"shares": "posterior"}),
    ("background", True, {}),
    ("sparse", True, {}),
    ("background", True, {"grouping": "learned", "directed": True}),
    ("interactions", "matrix", {}),
    ("directed", True, {}),
    *[("normalize", value, {}) for value in ("none", "graph", "neighbours")],
    *[("inputs", value, {}) for value in ("x", "z", "random")],
    *[("fusion", value, {}) for value in ("mass", "softmax")],
    ("fusion_weight", 0.5, {"fusion": "mass"}),
    *[("feature_norm", value, {}) for value in ("none", "l1")],
    ("bank_layers", 2, {}),
    ("composer", "fc", {}),
    ("composer", "weighted", {}),
    ("composer", "weighted", {"task": "graph", "conv": "gin"}),
    ("composer_layers", 2, {}),
    ("hops", 2, {}),
    ("teleport", 0.5, {"hops": 2}),
    ("dropout", 0.9, {}),
    ("node_dropout", 0.5, {}),
    ("dropout", 0.9, {"task": "graph"}),
    ("pooling", "mean", {"task": "graph"}),
    ("readout", "last", {"task": "graph"}),
]
KNOWN = CHOICES | {
    "conv": CONVOLUTIONS,
    "shape": SHAPES,
    "shares": SHARES,
    "normalize": NORMALIZATIONS,
}


def build(**options: Any) -> VEPM:
    torch.manual_seed(0)
    sizes = {"num_communities": 6, "num_metacommunities": 3, "hidden_channels": 6}
    return VEPM(4, 2, **{"dropout": 0.0, **sizes, **options})


def logits(model: VEPM, training: bool) -> Tensor:
    """Scores from the posterior mean, so that only dropout is left to chance."""
    torch.manual_seed(1)
    x = torch.rand(10, 4)
    out = model.train(training)(x, BATCH.edge_index, BATCH.batch, sample=False)
    scores: Tensor = out.logits.detach()
    return scores


def shapes(model: VEPM) -> dict[str, torch.Size]:
    return {name: value.shape for name, value in model.state_dict().items()}


@pytest.mark.parametrize(("name", "value", "others"), ALTERNATIVES)
def test_option_changes_parameters_or_predictions(
    name: str, value: Any, others: dict[str, Any]
) -> None:
    base, changed = build(**others), build(**{**others, name: value})
    if shapes(base) == shapes(changed):
        changed.load_state_dict(base.state_dict())
        training = "dropout" in name
        gap = (logits(base, training) - logits(changed, training)).abs().max()
        assert gap > 1e-5
    else:
        assert logits(changed, training=False).isfinite().all()


def test_every_option_is_tried() -> None:
    keywords = {
        name
        for name, parameter in inspect.signature(VEPM).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }
    # How many are paired is where training begins, and no more: see test_interactions.py.
    assert keywords - {"paired"} == {name for name, _, _ in ALTERNATIVES}


def test_options_described_and_accepted_are_the_same() -> None:
    described = inspect.getdoc(VEPM) or ""
    missing = [name for name in inspect.signature(VEPM).parameters if f"{name}: " not in described]
    assert missing == []


@pytest.mark.parametrize("name", KNOWN)
def test_unknown_value_is_refused_with_the_known_ones(name: str) -> None:
    with pytest.raises(ValueError, match=f"^{name} must be one of {', '.join(KNOWN[name])}, got"):
        build(**{name: "nonsense"})


@pytest.mark.parametrize("name", KNOWN)
def test_known_values_are_accepted(name: str) -> None:
    for value in KNOWN[name]:
        if value == "kinds":
            # Needs a graph with kinds of edges, which test_partitioner has.
            continue
        assert logits(build(**{name: value}), training=False).isfinite().all()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("num_metacommunities", 7, r"between 1 and num_communities \(6\), got 7"),
        ("num_metacommunities", 0, r"between 1 and num_communities \(6\), got 0"),
        ("hidden_channels", 2, r"hidden_channels \(2\) must be at least"),
        ("temperature", 0.0, "temperature must be positive, got 0"),
        ("encoder_layers", 0, "encoder_layers must be at least 1, got 0"),
        ("bank_layers", 0, "bank_layers must be at least 1, got 0"),
        ("composer_layers", 0, "composer_layers must be at least 1, got 0"),
        ("dropout", 1.5, r"between 0 and 1.*1\.5"),
        ("encoder_dropout", -0.5, r"between 0 and 1.*-0\.5"),
    ],
)
def test_impossible_number_is_refused(name: str, value: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(**{name: value})


@pytest.mark.parametrize(("task", "dropped"), [("node", True), ("graph", False)])
def test_dropout_reaches_the_bank_for_nodes_only(task: str, dropped: bool) -> None:
    model, x = build(task=task, dropout=0.9).train(), torch.rand(10, 4)
    first, second = (
        model(x, BATCH.edge_index, BATCH.batch, sample=False).community_embeddings for _ in range(2)
    )
    assert first.equal(second) is not dropped


def test_mass_of_affiliations_is_the_given_part_of_the_features() -> None:
    model = build(fusion="mass", fusion_weight=0.25)
    x, z = torch.rand(5, 4), torch.rand(5, 6)
    fused = torch.cat([dense(part) for part in model.fuse(x, z, EDGES)], dim=1)
    torch.testing.assert_close(fused[:, 4:].sum(1), 0.25 * x.sum(1))
    torch.testing.assert_close(fused[:, :4], x)
    assert (dense(model.fuse(torch.zeros(5, 4), z, EDGES)[1]) == 0).all()


def test_softmax_fusion_sums_to_one() -> None:
    parts = build(fusion="softmax").fuse(torch.rand(5, 4), torch.rand(5, 6), EDGES)
    fused = torch.cat([dense(part) for part in parts], dim=1)
    torch.testing.assert_close(fused[:, 4:].sum(1), torch.ones(5))


@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_scale_of_the_features_does_not_matter_once_normalised(norm: str) -> None:
    model, x = build(feature_norm=norm).eval(), torch.rand(10, 4)
    here, there = (model(scale * x, BATCH.edge_index).logits for scale in (1, 100))
    torch.testing.assert_close(here, there)


@pytest.mark.parametrize(("grouping", "learns"), [("learned", True), ("segments", False)])
def test_only_a_learned_grouping_is_learned(grouping: str, learns: bool) -> None:
    assert VEPM(4, 2, grouping=grouping).learns_grouping is learns
