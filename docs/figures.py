"""The figures of these pages, drawn from generated graphs and bundled data.

python docs/figures.py            draw all of them into docs/figures/
python docs/figures.py weibull    draw one
"""

import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import networkx as nx
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import ConnectionPatch
from numpy.typing import NDArray
from torch.distributions import Gamma, Weibull

from vepm import NodeClassifier
from vepm.data import planted_graph
from vepm.nn import EdgePartitioner
from vepm.report.style import (
    INK,
    MUTED,
    class_colours,
    community_colours,
    draw_svg,
    new_figure,
    styled,
)
from vepm.training import preset

FOLDER = Path(__file__).parent / "figures"
COLOURS = community_colours(4)
Array = NDArray[Any]


class Story(NamedTuple):
    """A small generated graph and what a model fitted to it says."""

    place: Array
    edges: Array
    share: Array
    memberships: Array
    embeddings: Array
    prediction: Array


@cache
def story() -> Story:
    """Fit the classifier to 48 nodes in three planted communities."""
    dataset = planted_graph(48, 3, average_degree=5, overlap=0.12, num_features=16, seed=34)
    graph = dataset.graphs[0]
    graph.train_mask, graph.val_mask = graph.train_mask | graph.val_mask, graph.test_mask
    config = preset("tuned", "node").replace(num_communities=3, num_metacommunities=3)
    model = NodeClassifier(config=config.replace(temperature=0.5), device="cpu").fit(dataset)
    split = model.edge_partition(dataset)
    once = split.edge_index[0] < split.edge_index[1]
    drawn: nx.Graph[int] = nx.Graph()
    drawn.add_nodes_from(range(48))
    drawn.add_edges_from(split.edge_index[:, once].T.tolist())
    found = nx.spring_layout(drawn, seed=3, k=0.3, iterations=300)
    order = np.array([found[i] for i in range(48)])
    with torch.no_grad():
        output = model.model_(graph.x, graph.edge_index)
    return Story(
        order,
        split.edge_index[:, once].T,
        split.share[once],
        np.asarray(model.memberships(dataset)),
        output.community_embeddings.numpy(),
        model.predict_proba(dataset).argmax(1),
    )


@styled
def overview() -> Figure:
    """The four boxes, on one small graph."""
    tale = story()
    figure = Figure(figsize=(10.4, 3.7))
    columns = [0.0, 0.213, 0.352, 0.60, 0.80]
    titles = [
        ("", "Graph, features,\na few labels"),
        ("1", "Community encoder"),
        ("2", "Edge partitioner"),
        ("3", "Community-GNN bank"),
        ("4", "Representation composer"),
    ]
    order = np.lexsort((-tale.memberships.max(1), tale.memberships.argmax(1)))
    whole = _axes(figure, columns[0], 0.13, 0.18, 0.62)
    _graph(whole, tale, np.full((len(tale.edges), 4), (*to_rgb(MUTED), 0.6)), [MUTED] * 48)
    z_axes = _axes(figure, columns[1] + 0.025, 0.13, 0.055, 0.62)
    _heat(z_axes, tale.memberships[order], COLOURS[:3])
    splits, banks = [], []
    for k in range(3):
        height = 0.53 - 0.2 * k
        small = _axes(figure, columns[2], height, 0.2, 0.21)
        rgba = np.tile((*to_rgb(COLOURS[k]), 1.0), (len(tale.edges), 1))
        rgba[:, 3] = np.clip(tale.share[:, k], 0.03, 1)
        faded = [(*to_rgb(COLOURS[k]), 0.75)] * 48
        _graph(small, tale, rgba, faded, size=4)
        splits.append(small)
        bank = _axes(figure, columns[3] + 0.03, height + 0.015, 0.09, 0.18)
        _heat(bank, tale.embeddings[order, k, :8], [COLOURS[k]] * 8)
        banks.append(bank)
    result = _axes(figure, columns[4] + 0.015, 0.13, 0.18, 0.62)
    shades = class_colours(3)
    _graph(
        result,
        tale,
        np.full((len(tale.edges), 4), (*to_rgb(MUTED), 0.6)),
        [shades[c] for c in tale.prediction],
    )
    _captions(figure, titles)
    for start, end in [(whole, z_axes), *((z_axes, s) for s in splits)]:
        _arrow(figure, start, end)
    for small, bank in zip(splits, banks, strict=True):
        _arrow(figure, small, bank)
        _arrow(figure, bank, result)
    return figure


def _captions(figure: Figure, titles: list[tuple[str, str]]) -> None:
    centres = [0.09, 0.2655, 0.452, 0.675, 0.905]
    below = [
        "A, X, y",
        "Z: how strongly each\nnode belongs",
        "A⁽¹⁾ + A⁽²⁾ + A⁽³⁾ = A",
        "H⁽¹⁾, H⁽²⁾, H⁽³⁾",
        "labels for every node",
    ]
    for centre, (number, title), words in zip(centres, titles, below, strict=True):
        text = f"{number}\n{title}" if number else title
        figure.text(
            centre, 0.93, text, ha="center", va="center", fontsize=9.5, weight="bold", color=INK
        )
        figure.text(centre, 0.055, words, ha="center", va="center", fontsize=8, color=INK)


def _arrow(figure: Figure, start: Axes, end: Axes) -> None:
    patch = ConnectionPatch(
        (1.0, 0.5),
        (0.0, 0.5),
        coordsA="axes fraction",
        coordsB="axes fraction",
        axesA=start,
        axesB=end,
        arrowstyle="-|>",
        color=MUTED,
        linewidth=0.9,
        shrinkA=3,
        shrinkB=3,
        mutation_scale=8,
    )
    figure.add_artist(patch)


def _axes(figure: Figure, left: float, bottom: float, width: float, height: float) -> Axes:
    axes = figure.add_axes((left, bottom, width, height))
    axes.set_axis_off()
    return axes


def _graph(axes: Axes, tale: Story, lines: Array, nodes: Any, size: float = 16) -> None:
    segments = list(tale.place[tale.edges])
    axes.add_collection(LineCollection(segments, colors=lines, linewidths=0.9))
    axes.scatter(tale.place[:, 0], tale.place[:, 1], s=size, c=nodes, linewidths=0, zorder=2)
    axes.margins(0.06)


def _heat(axes: Axes, values: Array, colours: list[str]) -> None:
    scaled = values / max(float(values.max()), 1e-9)
    image = np.zeros((*values.shape, 4))
    for column, colour in enumerate(colours):
        image[:, column, :3] = to_rgb(colour)
    image[..., 3] = np.clip(scaled, 0.04, 1)
    axes.imshow(image, aspect="auto", interpolation="none")


@styled
def partition() -> Figure:
    """One edge colour per share, and the adjacency matrix before and after."""
    tale = story()
    figure = new_figure(10.0, 3.1)
    panels = figure.subplots(1, 5, width_ratios=[1.5, 1, 1, 1, 1])
    mixed = tale.share @ np.array([to_rgb(colour) for colour in COLOURS[:3]])
    rgba = np.column_stack([np.clip(mixed, 0, 1), np.full(len(mixed), 0.9)])
    main = [COLOURS[k] for k in tale.memberships.argmax(1)]
    _graph(panels[0], tale, rgba, main, size=14)
    panels[0].set_title("each edge in the mixture of its shares")
    panels[0].set_axis_off()
    order = np.lexsort((-tale.memberships.max(1), tale.memberships.argmax(1)))
    rank = np.empty(48, dtype=int)
    rank[order] = np.arange(48)
    row, column = rank[tale.edges].T
    columns = [np.ones(len(row)), *tale.share.T]
    for k, (axes, share) in enumerate(zip(panels[1:], columns, strict=True)):
        colour = COLOURS[k - 1] if k else INK
        ends = np.concatenate([row, column]), np.concatenate([column, row])
        for strength in (0.1, 0.3, 0.5, 0.7, 0.9, 1.0):
            chosen = np.tile((share > strength - 0.2) & (share <= strength), 2)
            axes.scatter(
                ends[1][chosen],
                ends[0][chosen],
                s=5,
                marker="s",
                color=colour,
                alpha=strength,
                linewidths=0,
            )
        axes.set(xlim=(-1, 48), ylim=(48, -1), xticks=[], yticks=[], aspect="equal")
        axes.spines[["right", "top"]].set_visible(True)
        axes.set_title(f"A⁽{'¹²³'[k - 1]}⁾" if k else "A, sorted")
    return figure


@styled
def weibull() -> Figure:
    """The posterior's family beside the prior's."""
    figure = new_figure(9.6, 2.9)
    left, right = figure.subplots(1, 2)
    z = torch.linspace(0.001, 3, 300)
    for shape, colour in zip((0.5, 1.0, 2.0, 5.0), COLOURS, strict=True):
        density = Weibull(torch.tensor(1.0), torch.tensor(shape)).log_prob(z).exp()
        left.plot(z, density, color=colour, label=f"shape {shape:g}")
    left.set(title="Weibull posterior, scale 1", xlabel="affiliation z", ylabel="density")
    left.set(ylim=(0, 2.2), xlim=(0, 3))
    left.legend()
    for (alpha, beta), colour in zip(((0.5, 1), (1, 1), (2, 2), (1, 3)), COLOURS, strict=True):
        prior = Gamma(torch.tensor(float(alpha)), torch.tensor(float(beta)))
        right.plot(z, prior.log_prob(z).exp(), color=colour, label=f"shape {alpha:g}, rate {beta}")
    right.set(title="Gamma prior", xlabel="affiliation z", ylim=(0, 2.2), xlim=(0, 3))
    right.legend()
    return figure


@styled
def reparameterisation() -> Figure:
    """Evenly spread u, through the inverse distribution function, gives draws of z."""
    figure = new_figure(9.6, 2.9)
    left, right = figure.subplots(1, 2)
    u = np.linspace(0.0005, 0.9995, 400)
    for shape, colour in zip((1.0, 2.0, 5.0), COLOURS, strict=False):
        left.plot(u, (-np.log1p(-u)) ** (1 / shape), color=colour, label=f"shape {shape:g}")
    left.set(title="z = scale · (−log(1 − u))^(1/shape)", xlabel="u, uniform", ylabel="z (scale 1)")
    left.set(ylim=(0, 3), xlim=(0, 1))
    left.legend(loc="upper left")
    scale = np.linspace(0.05, 1.5, 2)
    for level, colour in zip((0.25, 0.5, 0.9), COLOURS, strict=False):
        right.plot(scale, scale * np.sqrt(-np.log1p(-level)), color=colour, label=f"u = {level}")
    right.set(title="u fixed: z moves smoothly with the scale", xlabel="scale (shape 2)")
    right.set(ylabel="z", xlim=(0, 1.5))
    right.legend(loc="upper left")
    return figure


@styled
def link() -> Figure:
    """From the rate of a pair to the probability of its edge."""
    figure = new_figure(9.6, 2.8)
    left, right = figure.subplots(1, 2, width_ratios=[1, 1.1])
    rate = np.linspace(0, 5, 200)
    left.plot(rate, -np.expm1(-rate), color=COLOURS[0])
    left.set(title="P(edge) = 1 − exp(−r)", xlabel="rate r of the pair", ylabel="probability")
    left.set(xlim=(0, 5), ylim=(0, 1.02))
    rates = np.array([0.9, 0.3, 0.05])
    names = ["via community 1", "via community 2", "via community 3", "via any (the edge)"]
    values = [*-np.expm1(-rates), -np.expm1(-rates.sum())]
    right.barh(names[::-1], values[::-1], color=[INK, *COLOURS[2::-1]], height=0.6)
    right.set(title="a logical OR over communities", xlabel="probability", xlim=(0, 1))
    return figure


@styled
def temperature() -> Figure:
    """How the temperature shares out one edge."""
    figure = new_figure(9.6, 2.7)
    axes = figure.subplots()
    rates = (2.0, 1.0, 0.25)
    z = torch.tensor(rates).sqrt().expand(2, 3)
    edge = torch.tensor([[0], [1]])
    taus = np.geomspace(0.05, 50, 80)
    shares = np.array(
        [EdgePartitioner(3, float(t))(z, torch.ones(3), edge)[0].numpy() for t in taus]
    )
    axes.stackplot(
        taus, shares.T, colors=COLOURS[:3], alpha=0.85, labels=[f"rate {r:g}" for r in rates]
    )
    axes.set(xscale="log", xlim=(taus[0], taus[-1]), ylim=(0, 1))
    axes.set_xticks([0.1, 1, 10], labels=["0.1", "1", "10"])
    axes.set(xlabel="temperature τ", ylabel="share of the edge")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


FIGURES: dict[str, Callable[[], Figure]] = {
    "overview": overview,
    "partition": partition,
    "weibull": weibull,
    "reparameterisation": reparameterisation,
    "link": link,
    "temperature": temperature,
}

if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name in sys.argv[1:] or FIGURES:
        (FOLDER / f"{name}.svg").write_text(draw_svg(FIGURES[name](), name), encoding="utf-8")
