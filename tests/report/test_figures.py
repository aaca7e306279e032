import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

from vepm.report import figures
from vepm.report.figures.curves import chosen_row
from vepm.report.palette import class_colours, community_colours

from .writing import Array

EXPECTED = {
    "node_run": {
        "adjacency",
        "communities",
        "confusion",
        "confusion_by_community",
        "learning_curves",
        "reliability",
        "tsne_communities",
        "tsne_memberships",
    },
    "unsupervised_run": {"adjacency", "communities", "learning_curves", "tsne_memberships"},
}
EXPECTED["graph_run"] = EXPECTED["node_run"]


@pytest.mark.parametrize("fixture", sorted(EXPECTED))
def test_every_figure_is_drawn(fixture: str, request: pytest.FixtureRequest) -> None:
    folder: Path = request.getfixturevalue(fixture) / "figures"
    assert {path.stem for path in folder.glob("*.png")} == EXPECTED[fixture]
    assert {path.stem for path in folder.glob("*.svg")} == EXPECTED[fixture]
    for path in folder.glob("*.png"):
        assert imread(path).std() > 0.01, path.name
    for path in folder.glob("*.svg"):
        ET.parse(path)


def _dots(figure: Figure) -> list[int]:
    return [len(np.asarray(axes.collections[0].get_offsets())) for axes in figure.axes]


def test_adjacency_has_a_panel_for_the_whole_and_for_each_part() -> None:
    edges = np.array([[0, 1, 1, 2], [1, 0, 2, 1]])
    share = np.array([[1, 0], [1, 0], [0.3, 0.7], [0.3, 0.7]])
    figure = figures.adjacency(edges, share, np.array([2, 0, 1]), np.array([0, 0, 1]))
    assert _dots(figure) == [4, 4, 2]
    offsets = np.asarray(figure.axes[2].collections[0].get_offsets())
    assert sorted(map(tuple, offsets.tolist())) == [(0, 2), (2, 0)]


def test_large_adjacency_is_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vepm.report.figures.matrices.MOST_DOTS", 10)
    edges = np.random.default_rng(0).integers(50, size=(2, 40))
    figure = figures.adjacency(edges, np.ones((40, 1)), np.arange(50))
    assert _dots(figure) == [10, 10]
    assert figure.axes[0].get_title(loc="left") == "A: 25% of 20 edges"


def test_curves_mark_the_chosen_epoch_of_the_last_phase() -> None:
    history = {
        "phase": np.array(["pretrain", "pretrain", "finetune", "finetune"]),
        "epoch": np.array([0.0, 1.0, 0.0, 1.0]),
        "loss": np.array([4.0, 3.0, 2.0, 1.0]),
        "val_accuracy": np.array([np.nan, np.nan, 0.5, 0.6]),
    }
    assert chosen_row(history, 1) == 3
    assert chosen_row(history, 9) is None
    figure = figures.learning_curves(history, best_epoch=1)
    assert [axes.get_xlabel() for axes in figure.axes] == [
        "pretrain, then finetune (epochs)",
        "finetune (epochs)",
    ]


def test_curves_show_terms_of_some_epochs_only() -> None:
    history = {
        "phase": np.array(["finetune"] * 5),
        "epoch": np.arange(5.0),
        "kl": np.array([np.nan, 3.0, np.nan, np.nan, 4.0]),
    }
    (line,) = figures.learning_curves(history).axes[0].get_lines()
    assert np.asarray(line.get_xydata()).tolist() == [[1, 3], [4, 4]]


def test_curves_mark_a_single_epoch() -> None:
    history = {"phase": np.array(["pretrain"]), "epoch": np.zeros(1), "loss": np.ones(1)}
    (axes,) = figures.learning_curves(history).axes
    (line,) = axes.get_lines()
    assert line.get_marker() == "o"
    assert set(np.asarray(axes.get_xticks()).tolist()) <= {-1, 0, 1}


def test_curves_of_an_empty_history() -> None:
    figures.learning_curves({"phase": np.array([], dtype=str), "epoch": np.array([])})


EYE = np.eye(5)


@pytest.mark.parametrize(
    "values",
    [
        np.zeros((0, 2)),
        EYE[:3],
        np.tile([0.2, 0.8], (300, 1)),
        np.zeros((300, 4)),
        np.repeat(EYE[:3], 50, axis=0),
        1 + 1e-9 * np.random.default_rng(0).random((50, 3)),
    ],
)
def test_tsne_refuses_fewer_than_four_distinct_points(values: Array) -> None:
    with pytest.raises(ValueError, match=r"t-SNE needs 4 distinct points, not [0-3]"):
        figures.tsne(values)


@pytest.mark.parametrize(
    "values", [np.repeat(EYE, 40, axis=0), EYE[:4], EYE[:, :1] + np.arange(5)[:, None]]
)
@pytest.mark.parametrize("scale", [1.0, 1e-300, 1e20, 1e300])
def test_tsne_of_equal_points_and_of_any_scale(values: Array, scale: float) -> None:
    points, rows = figures.tsne(scale * values)
    assert rows.tolist() == list(range(len(values)))
    assert np.isfinite(points).all()
    assert len(np.unique(points, axis=0)) == len(np.unique(values, axis=0))


def test_tsne_is_seeded_and_sampled() -> None:
    values = np.random.default_rng(0).normal(size=(60, 4))
    first, rows = figures.tsne(values, seed=3, limit=40)
    second, _ = figures.tsne(values, seed=3, limit=40)
    np.testing.assert_array_equal(first, second)
    assert len(rows) == 40


def test_stacked_communities_keep_whole_nodes() -> None:
    values = np.arange(24.0).reshape(4, 3, 2)
    stacked, community = figures.stack_communities(values, limit=6)
    assert stacked.shape == (6, 2)
    assert community.tolist() == [0, 1, 2, 0, 1, 2]


def test_page_svg_takes_the_ink_of_the_page() -> None:
    figure = figures.confusion_matrix(np.eye(2, dtype=np.int64), ["a", "b"], "title")
    svg = figures.inline_svg(figures.draw_svg(figure, "mine"), "mine")
    ET.fromstring(svg)
    assert "currentColor" in svg
    assert 'id="mine-' in svg
    assert "#1f2a37" not in svg.lower()


def test_names_are_not_formulae() -> None:
    matrix = np.eye(2, dtype=np.int64)
    figure = figures.confusion_matrix(matrix, ["$\\frac{", "漢字"])
    assert "$\\frac{" in figures.render(figure, "odd").svg


@pytest.mark.parametrize("colours", [class_colours, community_colours])
def test_palettes_do_not_repeat_soon(colours: object) -> None:
    assert callable(colours)
    assert len(set(colours(24))) == 24
