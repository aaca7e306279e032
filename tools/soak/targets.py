"""What is fuzzed: small valid files, ways to damage them, and the code that reads them."""

import functools
import io
import json
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import networkx as nx
import numpy as np

from cli.writing import write_graphs, write_nodes
from paper.toys import NODES
from tools.soak.mutations import Mutation, damage_arrays, damage_bytes, damage_json, damage_tensors
from training.toys import SMALL, run, started, toy
from vepm.cli.inputs import check_model, settings
from vepm.data import read
from vepm.paper import read_experiment, squares
from vepm.report.run import read_run
from vepm.runs.writing import write_run
from vepm.scale.batches import single_graph
from vepm.search import default_space, read_space
from vepm.training import ModelCard, load_model, probabilities
from vepm.training.checkpoint import load_state, save_state
from vepm.training.model_file import save_model

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


FINGERPRINT = {"seed": 0, "config": SMALL["node"].to_dict()}


@functools.cache
def targets() -> dict[str, Target]:
    """Every format by name."""
    plain = (damage_bytes,)
    return {
        "csv of nodes": Target(_csv(write_nodes), ("nodes.csv", "edges.csv"), plain, read),
        "csv of graphs": Target(
            _csv(write_graphs), ("graphs.csv", "nodes.csv", "edges.csv"), plain, read
        ),
        "graphml": _single("graph.graphml", _networkx(nx.generate_graphml), plain, read),
        "gml": _single("graph.gml", _networkx(nx.generate_gml), plain, read),
        "gexf": _single("graph.gexf", _networkx(nx.generate_gexf), plain, read),
        "edge list": _single("graph.edgelist", b"# ids\na b\nb c 0.5\nc,a\n" * 4, plain, read),
        "npz": _single("graph.npz", _npz(), (damage_bytes, damage_arrays), read),
        "settings": _single("settings.toml", SMALL["node"].to_toml().encode(), plain, _settings),
        "search space": _single("space.toml", _space(), plain, read_space),
        "experiment": _single("table-1.toml", NODES.encode(), plain, _experiment),
        "model": _single("model.safetensors", _model(), (damage_bytes, damage_tensors), _predict),
        "checkpoint": _single(
            "checkpoint.safetensors", _checkpoint(), (damage_bytes, damage_tensors), _resume
        ),
        "run": _run_folder(),
    }


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
    lines = []
    for name, entry in default_space("node").to_dict().items():
        inside = ", ".join(f"{key} = {str(value).lower()}" for key, value in entry.items())
        lines.append(f"{name} = {{{inside}}}")
    text = "\n".join(lines).replace("'", '"')
    tomllib.loads(text)
    return text.encode()


def _settings(path: Path) -> None:
    check_model(toy("node"), settings(toy("node"), "tuned", path, None), "cpu")


def _experiment(path: Path) -> None:
    squares(read_experiment(path))


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


def _run_folder() -> Target:
    with TemporaryDirectory() as name:
        folder = Path(name)
        rows = {part: toy("node").graphs[0][f"{part}_mask"] for part in ("train", "val", "test")}
        parts = {part: mask.nonzero().flatten() for part, mask in rows.items()}
        write_run(folder, toy("node"), run("node"), parts, {"baselines": {}})
        files = {path.name: path.read_bytes() for path in folder.iterdir()}
    names = ("metrics.json", "names.json", "history.csv", "config.toml")
    return Target(files, (*names, "outputs.safetensors"), (_damage_run_file,), read_run)


def _damage_run_file(content: bytes, draw: Random) -> bytes:
    if content[8:9] == b"{" and draw.random() < 0.7:
        return damage_tensors(content, draw)
    if content[:1] == b"{" and draw.random() < 0.7:
        return json.dumps(damage_json(json.loads(content), draw)).encode()
    return damage_bytes(content, draw)


def _written(name: str, write: Callable[[Path], object]) -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder) / name
        write(path)
        return path.read_bytes()
