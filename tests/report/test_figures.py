import xml.etree.ElementTree as ET
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

from vepm.report import figures
from vepm.report.figures import bucket_order
from vepm.report.style import (
    INK,
    MUTED,
    WARNING,
    class_colours,
    community_colours,
    draw_svg,
    inline_svg,
    look,
)

from .writing import Array

EXPECTED = {
    "node_run": {
        "adjacency",
        "confusion",
        "learning_curves",
        "reliability",
        "tsne_communities",
        "tsne_memberships",
    },
    "unsupervised_run": {"adjacency", "learning_curves", "tsne_memberships"},
}
EXPECTED["graph_run"] = EXPECTED["node_run"]


@pytest.mark.parametrize("fixture", sorted(EXPECTED))
def test_every_figure_is_drawn(fixture: str, request: pytest.FixtureRequest) -> None:
    folder: Path = request.getfixturevalue(fixture) / "figures"
    assert {path.stem for path in folder.glob("*.svg")} == EXPECTED[fixture]
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
    monkeypatch.setattr("vepm.report.figures.MOST_DOTS", 10)
    edges = np.random.default_rng(0).integers(50, size=(2, 40))
    figure = figures.adjacency(edges, np.ones((40, 1)), np.arange(50), np.zeros(50, dtype=int))
    assert _dots(figure) == [10, 10]
    assert figure.axes[0].get_title(loc="left") == "A: 25% of 20 edges"


def test_curves_mark_the_chosen_epoch_of_the_last_phase() -> None:
    history = {
        "phase": np.array(["pretrain", "pretrain", "finetune", "finetune"]),
        "epoch": np.array([0.0, 1.0, 0.0, 1.0]),
        "loss": np.array([4.0, 3.0, 2.0, 1.0]),
        "val_accuracy": np.array([np.nan, np.nan, 0.5, 0.6]),
    }
    for epoch, places in ((1, [[3], [1]]), (9, [[], []]), (None, [[], []])):
        drawn = figures.learning_curves(history, epoch)
        marks = [
            [line for line in axes.lines if line.get_color() == WARNING] for axes in drawn.axes
        ]
        assert [[np.asarray(line.get_xdata())[0] for line in found] for found in marks] == places
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
    drawn = figures.learning_curves({"phase": np.array([], dtype=str), "epoch": np.array([])})
    assert not any(axes.get_lines() for axes in drawn.axes)


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


def test_tsne_is_seeded_and_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "MOST_POINTS", 40)
    values = np.random.default_rng(0).normal(size=(60, 4))
    first, rows = figures.tsne(values)
    second, _ = figures.tsne(values)
    np.testing.assert_array_equal(first, second)
    assert len(rows) == 40


def test_map_of_communities_has_a_dot_for_each_of_some_whole_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(figures, "MOST_POINTS", 30)
    values = np.random.default_rng(0).normal(size=(40, 3, 2))
    figure = figures.community_map(values, ["a", "b", "c"], "title")
    dots = figure.axes[0].collections
    assert [len(np.asarray(found.get_offsets())) for found in dots] == [10, 10, 10]
    assert len({np.asarray(found.get_facecolor()).tobytes() for found in dots}) == 3


def test_map_names_the_unknown_last() -> None:
    values = np.random.default_rng(0).normal(size=(12, 2))
    category = np.array([1, -1, 0] * 4)
    figure = figures.embedding_map(values, category, ["a", "b", "c"], ["red", "blue", "green"], "")
    legend = figure.axes[0].get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["a", "b", "unknown"]


def test_page_svg_takes_the_ink_of_the_page() -> None:
    figure = figures.confusion_matrix(np.eye(2, dtype=np.int64), ["a", "b"], "title")
    svg = inline_svg(draw_svg(figure, "mine"), "mine")
    ET.fromstring(svg)
    assert "currentColor" in svg
    assert 'id="mine-' in svg
    assert "#1f2a37" not in svg.lower()


def test_names_are_not_formulae() -> None:
    matrix = np.eye(2, dtype=np.int64)
    figure = figures.confusion_matrix(matrix, ["$\\frac{", "漢字"])
    assert "$\\frac{" in draw_svg(figure, "odd")


def _lab(colour: str) -> Array:
    """A colour in CIELAB, where distances are about what eyes see."""
    channels = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    matrix = [[0.4125, 0.3576, 0.1804], [0.2127, 0.7152, 0.0722], [0.0193, 0.1192, 0.9503]]
    x, y, z = np.cbrt(np.array(matrix) @ linear / [0.9505, 1.0, 1.0888])
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def _closest(colours: list[str], others: list[str]) -> float:
    return min(
        float(np.linalg.norm(_lab(one) - _lab(other)))
        for one in colours
        for other in others
        if one is not other
    )


@pytest.mark.parametrize(("count", "distance"), [(8, 20), (16, 15), (24, 12)])
def test_no_class_looks_like_a_community(count: int, distance: float) -> None:
    classes, communities = class_colours(count), community_colours(count)
    assert _closest(classes, communities) > distance
    assert _closest(classes, classes) > distance
    assert _closest(communities, communities) > distance


def test_blocks_of_the_partition_are_labelled_in_order() -> None:
    edges = np.array([[0, 1, 1, 2], [1, 0, 2, 1]])
    interaction = np.array([[0.0, 1.0], [0.0, 2.0], [3.0, 0.0]])
    order, bucket = bucket_order(interaction)
    figure = figures.adjacency(edges, np.full((4, 2), 0.5), order, bucket)
    for axes in figure.axes:
        assert [tick.get_text() for tick in axes.get_yticklabels()] == ["0", "1"]
        assert np.asarray(axes.get_yticks()).tolist() == [0.0, 1.5]


def test_bins_of_few_predictions_are_pale() -> None:
    confidence = np.repeat([0.3, 0.9], [4, 40])
    figure = figures.reliability(confidence, np.ones(44, dtype=bool), bins=10)
    few, many = (figure.axes[0].patches[place] for place in (3, 9))
    assert to_rgba(few.get_facecolor())[3] < 0.5 < to_rgba(many.get_facecolor())[3]


def test_compared_curves_have_a_line_for_each_run() -> None:
    history = {
        "phase": np.array(["pretrain", "finetune", "finetune"]),
        "epoch": np.array([0.0, 0.0, 1.0]),
        "loss": np.array([3.0, 2.0, 1.0]),
        "val_accuracy": np.array([np.nan, 0.5, 0.6]),
    }
    figure = figures.compared_curves([history, history], ["a", "b"], ["#000000", "#FF0000"])
    for axes in figure.axes:
        assert [len(np.asarray(line.get_xydata())) for line in axes.get_lines()] == [2, 2]


def test_accuracies_and_counts_by_confidence() -> None:
    confidence = np.array([0.95, 0.95, 0.65, 0.65, 1.0, 0.0])
    correct = np.array([1, 0, 1, 0, 1, 0], dtype=bool)
    figure = figures.reliability(confidence, correct, bins=10)
    bars, counts = ([bar.get_height() for bar in axes.patches] for axes in figure.axes)  # type: ignore[attr-defined]
    assert bars == pytest.approx([0, 0, 0, 0, 0, 0, 1 / 2, 0, 0, 2 / 3])
    assert counts == [1, 0, 0, 0, 0, 0, 2, 0, 0, 3]


def test_the_style_sheet_has_the_ink_and_the_grey_that_pages_replace() -> None:
    with look():
        assert mpl.rcParams["text.color"] == mpl.rcParams["axes.titlecolor"] == INK
        assert mpl.rcParams["axes.edgecolor"] == mpl.rcParams["xtick.color"] == MUTED
