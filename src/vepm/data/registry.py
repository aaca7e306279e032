"""The datasets known by name: benchmarks, bundled sets, and generated graphs by a recipe."""

import contextlib
import difflib
import io
import os
import tomllib
import urllib.request
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from vepm.data import benchmarks
from vepm.data.dataset import Dataset
from vepm.data.generate import planted_graph, planted_relations
from vepm.errors import InputError
from vepm.files import write_bytes
from vepm.tasks import TaskName

_TIMEOUT_SECONDS = 30
# Several times the largest dataset known here, and little enough for a machine's memory.
_LARGEST = 2**30

_ARGUMENTS = {name: f"num_{name}" for name in ("nodes", "edges", "communities", "features")}
_ARGUMENTS |= {"labels": "labels_per_class", "seed": "seed"}
_OF_RELATIONS = {"relations": "num_relations", "strength": "strength"}
RECIPES: dict[str, tuple[Callable[..., Dataset], dict[str, str]]] = {
    "planted": (planted_graph, _ARGUMENTS | {"overlap": "overlap"}),
    "planted-relations": (planted_relations, _ARGUMENTS | _OF_RELATIONS),
}  # generators by name, and the argument behind each name that a recipe may set
_SHARES = ("overlap", "strength")  # parameters that are not integers

# By reader; they take the name, the raw files and the options in ``datasets.toml``.
_LOADERS: dict[str, Callable[..., Dataset]] = {
    "digits": benchmarks.load_digits_graph,
    "digits-graphs": benchmarks.load_digits_graphs,
    "karate-club": benchmarks.load_karate_club,
    "generated": lambda name, _: draw(name, ""),
    "planetoid": benchmarks.load_planetoid,
    "wikics": benchmarks.load_wikics,
    "email": benchmarks.load_email,
    "geom-gcn": benchmarks.load_geom_gcn,
    "npz": benchmarks.load_npz,
    **dict.fromkeys(("tu", "tu-labels", "tu-not-served"), benchmarks.load_tu),
}


@dataclass(frozen=True)
class DatasetInfo:
    """A line of the list of datasets; ``available`` without a network if it is here already."""

    name: str
    task: TaskName
    source: str
    description: str
    available: bool


@dataclass(frozen=True, kw_only=True)
class _Entry:
    """A dataset as ``datasets.toml`` describes it, with its raw files in a folder of a PyG root."""

    name: str
    task: TaskName
    reader: str
    description: str
    folder: str
    original: str
    source: str = ""
    alias: str = ""
    inside: str = "raw"
    files: Sequence[str] = ()
    url: str = ""  # of a folder that holds the files, or of one .zip
    options: Mapping[str, Any] = field(default_factory=dict)

    def raw(self, root: Path) -> dict[Path, str]:
        """The raw files, and where each is under the url."""
        folder = root / self.folder / self.inside
        files = [file.format(original=self.original) for file in self.files]
        return {folder / file.rpartition("/")[2]: file for file in files}

    def missing(self, root: Path) -> list[Path]:
        """The files that are not there."""
        return [path for path in self.raw(root) if not path.is_file()]

    def load(self, root: Path) -> Dataset:
        """The dataset; missing files are downloaded if possible."""
        files, why = self.raw(root), "cannot be fetched from anywhere"
        url = self.url.format(original=self.original)
        if self.missing(root) and url:
            try:
                archive = url.endswith(".zip")
                for part in [url] if archive else [f"{url}/{file}" for file in files.values()]:
                    for name, content in _fetch(part, {path.name for path in files}).items():
                        write_bytes(next(iter(files)).with_name(name), content)
            except (OSError, zipfile.BadZipFile) as error:
                why = f"cannot be fetched ({error})"
        if missing := self.missing(root):
            names = ", ".join(path.name for path in missing)
            origin = f" (from {url.rpartition('/')[0]})" if url else ""
            raise InputError(
                f"{self.folder}: raw files are missing and {why}; put {names} into "
                f"{missing[0].parent}{origin}, or name another data folder with root= or VEPM_DATA"
            )
        return _LOADERS[self.reader](self.name, list(files), **self.options)


def _fetch(url: str, wanted: set[str]) -> dict[str, bytes]:
    """A file by its name, or the wanted files of an archive, regardless of their folders."""
    # All addresses in datasets.toml are https.
    with urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as reply:  # noqa: S310 # nosec B310
        content: bytes = reply.read(_LARGEST + 1)
    if len(content) > _LARGEST:
        raise InputError(f"{url}: larger than any dataset here; put the files in place by hand")
    if not url.endswith(".zip"):
        return {url.rpartition("/")[2]: content}
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        names = {e.filename.replace("\\", "/").rpartition("/")[2]: e for e in archive.infolist()}
        entries = {name: entry for name, entry in names.items() if name in wanted}
        for name, entry in entries.items():
            if entry.file_size > _LARGEST:
                raise zipfile.BadZipFile(f"{name} claims {entry.file_size} bytes")
        return {name: archive.read(entry) for name, entry in entries.items()}


@cache
def _listed() -> dict[str, _Entry]:
    path = Path(__file__).with_name("datasets.toml")
    listed = tomllib.loads(path.read_text(encoding="utf-8"))
    readers = listed.pop("readers")
    names = {name: {"name": name, "original": name, "folder": name} for name in listed}
    return {n: _Entry(**names[n] | readers[e["reader"]] | e) for n, e in listed.items()}


def expanded(path: str | os.PathLike[str]) -> Path:
    """A path with ``~`` replaced by a home folder."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise InputError(f"{path}: there is no such home folder; write the path out") from None


def _root(root: str | os.PathLike[str] | None) -> Path:
    """The data folder: the one given, else VEPM_DATA, else a cache in the user's home."""
    named = root if root is not None else os.environ.get("VEPM_DATA")
    return expanded(named) if named else Path.home() / ".cache" / "vepm" / "data"


def load(name: str, root: str | os.PathLike[str] | None = None) -> Dataset:
    """Load a dataset by its name; :func:`datasets` lists them.

    Raw files are read as they are, so the root may be read-only; missing ones are downloaded.

    Args:
        name: the name, in any case, or a recipe such as ``planted:nodes=5000,edges=50000`` or
            ``planted-relations:relations=4,strength=0.6`` for a generated graph.
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
    listed, wanted = _listed().values(), str(name).lower()
    entries = {entry.alias.lower(): entry for entry in listed if entry.alias}
    entries |= {entry.name.lower(): entry for entry in listed}
    if wanted not in entries:
        close = difflib.get_close_matches(wanted, entries, n=1)
        hint = f"did you mean '{entries[close[0]].name}'? " if close else ""
        raise InputError(f"unknown dataset '{name}'; {hint}`vepm datasets` lists those known")
    return entries[wanted].load(_root(root))


def datasets(root: str | os.PathLike[str] | None = None) -> list[DatasetInfo]:
    """What can be loaded by name, and whether it is there already, under a root as of :func:`load`.

    Example:
        >>> from vepm.data import datasets
        >>> [info.name for info in datasets()][:4]
        ['digits', 'digits-graphs', 'KarateClub', 'planted']
    """
    found, folder = [], _root(root)
    for entry in _listed().values():
        source, here = entry.source or entry.folder.partition("/")[0], not entry.missing(folder)
        found.append(DatasetInfo(entry.name, entry.task, source, entry.description, here))
    return found


def is_recipe(name: str) -> bool:
    """Whether a name says how to generate a graph."""
    generator, colon, _ = name.partition(":")
    return bool(colon) and generator.lower() in RECIPES


def draw(name: str, recipe: str) -> Dataset:
    """A generated graph by the name of its generator and a recipe, which may be empty."""
    generator, arguments = RECIPES[name]
    given: dict[str, Any] = {"num_nodes": 1000, "seed": 0}
    for part in filter(None, recipe.split(",")):
        key, _, value = (word.strip() for word in part.partition("="))
        kind, number = float if key in _SHARES else int, -1.0
        with contextlib.suppress(ValueError):
            number = kind(value)
        if key not in arguments or not 0 <= number < 10**15:
            wanted = f"give a number ({kind.__name__}), at least 0 and less than 1e15, of"
            known = f"{', '.join(arguments)}, as in planted:nodes=5000,edges=50000"
            raise InputError(f"{name}: there is no {key[:40]}={value[:40]}; {wanted} {known}")
        given[arguments[key]] = number
    relations = given.get("num_relations", 3 if "relations" in arguments else 1)
    edges = given.pop("num_edges", 5 * given["num_nodes"] * relations)
    degree = 2 * edges / max(given["num_nodes"], 1) / max(relations, 1)
    return generator(average_degree=degree, **given)
