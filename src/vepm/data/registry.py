"""The datasets known by name, and generated graphs: ``planted:nodes=5000,edges=50000``."""

import difflib
import os
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from vepm.data.build import ReadOptions, build
from vepm.data.bundled import digits, digits_graphs, karate_club
from vepm.data.dataset import Dataset
from vepm.data.generate import planted_graph, planted_relations
from vepm.data.node_sets import (
    EMAIL_FILES,
    WIKICS_FILES,
    geom_gcn_files,
    load_email,
    load_geom_gcn,
    load_planetoid,
    load_wikics,
    planetoid_files,
)
from vepm.data.npz import read_npz
from vepm.data.raw import RawFiles, data_root
from vepm.data.tu import Features, load_tu, tu_files
from vepm.errors import InputError
from vepm.tasks import TaskName

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


@dataclass(frozen=True)
class DatasetInfo:
    """A line of the list of datasets.

    Args:
        name: what :func:`load` takes.
        task: ``"node"`` or ``"graph"``.
        source: who publishes it.
        description: what it is, in a line.
        available: whether it can be loaded now without a network.
    """

    name: str
    task: TaskName
    source: str
    description: str
    available: bool


@dataclass(frozen=True)
class _Entry:
    task: TaskName
    source: str
    load: Callable[[Path], Dataset]
    files: RawFiles | None = None
    description: str = ""


def _planetoid(name: str) -> _Entry:
    return _Entry("node", "Planetoid", partial(load_planetoid, name), planetoid_files(name))


def _tu(name: str, features: Features) -> _Entry:
    load = partial(load_tu, name, features=features)
    return _Entry("graph", "TU collection", load, tu_files(name, features))


def _npz(name: str, file: str, **options: Any) -> _Entry:
    """A graph in an archive."""
    folder, _, stem = file.rpartition("/")
    files = RawFiles(folder, (f"{stem}.npz",), (), inside="")

    def read(root: Path) -> Dataset:
        how = ReadOptions(**options)
        parts = read_npz(files.ensure(root) / files.names[0], how)
        # Arrays that a published file has beside the graph are no news to its users.
        return build(replace(parts, name=name, unused=()), how)

    return _Entry("node", folder.partition("/")[0], read, files)


def _geom_gcn(name: str, folder: str, original: str) -> _Entry:
    files = geom_gcn_files(folder, original)
    return _Entry("node", "Geom-GCN", partial(load_geom_gcn, name, files), files)


_READERS: dict[str, Callable[..., _Entry]] = {
    "digits": lambda _: _Entry("node", "scikit-learn", lambda _: digits()),
    "digits-graphs": lambda _: _Entry("graph", "scikit-learn", lambda _: digits_graphs()),
    "karate-club": lambda _: _Entry("node", "PyG", lambda _: karate_club()),
    "generated": lambda name: _Entry("node", "generated", lambda _: draw(name, "")),
    "planetoid": _planetoid,
    "wikics": lambda _: _Entry("node", "WikiCS", load_wikics, WIKICS_FILES),
    "email": lambda _: _Entry("node", "SNAP", load_email, EMAIL_FILES),
    "geom-gcn": _geom_gcn,
    "npz": _npz,
    "tu": _tu,
}


@cache
def _entries() -> dict[str, _Entry]:
    """The entries of ``datasets.toml`` by name."""
    listed = tomllib.loads(Path(__file__).with_name("datasets.toml").read_text(encoding="utf-8"))
    found = {}
    for name, given in listed.items():
        reader, description = given.pop("reader"), given.pop("description")
        found[name] = replace(_READERS[reader](name, **given), description=description)
    return found


_ALIASES = {
    "IMDB-B": "IMDB-BINARY",
    "IMDB-M": "IMDB-MULTI",
    "RDT-B": "REDDIT-BINARY",
    "RDT-M": "REDDIT-MULTI-5K",
}


def load(name: str, root: str | os.PathLike[str] | None = None) -> Dataset:
    """Load a dataset by its name; :func:`datasets` lists them.

    Raw files are read as they are: nothing is written beside them, so the root may be read-only.
    Missing ones are downloaded if there is a network.

    Args:
        name: the name, in any case; also Citeseer, Pubmed, IMDB-B, IMDB-M, RDT-B, RDT-M, and
            a generated graph of any size by a recipe, ``planted:nodes=5000,edges=50000`` or
            ``planted-relations:relations=4,strength=0.6``.
        root: folder laid out as a PyG root (``Cora/raw/...``); else the environment variable
            VEPM_DATA, else ``~/.cache/vepm/data``. Bundled sets need none.

    Raises:
        InputError: if the name is unknown, or files are missing or not what they should be.

    Example:
        >>> from vepm.data import load
        >>> load("digits").graphs[0].num_nodes
        1797
    """
    return _entry(name).load(data_root(root))


def datasets(root: str | os.PathLike[str] | None = None) -> list[DatasetInfo]:
    """What can be loaded by name, and whether it is there already.

    Args:
        root: as for :func:`load`.

    Example:
        >>> from vepm.data import datasets
        >>> [info.name for info in datasets()][:4]
        ['digits', 'digits-graphs', 'KarateClub', 'planted']
    """
    place = data_root(root)
    return [
        DatasetInfo(
            name=name,
            task=entry.task,
            source=entry.source,
            description=entry.description,
            available=entry.files is None or not entry.files.missing(place),
        )
        for name, entry in _entries().items()
    ]


def is_recipe(name: str) -> bool:
    """Whether a name says how to generate a graph."""
    generator, colon, _ = name.partition(":")
    return bool(colon) and generator.lower() in RECIPES


def _entry(name: str) -> _Entry:
    if is_recipe(name):
        generator, _, recipe = name.partition(":")
        generator = generator.lower()
        return replace(_entries()[generator], load=lambda _: draw(generator, recipe))
    known = {name.lower(): name for name in (*_entries(), *_ALIASES)}
    wanted = str(name).lower()
    if wanted not in known:
        close = difflib.get_close_matches(wanted, known, n=1)
        hint = f"did you mean '{known[close[0]]}'? " if close else ""
        raise InputError(f"unknown dataset '{name}'; {hint}`vepm datasets` lists those known")
    return _entries()[_ALIASES.get(known[wanted], known[wanted])]


def draw(name: str, recipe: str) -> Dataset:
    """A generated graph from a recipe such as ``nodes=5000,edges=50000,seed=1``.

    Args:
        name: the generator, one of ``RECIPES``.
        recipe: what to set, separated by commas; may be empty.

    Example:
        >>> from vepm.data.registry import draw
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
