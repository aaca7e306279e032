"""Generated graphs of any size by name: ``planted:nodes=5000,edges=50000``."""

from collections.abc import Callable
from typing import Any

from vepm.data.dataset import Dataset
from vepm.data.planted import planted_graph, planted_relations
from vepm.errors import InputError

Ingredients = dict[str, tuple[Callable[[str], Any], str]]

_COMMON: Ingredients = {
    "nodes": (int, "number of nodes (1000)"),
    "edges": (int, "about how many edges (5 a node; 5 a node in each relation)"),
    "communities": (int, "number of communities, which are the classes (8)"),
    "features": (int, "number of feature columns (32)"),
    "labels": (int, "training labels a class (10, fewer in small graphs)"),
    "seed": (int, "seed of the draw (0)"),
}
RECIPES: dict[str, tuple[Callable[..., Dataset], Ingredients]] = {
    "planted": (
        planted_graph,
        _COMMON | {"overlap": (float, "share of a node outside its main community (0.1)")},
    ),
    "planted-relations": (
        planted_relations,
        _COMMON
        | {
            "relations": (int, "number of hidden kinds of edges (3)"),
            "strength": (float, "share of a relation's edges inside its communities (0.8)"),
        },
    ),
}
"""Generators by name, and what can be set of each: its type and meaning."""
_RENAMED = {
    "communities": "num_communities",
    "features": "num_features",
    "labels": "labels_per_class",
    "relations": "num_relations",
}


def draw(name: str, recipe: str) -> Dataset:
    """A generated graph from a recipe such as ``nodes=5000,edges=50000,seed=1``.

    Args:
        name: the generator, one of ``RECIPES``.
        recipe: what to set, separated by commas; may be empty.

    Example:
        >>> from vepm.data.recipe import draw
        >>> draw("planted", "nodes=200,edges=800").graphs[0].num_nodes
        200
    """
    generator, ingredients = RECIPES[name]
    given: dict[str, Any] = {"seed": 0} | _parse(f"{name}:{recipe}", recipe, ingredients)
    nodes = given.pop("nodes", 1000)
    relations = given.get("relations", 3 if "relations" in ingredients else 1)
    edges = given.pop("edges", 5 * nodes * relations)
    settings = {_RENAMED.get(key, key): value for key, value in given.items()}
    degree = 2 * edges / max(nodes, 1) / max(relations, 1)
    return generator(nodes, average_degree=degree, **settings)


def _parse(whole: str, recipe: str, ingredients: Ingredients) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for part in filter(None, recipe.split(",")):
        name, _, value = (word.strip() for word in part.partition("="))
        if name not in ingredients:
            raise InputError(
                f"{whole[:80]}: there is no {name[:40]!r}; give some of {', '.join(ingredients)}, "
                "as in planted:nodes=5000,edges=50000"
            )
        kind, meaning = ingredients[name]
        try:
            given[name] = kind(value)
        except ValueError:
            raise InputError(
                f"{whole[:80]}: {name} is {value[:40]!r}; give a number: {meaning}"
            ) from None
        if not 0 <= given[name] < 10**15:
            raise InputError(
                f"{whole[:80]}: {name} is {value[:40]}; give at least 0 and less than 1e15"
            )
    return given
