"""The datasets known by name: benchmarks, bundled sets, and generated graphs by a recipe."""

import difflib
import os
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.neighbors import kneighbors_graph
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.datasets import KarateClub

from vepm.data import benchmarks as known
from vepm.data.build import ReadOptions, build
from vepm.data.dataset import Dataset
from vepm.data.generate import planted_graph, planted_relations
from vepm.data.in_memory import data_parts
from vepm.data.labels import draw_split
from vepm.data.npz import read_npz
from vepm.errors import InputError
from vepm.files import expanded
from vepm.tasks import MASK_NAMES, TaskName

Ingredients = dict[str, tuple[str, type]]
"""What a recipe may set: the argument of the generator and its type."""
_COMMON: Ingredients = {
    **{name: (f"num_{name}", int) for name in ("nodes", "edges", "communities", "features")},
    **{"labels": ("labels_per_class", int), "seed": ("seed", int)},
}
_OF_RELATIONS: Ingredients = {"relations": ("num_relations", int), "strength": ("strength", float)}
RECIPES: dict[str, tuple[Callable[..., Dataset], Ingredients]] = {
    "planted": (planted_graph, _COMMON | {"overlap": ("overlap", float)}),
    "planted-relations": (planted_relations, _COMMON | _OF_RELATIONS),
}
"""Generators by name, and what can be set of each."""


@dataclass(frozen=True)
class DatasetInfo:
    """A line of the list of datasets; ``available`` without a network if it is here already."""

    name: str
    task: TaskName
    source: str
    description: str
    available: bool


_SIDE = 8
_BRIGHTEST = 16.0
_NUM_NEIGHBOURS = 10
_DIGITS_PER_CLASS = 60


def _karate_club(name: str, _: list[Path]) -> Dataset:
    """Zachary's karate club: 34 members, 4 of them labelled for training, the rest for testing."""
    data = KarateClub()[0]
    data.test_mask = ~data.train_mask
    return build(data_parts([data], name, single=True, source="bundled with PyG"))


def _digits(name: str, _: list[Path]) -> Dataset:
    """1,797 images of digits as one graph: each joined to the ten nearest by pixels.

    Twenty images a class train, 300 validate, the rest test.
    """
    images, labels = load_digits(return_X_y=True)
    x, y = images / _BRIGHTEST, torch.from_numpy(labels)
    nearest = kneighbors_graph(x, _NUM_NEIGHBOURS).tocoo()
    edges = torch.from_numpy(np.stack([nearest.row, nearest.col]).astype(np.int64))
    masks = dict(zip(MASK_NAMES, draw_split(y, per_class=20, num_val=300, seed=0), strict=True))
    data = Data(x=torch.from_numpy(x), edge_index=edges, y=y, **masks)
    source = "scikit-learn's digits, 10 nearest neighbours"
    parts = data_parts([data], name, single=True, source=source)
    names = [f"pixel_{row}_{col}" for row in range(_SIDE) for col in range(_SIDE)]
    return build(replace(parts, feature_names=names, one_way=True))


def _digits_graphs(name: str, _: list[Path]) -> Dataset:
    """600 images of digits, 60 a class, each a graph of its inked pixels.

    Pixels with ink are nodes, joined to those of their eight neighbours that have ink; features
    are the ink and the place, row and column from -1 to 1.
    """
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(labels.size)
    by_class = (order[labels[order] == digit][:_DIGITS_PER_CLASS] for digit in range(10))
    chosen = np.sort(np.concatenate(list(by_class)))
    graphs = [
        _grid_graph(torch.from_numpy(images[i]).float().view(_SIDE, _SIDE), int(labels[i]))
        for i in chosen
    ]
    source = "scikit-learn's digits, grids of inked pixels"
    parts = replace(data_parts(graphs, name, single=False), source=source)
    names = [f"digit_{i}" for i in chosen]
    return build(replace(parts, feature_names=("ink", "row", "column"), graph_names=names))


def _grid_graph(image: Tensor, label: int) -> Data:
    place = (image > 0).nonzero()
    # Chebyshev distance 1: the eight neighbours.
    near = (place[:, None] - place[None]).abs().amax(dim=2) == 1
    target, source = near.nonzero(as_tuple=True)
    ink = image[image > 0, None] / _BRIGHTEST
    return Data(
        x=torch.cat([ink, place * (2 / (_SIDE - 1)) - 1], dim=1),
        edge_index=torch.stack([source, target]),
        y=torch.tensor([label]),
    )


def _load_npz(name: str, files: list[Path], **options: Any) -> Dataset:
    how = ReadOptions(**options)
    # Arrays that a published file has beside the graph are no news to its users.
    return build(replace(read_npz(files[0], how), name=name, unused=()), how)


_LOADERS: dict[str, Callable[..., Dataset]] = {
    "digits": _digits,
    "digits-graphs": _digits_graphs,
    "karate-club": _karate_club,
    "generated": lambda name, _: draw(name, ""),
    "planetoid": known.load_planetoid,
    "wikics": known.load_wikics,
    "email": known.load_email,
    "geom-gcn": known.load_geom_gcn,
    "npz": _load_npz,
    **dict.fromkeys(("tu", "tu-labels", "tu-not-served"), known.load_tu),
}
"""By reader; they take the name, the raw files and what else ``datasets.toml`` says of the set."""


class _Entry(NamedTuple):
    task: TaskName
    source: str
    description: str
    alias: str
    raw: known.RawFiles
    load: Callable[[list[Path]], Dataset]


@cache
def _listed() -> dict[str, _Entry]:
    """The datasets of ``datasets.toml`` by name."""
    path = Path(__file__).with_name("datasets.toml")
    listed = tomllib.loads(path.read_text(encoding="utf-8"))
    readers = listed.pop("readers")
    return {name: _entry(name, readers[given["reader"]], **given) for name, given in listed.items()}


def _entry(
    name: str,
    about: dict[str, Any],
    *,
    reader: str,
    description: str,
    alias: str = "",
    file: str = "",
    folder: str = "",
    original: str = "",
    **options: Any,
) -> _Entry:
    """A dataset by what ``datasets.toml`` says of it and ``about`` its reader."""
    parent, _, stem = file.rpartition("/")
    words = {"name": name, "lower": name.lower(), "stem": stem, "original": original}
    files = [file.format(**words) for file in about.get("files", ())]
    url = about.get("url", "").format(**words)
    urls = [url] if url.endswith(".zip") else [f"{url}/{file}" for file in files if url]
    names = tuple(file.rpartition("/")[2] for file in files)
    raw = known.RawFiles(folder or parent or name, names, tuple(urls), about.get("inside", "raw"))
    source = about.get("source") or raw.folder.partition("/")[0]
    load = partial(_LOADERS[reader], name, **options)
    return _Entry(about["task"], source, description, alias or name, raw, load)


def _root(root: str | os.PathLike[str] | None) -> Path:
    """The data folder: the one given, else VEPM_DATA, else a cache in the user's home."""
    named = root if root is not None else os.environ.get("VEPM_DATA")
    return expanded(named) if named else Path.home() / ".cache" / "vepm" / "data"


def load(name: str, root: str | os.PathLike[str] | None = None) -> Dataset:
    """Load a dataset by its name; :func:`datasets` lists them.

    Raw files are read as they are, so the root may be read-only; missing ones are downloaded.

    Args:
        name: the name, in any case; also Citeseer, Pubmed, IMDB-B, IMDB-M, RDT-B, RDT-M, and
            a generated graph of any size by a recipe, ``planted:nodes=5000,edges=50000`` or
            ``planted-relations:relations=4,strength=0.6``.
        root: folder laid out as a PyG root (``Cora/raw/...``); else the environment variable
            VEPM_DATA, else ``~/.cache/vepm/data``. Bundled sets need none.

    Example:
        >>> from vepm.data import load
        >>> load("digits").graphs[0].num_nodes
        1797
    """
    if is_recipe(name):
        generator, _, recipe = name.partition(":")
        return draw(generator.lower(), recipe)
    names = {entry.alias.lower(): each for each, entry in _listed().items()}
    names |= {each.lower(): each for each in _listed()}
    wanted = str(name).lower()
    if wanted not in names:
        close = difflib.get_close_matches(wanted, names, n=1)
        hint = f"did you mean '{names[close[0]]}'? " if close else ""
        raise InputError(f"unknown dataset '{name}'; {hint}`vepm datasets` lists those known")
    entry = _listed()[names[wanted]]
    return entry.load(entry.raw.ensure(_root(root)))


def datasets(root: str | os.PathLike[str] | None = None) -> list[DatasetInfo]:
    """What can be loaded by name, and whether it is there already, under a root as of :func:`load`.

    Example:
        >>> from vepm.data import datasets
        >>> [info.name for info in datasets()][:4]
        ['digits', 'digits-graphs', 'KarateClub', 'planted']
    """
    place = _root(root)
    return [
        DatasetInfo(name, entry.task, entry.source, entry.description, not entry.raw.missing(place))
        for name, entry in _listed().items()
    ]


def is_recipe(name: str) -> bool:
    """Whether a name says how to generate a graph."""
    generator, colon, _ = name.partition(":")
    return bool(colon) and generator.lower() in RECIPES


def draw(name: str, recipe: str) -> Dataset:
    """A generated graph by the name of its generator and a recipe, which may be empty."""
    generator, ingredients = RECIPES[name]
    given: dict[str, Any] = {"num_nodes": 1000, "seed": 0}
    for part in filter(None, recipe.split(",")):
        key, _, value = (word.strip() for word in part.partition("="))
        whole = f"{name}:{recipe}"[:80]
        if key not in ingredients:
            raise InputError(
                f"{whole}: there is no {key[:40]!r}; give some of {', '.join(ingredients)}, as in "
                "planted:nodes=5000,edges=50000"
            )
        argument, kind = ingredients[key]
        try:
            given[argument] = kind(value)
        except ValueError:
            given[argument] = -1
        if not 0 <= given[argument] < 10**15:
            wanted = f"a number ({kind.__name__}), at least 0 and less than 1e15"
            raise InputError(f"{whole}: {key} is {value[:40]!r}; give {wanted}")
    relations = given.get("num_relations", 3 if "relations" in ingredients else 1)
    edges = given.pop("num_edges", 5 * given["num_nodes"] * relations)
    degree = 2 * edges / max(given["num_nodes"], 1) / max(relations, 1)
    return generator(average_degree=degree, **given)
