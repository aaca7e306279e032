"""Users' own graphs, from the formats they keep them in."""

from collections.abc import Callable, Sequence
from pathlib import Path

from vepm.data.dataset import Dataset
from vepm.data.folders import read_edges, read_folder
from vepm.data.graphml import read_graphml
from vepm.data.npz import read_npz
from vepm.data.positions import with_positions
from vepm.data.scales import note_scales
from vepm.errors import InputError

_READERS: dict[str, Callable[..., Dataset]] = {".graphml": read_graphml, ".npz": read_npz}
_ACCEPTED = "a folder with edges.csv, or a .csv of edges, .graphml or .npz file"


def read(
    path: str | Path, *, class_names: Sequence[str] | None = None, strict: bool = False
) -> Dataset:
    """Read a graph, or a set of graphs, from files.

    - A folder: ``edges.csv`` has columns ``source`` and ``target`` (others are ignored), each edge
      in one direction or both. ``nodes.csv`` has ``id``, perhaps ``label`` and ``split``
      (train/val/test), and every other column is a numeric feature; without it the nodes are those
      of the edges. With ``graphs.csv`` (``id``, ``label``, perhaps ``split``) it is a graph task,
      and ``nodes.csv`` has a ``graph`` column. Node ids are text, unique over the whole folder.
    - A ``.csv`` file: edges alone.
    - ``.graphml``: node attribute ``label``, perhaps ``split``; numeric attributes are features.
    - ``.npz``: ``adj_data``, ``adj_indices``, ``adj_indptr``, ``adj_shape``; features ``attr_*``
      or ``attr_matrix``; ``labels``.

    An empty label or -1 means unlabelled. Labels that are all numbers must be integers; others are
    names. Without features a node has a constant and log(1 + degree), and, where nodes are
    labelled, 16 spectral coordinates.

    Args:
        path: the folder or file.
        class_names: the classes of a fitted model, so that indices agree with it; found from the
            labels if not given.
        strict: refuse self-loops and duplicate edges instead of mending them.

    Raises:
        InputError: naming the file, row and column at fault and how to mend it.

    Example:
        >>> from vepm.data import read
        >>> dataset = read("my_graph")  # doctest: +SKIP
    """
    path = Path(path).expanduser()
    if not path.exists():
        raise InputError(f"{path}: no such file or folder; give {_ACCEPTED}")
    dataset = _read(path, class_names, strict)
    if class_names is None:
        note_scales(dataset)
    return with_positions(dataset)


def _read(path: Path, class_names: Sequence[str] | None, strict: bool) -> Dataset:
    if path.is_dir():
        return read_folder(path, class_names=class_names, strict=strict)
    suffix = path.suffix.lower()
    if suffix == ".csv":
        return read_edges(path, name=path.stem, strict=strict)
    if suffix not in _READERS:
        raise InputError(f"{path}: cannot read '{path.suffix}' files; give {_ACCEPTED}")
    return _READERS[suffix](path, class_names=class_names, strict=strict)
