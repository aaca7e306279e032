"""The datasets known by name."""

import difflib
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from vepm.data.build import ReadOptions, build
from vepm.data.bundled import digits, digits_graphs, karate_club
from vepm.data.dataset import Dataset
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
from vepm.data.recipe import RECIPES, draw
from vepm.data.tu import Features, load_tu, tu_files
from vepm.errors import InputError
from vepm.tasks import TaskName


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
    description: str
    load: Callable[[Path], Dataset]
    files: RawFiles | None = None


def _planetoid(name: str, description: str) -> _Entry:
    files = planetoid_files(name)
    return _Entry("node", "Planetoid", description, partial(load_planetoid, name), files)


def _tu(name: str, features: Features, description: str) -> _Entry:
    return _Entry(
        "graph",
        "TU collection",
        description,
        lambda root: load_tu(name, root, features),
        tu_files(name, features),
    )


def _npz(
    path: str, description: str, name: str = "", weights: bool = True, directed: bool = False
) -> _Entry:
    """A graph in an archive, by default named as the file."""
    folder, _, file = path.rpartition("/")
    files = RawFiles(folder, (f"{file}.npz",), (), inside="")

    def read(root: Path) -> Dataset:
        options = ReadOptions(weights=weights, directed=directed)
        parts = read_npz(files.ensure(root) / files.names[0], options)
        # Arrays that a published file has beside the graph are no news to its users.
        return build(replace(parts, name=name or file, unused=()), options)

    return _Entry("node", folder.partition("/")[0], description, read, files)


def _geom_gcn(name: str, folder: str, original: str, description: str) -> _Entry:
    files = geom_gcn_files(folder, original)
    return _Entry("node", "Geom-GCN", description, partial(load_geom_gcn, name, files), files)


_ENTRIES: dict[str, _Entry] = {
    "digits": _Entry(
        "node",
        "scikit-learn",
        "1,797 handwritten digits, 10 nearest neighbours",
        lambda _: digits(),
    ),
    "digits-graphs": _Entry(
        "graph", "scikit-learn", "600 handwritten digits as grid graphs", lambda _: digits_graphs()
    ),
    "KarateClub": _Entry("node", "PyG", "34 members of a karate club", lambda _: karate_club()),
    "planted": _Entry(
        "node",
        "generated",
        "1,000 nodes in 8 overlapping communities, drawn from the model; others by "
        "planted:nodes=5000,edges=50000",
        lambda _: draw("planted", ""),
    ),
    "planted-relations": _Entry(
        "node",
        "generated",
        "1,000 nodes joined by 3 hidden kinds of edges, one of which tells the label; others by "
        "planted-relations:nodes=5000,strength=0.6",
        lambda _: draw("planted-relations", ""),
    ),
    "Cora": _planetoid("Cora", "2,708 machine-learning papers in 7 fields"),
    "CiteSeer": _planetoid("CiteSeer", "3,327 computer-science papers in 6 fields"),
    "PubMed": _planetoid("PubMed", "19,717 papers on 3 kinds of diabetes"),
    "WikiCS": _Entry(
        "node",
        "WikiCS",
        "11,701 Wikipedia articles in 10 fields, 20 splits",
        load_wikics,
        WIKICS_FILES,
    ),
    "acm": _npz("relations/acm", "4,019 papers that share an author or a subject, 3 fields"),
    "imdb": _npz("relations/imdb", "4,280 films that share a director, actor or year, 3 genres"),
    "factors-4": _npz("relations/factors-4", "1,000 nodes joined by 4 latent factors"),
    "factors-6": _npz("relations/factors-6", "1,000 nodes joined by 6 latent factors"),
    "amazon-photo": _npz("panel/amazon-photo", "7,650 cameras and accessories in 8 categories"),
    "citeseer-full": _npz("panel/citeseer-full", "4,230 papers in 6 fields"),
    "dblp-full": _npz("panel/dblp-full", "17,716 computer-science papers in 4 fields"),
    "facebook-pages": _npz("panel/facebook-pages", "22,470 Facebook pages in 4 categories"),
    "reed98-year": _npz("panel/reed98-year", "962 students of Reed College in 6 years"),
    "tolokers": _npz("panel/tolokers", "11,758 crowd workers, banned or not, 10 splits"),
    "uat": _npz("panel/uat", "1,190 American airports in 4 levels of activity"),
    "ukfaculty": _npz("panel/ukfaculty", "81 members of a faculty in 4 groups"),
    "ukfaculty-weighted": _npz(
        "weighted/ukfaculty", "81 members of a faculty, edges with weights", "ukfaculty-weighted"
    ),
    "ukfaculty-directed": _npz(
        "weighted/ukfaculty",
        "81 members of a faculty, directed edges with weights",
        "ukfaculty-directed",
        directed=True,
    ),
    "highschool2013": _npz(
        "weighted/highschool2013", "327 pupils in 9 classes, edges weighted by contacts"
    ),
    "highschool2013-unweighted": _npz(
        "weighted/highschool2013",
        "327 pupils in 9 classes, contacts not counted",
        "highschool2013-unweighted",
        weights=False,
    ),
    "cornell": _geom_gcn("cornell", "WebKB/cornell", "cornell", "183 web pages of 5 kinds"),
    "texas": _geom_gcn("texas", "WebKB/texas", "texas", "183 web pages of 5 kinds"),
    "wisconsin": _geom_gcn("wisconsin", "WebKB/wisconsin", "wisconsin", "251 web pages of 5 kinds"),
    "Actor": _geom_gcn("Actor", "Actor", "film", "7,600 actors in 5 categories, 10 splits"),
    "chameleon_filtered": _npz(
        "heterophilous-filtered/chameleon_filtered", "890 Wikipedia pages in 5 levels of traffic"
    ),
    "squirrel_filtered": _npz(
        "heterophilous-filtered/squirrel_filtered", "2,223 Wikipedia pages in 5 levels of traffic"
    ),
    "minesweeper": _npz(
        "HeterophilousGraphDataset/minesweeper/raw/minesweeper",
        "10,000 cells of a grid, mined or not",
    ),
    "EmailEUCore": _Entry(
        "node", "SNAP", "1,005 members of 42 departments", load_email, EMAIL_FILES
    ),
    "fb_0": _npz("NOCD-facebook_ego/fb_0", "347 friends in 24 overlapping circles"),
    "fb_107": _npz("NOCD-facebook_ego/fb_107", "1,045 friends in 9 overlapping circles"),
    "fb_348": _npz("NOCD-facebook_ego/fb_348", "227 friends in 14 overlapping circles"),
    "fb_414": _npz("NOCD-facebook_ego/fb_414", "159 friends in 7 overlapping circles"),
    "fb_686": _npz("NOCD-facebook_ego/fb_686", "170 friends in 14 overlapping circles"),
    "MUTAG": _tu("MUTAG", "labels", "188 compounds, mutagenic or not"),
    "PTC": _tu("PTC", "labels", "344 compounds, carcinogenic or not (the variant GIN used)"),
    "PTC_MR": _tu("PTC_MR", "labels", "344 compounds, carcinogenic to male rats or not"),
    "NCI1": _tu("NCI1", "labels", "4,110 compounds, active against lung cancer or not"),
    "PROTEINS": _tu("PROTEINS", "labels", "1,113 proteins, enzymes or not"),
    "IMDB-BINARY": _tu("IMDB-BINARY", "degrees", "1,000 actors' networks in 2 genres"),
    "IMDB-MULTI": _tu("IMDB-MULTI", "degrees", "1,500 actors' networks in 3 genres"),
    "REDDIT-BINARY": _tu("REDDIT-BINARY", "constant", "2,000 discussions of 2 kinds"),
    "REDDIT-MULTI-5K": _tu("REDDIT-MULTI-5K", "constant", "4,999 discussions in 5 forums"),
}

_ALIASES = {
    "IMDB-B": "IMDB-BINARY",
    "IMDB-M": "IMDB-MULTI",
    "RDT-B": "REDDIT-BINARY",
    "RDT-M": "REDDIT-MULTI-5K",
}

_BY_LOWER_NAME = {name.lower(): name for name in _ENTRIES} | {
    alias.lower(): name for alias, name in _ALIASES.items()
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
        for name, entry in _ENTRIES.items()
    ]


def is_recipe(name: str) -> bool:
    """Whether a name says how to generate a graph."""
    generator, colon, _ = name.partition(":")
    return bool(colon) and generator.lower() in RECIPES


def _entry(name: str) -> _Entry:
    if is_recipe(name):
        generator, _, recipe = name.partition(":")
        generator = generator.lower()
        return replace(_ENTRIES[generator], load=lambda _: draw(generator, recipe))
    return _ENTRIES[_resolve(name)]


def _resolve(name: str) -> str:
    found = _BY_LOWER_NAME.get(str(name).lower())
    if found is not None:
        return found
    close = difflib.get_close_matches(str(name).lower(), _BY_LOWER_NAME, n=1)
    hint = f"did you mean '{_BY_LOWER_NAME[close[0]]}'? " if close else ""
    raise InputError(f"unknown dataset '{name}'; {hint}`vepm datasets` lists those known")
