"""What is fuzzed: small valid files, ways to damage them, and the code that reads them."""

import functools
import io
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import networkx as nx
import numpy as np

from cli.writing import write_graphs, write_nodes
from paper.toys import NODES
from tools.search_log import open_log, standings
from tools.soak.mutations import (
    Mutation,
    damage_bytes,
    damage_description,
    damage_json,
    in_npz,
    in_tensors,
    rescale,
    rescale_text,
    reshape,
    retype,
)
from tools.sweep import Sweep
from training.toys import SMALL, run, started, toy
from vepm.cli.folders import only_writer
from vepm.cli.jobs import check_model, settings
from vepm.cli.options import Given
from vepm.data import read
from vepm.errors import InputError
from vepm.evaluation import RunResult
from vepm.files import refuse_special, write_bytes
from vepm.paper.cells import Finding, _checksum, write_cell
from vepm.paper.experiments import Experiment, read_experiment
from vepm.paper.plan import Square, squares
from vepm.paper.results import gather
from vepm.paper.runner import Ended
from vepm.report import payload, summary
from vepm.report.communities import community_rows
from vepm.report.page import plan_drawings
from vepm.report.paper_tables import markdown
from vepm.report.payload import build_payload, layout, take_excerpt
from vepm.report.reading import read_run
from vepm.runs import write_run
from vepm.scale.batches import single_graph
from vepm.search.space import SPACES, read_space
from vepm.training import ModelCard, load_model, probabilities
from vepm.training.saving import load_state, save_model, save_state

Reader = Callable[[Path], object]


@dataclass(frozen=True)
class Target:
    """Files by name, which of them are damaged and how, and what reads their folder."""

    files: Mapping[str, bytes]
    damaged: tuple[str, ...]
    ways: tuple[Mutation, ...]
    read: Reader

    def damage(self, draw: Random) -> tuple[str, bytes]:
        """One of the files, damaged."""
        name = draw.choice(self.damaged)
        return name, draw.choice(self.ways)(self.files[name], draw)

    def lay_out(self, folder: Path) -> None:
        """Write the files, undamaged."""
        for name, content in self.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)

    @contextmanager
    def damaged_in(self, folder: Path, draw: Random) -> Iterator[None]:
        """One of the files of the folder, damaged for a while."""
        name, content = self.damage(draw)
        (folder / name).write_bytes(content)
        yield
        (folder / name).write_bytes(self.files[name])
        extra = {path.name for path in folder.iterdir()} - {Path(n).parts[0] for n in self.files}
        assert not extra, f"left behind {sorted(extra)}"


SPECIAL = (
    *("link to a file", "link to a folder", "link to nothing", "link to itself"),
    *("link to a device", "pipe", "folder"),
)


@dataclass(frozen=True)
class Links:
    """Folders of several targets, in which links, pipes and folders take the place of files."""

    targets: Mapping[str, Target]
    chosen: list[Target] = field(default_factory=list)

    def lay_out(self, folder: Path) -> None:
        """Make what links lead to."""
        (folder / "outside" / "folder").mkdir(parents=True)
        (folder / "outside" / "file").write_bytes(b"outside")

    @contextmanager
    def damaged_in(self, folder: Path, draw: Random) -> Iterator[None]:
        """The folder of some target with something else in the place of one or two files."""
        target, inside = draw.choice(list(self.targets.values())), folder / "inside"
        target.lay_out(inside)
        for name in draw.sample(sorted(target.files), min(len(target.files), draw.randint(1, 2))):
            (inside / name).unlink()
            put_special(inside / name, draw.choice(SPECIAL), folder / "outside")
        self.chosen[:] = [target]
        yield
        shutil.rmtree(inside)
        assert (folder / "outside" / "file").read_bytes() == b"outside"
        assert not list((folder / "outside" / "folder").iterdir())

    def read(self, folder: Path) -> None:
        """Read the folder of the target; a run is also written to."""
        inside = folder / "inside"
        if "metrics.json" in self.chosen[0].files:
            with only_writer(inside):
                refuse_special(inside / "figures")
                for name in self.chosen[0].files:
                    write_bytes(inside / name, b"ours")
        else:
            self.chosen[0].read(inside)


def put_special(path: Path, kind: str, outside: Path) -> None:
    """Make a folder, a pipe or a link."""
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "link to a device":
        path.symlink_to("/dev/zero")
    else:
        path.symlink_to(path if kind == "link to itself" else outside / kind.split()[-1])


FINGERPRINT = {"seed": 0, "config": SMALL["node"].to_dict()}


@functools.cache
def targets(kind: str = "bytes") -> dict[str, Target | Links]:
    """What is fuzzed in one of the :data:`KINDS`, by name."""
    return dict(_KINDS[kind]())


def _by_bytes() -> dict[str, Target]:
    return {**_texts((damage_bytes,)), **_binaries((damage_bytes,), (damage_bytes,))}


def _by_dtype() -> dict[str, Target]:
    return _binaries((in_npz(retype),), (in_tensors(retype),))


def _by_shape() -> dict[str, Target]:
    return _binaries((in_npz(reshape),), (in_tensors(reshape),))


def _by_scale() -> dict[str, Target]:
    return {**_texts((rescale_text,)), **_binaries((in_npz(rescale),), (in_tensors(rescale),))}


def _by_link() -> dict[str, Links]:
    return {"folders": Links(_by_bytes())}


def _by_run() -> dict[str, Target]:
    return {
        "run": _run_folder((_damage_run_file,), _show),
        "model": _model_target(_FORGED),
        "cell of an experiment": _cell_target((_forge_cell,)),
    }


_KINDS: dict[str, Callable[[], Mapping[str, Target | Links]]] = {
    "bytes": _by_bytes,
    "dtype": _by_dtype,
    "shape": _by_shape,
    "scale": _by_scale,
    "link": _by_link,
    "run": _by_run,
}
KINDS = tuple(_KINDS)
"""Ways to fuzz: bytes of any file; types, shapes and scales of arrays and numbers; links, pipes and
folders in the place of files; run folders and models whose parts are at odds."""


def _texts(ways: tuple[Mutation, ...]) -> dict[str, Target]:
    tables = ("graphs.csv", "nodes.csv", "edges.csv")
    return {
        "csv of nodes": Target(_csv(write_nodes), tables[1:], ways, _read_and_scale),
        "csv of graphs": Target(_csv(write_graphs), tables, ways, _read_and_scale),
        "graphml": _single("graph.graphml", _networkx(nx.generate_graphml), ways, read),
        "edge list": _single("graph.edgelist", b"# ids\na b\nb c 0.5\nc,a\n" * 4, ways, read),
        "settings": _single("settings.toml", SMALL["node"].to_toml().encode(), ways, _settings),
        "search space": _single(
            "space.toml", _space(), ways, lambda path: read_space(path, SMALL["node"])
        ),
        "sweep": _single("sweep.toml", SWEEP, ways, Sweep.read),
        "log of a sweep": _single("sweep.jsonl", _log(), ways, _continue_sweep),
        "experiment": _single("table-1.toml", NODES.encode(), ways, _experiment),
        "cell of an experiment": _cell_target(ways),
    }


def _binaries(arrays: tuple[Mutation, ...], tensors: tuple[Mutation, ...]) -> dict[str, Target]:
    return {
        "npz": _single("graph.npz", _npz(), arrays, _read_and_scale),
        "model": _model_target(tensors),
        "checkpoint": _single("checkpoint.safetensors", _checkpoint(), tensors, _resume),
        "outputs of a run": _run_folder(tensors, _show, ("outputs.safetensors",)),
    }


def _model_target(ways: tuple[Mutation, ...]) -> Target:
    return _single("model.safetensors", _model(), ways, _predict)


def _single(name: str, content: bytes, ways: tuple[Mutation, ...], reader: Reader) -> Target:
    return Target({name: content}, (name,), ways, lambda folder: reader(folder / name))


def _csv(write: Callable[[Path], Path]) -> dict[str, bytes]:
    with TemporaryDirectory() as name:
        return {path.name: path.read_bytes() for path in write(Path(name)).iterdir()}


def _networkx(write: Callable[[Any], Iterable[str]]) -> bytes:
    graph = nx.karate_club_graph()
    for node in graph:
        graph.nodes[node].update(y=graph.nodes[node].pop("club"), f0=node / 3, split="train")
    for _, _, values in graph.edges(data=True):
        values["kind"] = "friend|work"
    return "\n".join(write(graph)).encode()


def _npz() -> bytes:
    graph = nx.to_scipy_sparse_array(nx.path_graph(24), format="csr")
    stored = io.BytesIO()
    np.savez(
        stored,
        adj_data=graph.data,
        adj_indices=graph.indices,
        adj_indptr=graph.indptr,
        adj_shape=graph.shape,
        attr_matrix=np.eye(24),
        labels=np.arange(24) % 3,
        edge_kind=np.ones(graph.nnz, dtype=np.uint8),
        train_masks=np.ones((2, 24), dtype=bool),
    )
    return stored.getvalue()


def _space() -> bytes:
    return (SPACES / "node.toml").read_bytes()


SWEEP = b"""
datasets = ["planted"]
settings = 3
seeds = [7, 8]
keep = [0.5, 1.0]
[base]
epochs = 3
[space]
dropout = { low = 0.1, high = 0.6 }
learning_rate = { low = 1e-3, high = 1e-1, log = true }
bank_layers = [1, 2]
"""


@functools.cache
def _sweep() -> Sweep:
    with TemporaryDirectory() as name:
        path = Path(name) / "sweep.toml"
        path.write_bytes(SWEEP)
        return Sweep.read(path)


def _log() -> bytes:
    def write(path: Path) -> None:
        log = open_log(path, asdict(_sweep()), _sweep().rule)
        found = {"val_accuracy": 0.5, "val_loss": 1.0, "best_epoch": 3, "seconds": 1.0}
        log.add([run | found for run in _sweep().left([])[:6]])

    return _written("sweep.jsonl", write)


def _read_space(path: Path) -> None:
    read_space(path, SMALL["node"])


def _continue_sweep(path: Path) -> None:
    log = open_log(path, asdict(_sweep()), _sweep().rule)
    standings(log.rows)
    _sweep().left(log.rows)


def _read_and_scale(path: Path) -> None:
    dataset = read(path)
    ModelCard.of(dataset, SMALL[dataset.task].replace(feature_norm="standard")).prepare(dataset)


def _settings(path: Path) -> None:
    check_model(toy("node"), settings(toy("node"), Given(preset="tuned", config=path)), "cpu")


def _experiment(path: Path) -> None:
    squares(read_experiment(path))


@functools.cache
def _plan() -> tuple[Experiment, list[Square]]:
    with TemporaryDirectory() as name:
        path = Path(name) / "table-1.toml"
        path.write_text(NODES)
        experiment = read_experiment(path)
    return experiment, squares(experiment)[:1]


def _cell_target(ways: tuple[Mutation, ...]) -> Target:
    cell = _plan()[1][0].cells[0]
    curve = {name: [0.5, 0.7, 0.6] for name in ("val_accuracy", "val_loss", "test_accuracy")}
    result = RunResult.from_curve("gcn", "planted", "public", 0, curve, 1.0, {"epochs": 3})

    def write(path: Path) -> None:
        write_cell(path.parent, cell, Finding({"nodes": 3.0}, result=result), 1.0)
        (path.parent / cell.path).rename(path)

    return Target(
        {str(cell.path): _written("cell.json", write)}, (str(cell.path),), ways, _tabulate
    )


def _tabulate(folder: Path) -> None:
    experiment, plan = _plan()
    results = gather(experiment, plan, folder, Ended(), quick=False)
    markdown(results)
    if not results.values[0].seeds:
        raise InputError("the cell is not finished, and is run again")


def _forge_cell(content: bytes, draw: Random) -> bytes:
    body = json.loads(content)
    body.pop("checksum")
    for _ in range(draw.randint(1, 2)):
        body = damage_json(body, draw)
    sums = {"checksum": _checksum(body)} if isinstance(body, dict) else {}
    return json.dumps(body | sums if sums else body).encode()


def _model() -> bytes:
    fitted = run("node")
    return _written("model.safetensors", lambda path: save_model(path, fitted.model, fitted.card))


def _predict(path: Path) -> None:
    model, _ = load_model(path)
    source = single_graph(toy("node").graphs[0])
    if not probabilities(model, source).isfinite().all():
        raise AssertionError("a prediction is not finite")


def _checkpoint() -> bytes:
    state, _ = started(run("node").model, SMALL["node"])
    state.courses[0].history = [{"phase": "pretrain", "epoch": 0, "loss": 0.5}]
    return _written("state.safetensors", lambda path: save_state(path, state, FINGERPRINT))


def _resume(path: Path) -> None:
    card = ModelCard("node", toy("node").num_features, SMALL["node"], toy("node").class_names)
    load_state(path, started(card.build(), SMALL["node"])[0], FINGERPRINT)


RUN_FILES = ("metrics.json", "names.json", "history.csv", "config.toml", "outputs.safetensors")


def _run_folder(
    ways: tuple[Mutation, ...], reader: Reader, damaged: tuple[str, ...] = RUN_FILES
) -> Target:
    return Target(_run_files(), damaged, ways, reader)


@functools.cache
def _run_files() -> dict[str, bytes]:
    with TemporaryDirectory() as name:
        folder = Path(name)
        rows = {part: toy("node").graphs[0][f"{part}_mask"] for part in ("train", "val", "test")}
        parts = {part: mask.nonzero().flatten() for part, mask in rows.items()}
        baselines = {"gcn": {"test_accuracy": 0.5}}
        write_run(folder, toy("node"), run("node"), parts, {"baselines": baselines})
        return {path.name: path.read_bytes() for path in folder.iterdir()}


_PLACES: dict[tuple[bytes, int], Any] = {}


def _layout_once(edges: Any, count: int) -> Any:
    """The layout of a graph, which takes longer than all else and is the same for most runs."""
    key = edges.tobytes(), count
    if key not in _PLACES:
        _PLACES[key] = layout(edges, count)
    return _PLACES[key]


@mock.patch.object(payload, "layout", _layout_once)
def _show(folder: Path) -> None:
    """All that a page says of a run, without drawing it."""
    found = read_run(folder)
    list(plan_drawings(found))
    summary.size_line(found)
    summary.headline(found)
    summary.conclusion(found)
    summary.part_verdict(found, summary.part_rows(found))
    community_rows(found)
    summary.settings_groups(found)
    json.dumps(build_payload(found, take_excerpt(found)), allow_nan=False)


def _damage_run_file(content: bytes, draw: Random) -> bytes:
    if content[8:9] == b"{":
        return draw.choice(_FORGED)(content, draw)
    if content[:1] == b"{" and draw.random() < 0.7:
        return json.dumps(damage_json(json.loads(content), draw)).encode()
    return draw.choice((damage_bytes, rescale_text))(content, draw)


_FORGED = (damage_description, *map(in_tensors, (retype, reshape, rescale)))


def _written(name: str, write: Callable[[Path], object]) -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder) / name
        write(path)
        return path.read_bytes()
