"""Generated graphs of any size by name: ``planted:nodes=5000,edges=50000``."""

import math
from collections.abc import Callable
from typing import Any

from vepm.data.dataset import Dataset
from vepm.data.generate import planted_graph
from vepm.errors import InputError

INGREDIENTS: dict[str, tuple[Callable[[str], Any], str]] = {
    "nodes": (int, "number of nodes (1000)"),
    "edges": (int, "about how many edges (5 a node)"),
    "communities": (int, "number of communities, which are the classes (8)"),
    "features": (int, "number of feature columns (32)"),
    "labels": (int, "training labels a class (10, fewer in small graphs)"),
    "overlap": (float, "share of a node outside its main community (0.1)"),
    "seed": (int, "seed of the draw (0)"),
}
PLANTED = "planted"


def draw_planted(recipe: str) -> Dataset:
    """A planted graph from a recipe such as ``nodes=5000,edges=50000,seed=1``.

    Args:
        recipe: what to set of ``INGREDIENTS``, with commas between; may be empty.

    Example:
        >>> draw_planted("nodes=200,edges=800").graphs[0].num_nodes
        200
    """
    given = _parse(recipe)
    nodes = given.pop("nodes", 1000)
    edges = given.pop("edges", 5 * nodes)
    return planted_graph(
        nodes,
        given.pop("communities", 8),
        average_degree=2 * edges / max(nodes, 1),
        num_features=given.pop("features", 32),
        labels_per_class=given.pop("labels", None),
        seed=given.pop("seed", 0),
        **given,
    )


def _parse(recipe: str) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for part in filter(None, recipe.split(",")):
        name, _, value = (word.strip() for word in part.partition("="))
        if name not in INGREDIENTS:
            raise InputError(
                f"{PLANTED}:{recipe}: there is no {name!r}; give some of {', '.join(INGREDIENTS)}, "
                f"as in {PLANTED}:nodes=5000,edges=50000"
            )
        kind, meaning = INGREDIENTS[name]
        try:
            given[name] = kind(value)
        except ValueError:
            raise InputError(
                f"{PLANTED}:{recipe}: {name} is {value!r}; give a number: {meaning}"
            ) from None
        if not 0 <= given[name] < math.inf:
            raise InputError(f"{PLANTED}:{recipe}: {name} is {value}; give at least 0")
    return given
