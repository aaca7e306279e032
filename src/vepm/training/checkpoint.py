"""Interrupted runs on disk, to be resumed exactly."""

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vepm.errors import InputError
from vepm.scale.batches import GraphStore
from vepm.scale.executor import OneRun
from vepm.scale.large import LargeGraph
from vepm.training.card import ModelCard
from vepm.training.config import Config
from vepm.training.model_file import open_tensors, read_tensors, write_tensors
from vepm.training.state import PHASES, Course, TrainingState

# Whether the last epoch improved is asked at its end alone. JSON has lists for tuples.
STATE_FIELDS = {
    name: list if isinstance(start, tuple) else type(start)
    for name, start in vars(Course()).items()
    if name != "improved"
}
OPTIMIZERS = ("predictor", "encoder")
MOMENTS = {"step", "exp_avg", "exp_avg_sq"}
UNTIED = ("directed", "feature_names", "added_positions")
"""Entries of a card that a run may be resumed with whatever they are."""


def fingerprint_of(card: ModelCard, executor: OneRun) -> dict[str, Any]:
    """What must be the same to resume a run: settings, seed, data and number of processes."""
    digest = hashlib.blake2b(digest_size=16)
    source, run, group = executor.source, executor.runs[0], executor.group
    if isinstance(source, LargeGraph):
        sizes, edges = source.degree, [source.columns]
    elif isinstance(source, GraphStore):
        sizes, edges = source.nodes, [source.edge_index, source.weight]
    else:
        own = source.edges
        sizes, edges = source.y[:0], [own.edge_index, own.weight, own.arcs]
    x = source.x
    if not isinstance(x, Tensor):
        features: tuple[Tensor, ...] = (x.row_pointer, x.columns, x.values)
    else:
        features = (x.indices(), x.values()) if x.layout == torch.sparse_coo else (x,)
    given = [tensor for tensor in edges if tensor is not None]
    for tensor in (*features, sizes, *given, source.y, run.train_on, run.validate_on):
        # Shapes too: the same bytes can be split in several ways.
        digest.update(repr(tuple(tensor.shape)).encode())
        digest.update(tensor.cpu().contiguous().numpy())
    # The data tell these apart, and checkpoints of earlier versions have none.
    described = {k: v for k, v in card.description().items() if k not in UNTIED}
    if run.class_weights is not None:
        described["class_weights"] = run.class_weights.tolist()
    if not group.alone:
        described["processes"] = group.size
    return described | {"data": digest.hexdigest()}


def save_state(path: Path, state: TrainingState, fingerprint: Mapping[str, Any]) -> None:
    """Write everything needed to resume a run whose :func:`fingerprint_of` is given."""
    run = state.executor
    assert isinstance(run, OneRun)
    tensors = {f"model.{k}": v for k, v in run.model.state_dict().items()}
    tensors |= {f"best.{k}": v for k, v in (run.best_weights or {}).items()}
    for name in OPTIMIZERS:
        optimizer = getattr(state, f"{name}_optimizer")
        for index, moments in optimizer.state_dict()["state"].items():
            tensors |= {f"{name}.{index}.{key}": value for key, value in moments.items()}
    if run.clusters is not None:
        tensors["totals.table"] = run.clusters.totals.table
    description = {name: getattr(state.courses[0], name) for name in STATE_FIELDS}
    write_tensors(path, "training state", tensors, description | {"fingerprint": fingerprint})


def load_state(path: Path, state: TrainingState, fingerprint: Mapping[str, Any]) -> None:
    """Bring a fresh state to where :func:`save_state` left off."""
    with open_tensors(path, "training state", state.executor.device) as (file, description):
        _check_same_run(path, description.get("fingerprint"), fingerprint)
        tensors = read_tensors(path, file)
    parts: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        part, _, key = name.partition(".")
        parts.setdefault(part, {})[key] = tensor
    try:
        _restore(state, description, parts)
    except (KeyError, IndexError, TypeError, ValueError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"{path}: not a usable training state ({reason})") from None


def _check_same_run(path: Path, saved: Any, fingerprint: Mapping[str, Any]) -> None:
    """Refuse a state of other settings, by present or earlier names, seed, data or processes."""
    try:
        known = saved | {"config": Config.from_dict(saved["config"]).to_dict()}
    except (InputError, KeyError, TypeError):
        known = {}
    # What each process draws depends on how many there are.
    started, now = known.get("processes", 1), fingerprint.get("processes", 1)
    if started != now:
        raise InputError(
            f"{path}: this run was started by {started} processes and now there are {now}, which "
            f"would give another result; resume it with {started}, or use another folder"
        )
    if known != json.loads(json.dumps(fingerprint)):
        raise InputError(
            f"{path}: this run was started with other settings, seed or data; "
            "give the same ones to resume, or another folder to start anew"
        )


def _restore(
    state: TrainingState, description: dict[str, Any], parts: dict[str, dict[str, Tensor]]
) -> None:
    run, course = state.executor, state.courses[0]
    assert isinstance(run, OneRun)
    for name, kind in STATE_FIELDS.items():
        if type(description[name]) is not kind:
            raise ValueError(f"{name} is {description[name]!r}")
        setattr(course, name, description[name])
    if course.phase not in PHASES:
        raise ValueError(f"unknown phase {course.phase!r}")
    accuracy, minus_loss = description["best_score"]
    course.best_score = (accuracy, minus_loss)
    run.best_weights = parts.get("best")
    if (run.best_weights is None) != math.isinf(accuracy):
        raise ValueError("weights of the best epoch are missing")
    # The present weights last, so that they are the ones in place.
    for weights in (run.best_weights or {}, parts["model"]):
        if any(tensor.is_complex() for tensor in weights.values()):
            raise ValueError("weights are complex numbers")
        if weights:
            run.model.load_state_dict(weights)
    for name in OPTIMIZERS:
        optimizer, moments = getattr(state, f"{name}_optimizer"), dict[int, dict[str, Tensor]]()
        for key, tensor in parts.get(name, {}).items():
            index, _, moment = key.partition(".")
            moments.setdefault(int(index), {})[moment] = tensor
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        for number, found in moments.items():
            shapes = {found[key].shape for key in MOMENTS - {"step"}}
            real = all(tensor.is_floating_point() for tensor in found.values())
            if found.keys() != MOMENTS or shapes != {parameters[number].shape} or not real:
                raise ValueError(f"moments of parameter {number} do not fit")
        groups = optimizer.state_dict()["param_groups"]
        optimizer.load_state_dict({"state": moments, "param_groups": groups})
    if run.clusters is not None:
        run.clusters.totals.table.copy_(parts["totals"]["table"])
