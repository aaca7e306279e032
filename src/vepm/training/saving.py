"""Models and interrupted runs on disk: safetensors with a JSON description, never a pickle."""

import hashlib
import json
import math
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from vepm.errors import InputError
from vepm.files import parse_json, write_bytes
from vepm.nn import VEPM
from vepm.scale.batches import GraphStore
from vepm.scale.executor import OneRun
from vepm.scale.large import LargeGraph
from vepm.training.card import TENSORS, ModelCard
from vepm.training.config import Config
from vepm.training.loop import PHASES, Course, TrainingState

FORMAT = 1
LARGEST_WEIGHT = 1e30  # more than a trained model holds, and near the end of single precision
# JSON has lists for tuples.
COURSE = {n: list if isinstance(v, tuple) else type(v) for n, v in vars(Course()).items()}
OPTIMIZERS = ("predictor", "encoder")
UNTIED = ("directed", "feature_names", "added_positions")
"""Entries of a card that may change when a run is resumed."""


def save_model(path: Path, model: VEPM, card: ModelCard) -> None:
    """Write a model to one file, unless it cannot predict."""
    require_usable(path, model, card.width)
    tensors = model.state_dict()
    for part in TENSORS:
        if (own := getattr(card, part)) is not None:
            tensors |= {f"{part}.{key}": tensor for key, tensor in own.tensors().items()}
    write_tensors(path, "model", tensors, card.description())


def load_model(path: Path, device: torch.device | str = "cpu") -> tuple[VEPM, ModelCard]:
    """Read a model written by :func:`save_model`; anything else is refused before it is built."""
    tensors, description = read_tensors(path, "model", device)
    besides = [name for name in tensors if name.partition(".")[0] in TENSORS]
    parts = _in_parts({name: tensors.pop(name).cpu() for name in besides})
    try:
        card = ModelCard.read(description, parts)
        # On the meta device a model has shapes but no memory.
        with torch.device("meta"):
            model = card.build()
        _require_fit(tensors, model.state_dict())
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InputError(f"{path}: not a usable model ({error})") from None
    model = model.to_empty(device=device)
    model.load_state_dict(tensors)
    require_usable(path, model, card.width)
    return model.eval(), card


def _in_parts(tensors: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """Tensors by the first part of their names, then by the rest."""
    parts: dict[str, dict[str, Tensor]] = defaultdict(dict)
    for name, tensor in tensors.items():
        part, _, key = name.partition(".")
        parts[part][key] = tensor
    return parts


def _require_fit(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    for odd in sorted(found.keys() ^ wanted.keys()):
        raise ValueError(f"weights do not fit the settings beside them ({odd})")
    for name, tensor in wanted.items():
        given, own = ((list(t.shape), t.dtype) for t in (found[name], tensor))
        if given != own:
            raise ValueError(f"{name} is {given[1]} of shape {given[0]}, the settings say {own}")


@torch.no_grad()
def require_usable(path: Path, model: VEPM, in_channels: int) -> None:
    """Refuse a model whose weights are not finite, or lead to numbers that are not."""
    remedy = "training diverged or the file was tampered with; train with a lower learning rate"
    for name, tensor in model.state_dict().items():
        if not (tensor.abs() <= LARGEST_WEIGHT).all():
            raise InputError(f"{path}: {name} is not finite, or beyond all bounds; {remedy}")
    # Its output for the smallest graph with an edge.
    device, training = model.activation.device, model.training
    found = model.eval()(
        torch.ones(2, in_channels, device=device), torch.tensor([[1, 0], [0, 1]], device=device)
    )
    model.train(training)
    if not all(part.isfinite().all() for part in (found.z, found.edge_weight, found.logits)):
        raise InputError(f"{path}: the model gives no finite numbers; {remedy}")


def fingerprint_of(card: ModelCard, executor: OneRun) -> dict[str, Any]:
    """What must be the same to resume a run: settings, seed, data and number of processes."""
    digest = hashlib.blake2b(digest_size=16)
    source, run, group = executor.source, executor.runs[0], executor.group
    if isinstance(source, LargeGraph):
        edges = [source.degree, source.columns]
    elif isinstance(source, GraphStore):
        edges = [source.sizes[0], source.edge_index, source.weight]
    else:
        own = source.edges
        edges = [source.y[:0], own.edge_index, own.weight, own.arcs]
    x = source.x
    if not isinstance(x, Tensor):
        features: tuple[Tensor, ...] = (x.row_pointer, x.columns, x.values)
    else:
        features = (x.indices(), x.values()) if x.layout == torch.sparse_coo else (x,)
    for tensor in (*features, *edges, source.y, run.train_on, run.validate_on):
        if tensor is not None:
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
    tensors = {f"model.{name}": tensor for name, tensor in run.model.state_dict().items()}
    tensors |= {f"best.{name}": tensor for name, tensor in run.best_weights.items()}
    for name in OPTIMIZERS:
        for i, own in getattr(state, f"{name}_optimizer").state_dict()["state"].items():
            tensors |= {f"{name}.{i}.{key}": value for key, value in own.items()}
    if run.clusters is not None:
        tensors["totals.table"] = run.clusters.totals
    course = {name: getattr(state.courses[0], name) for name in COURSE}
    write_tensors(path, "training state", tensors, course | {"fingerprint": fingerprint})


def load_state(path: Path, state: TrainingState, fingerprint: Mapping[str, Any]) -> None:
    """Bring a fresh state to where :func:`save_state` left off, if it is of the same run."""
    tensors, description = read_tensors(path, "training state", state.executor.device)
    try:
        known = description["fingerprint"]
        # Settings may have other names now.
        known = known | {"config": Config.from_dict(known["config"]).to_dict()}
    except (InputError, KeyError, TypeError):
        known = {}
    if known != json.loads(json.dumps(fingerprint)):
        raise InputError(
            f"{path}: this run was started with other settings, seed, data or number of "
            "processes; give the same ones to resume, or another folder to start anew"
        )
    try:
        _restore(state, description, _in_parts(tensors))
    except (KeyError, IndexError, TypeError, ValueError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"{path}: not a usable training state ({reason})") from None


def _restore(
    state: TrainingState, description: dict[str, Any], parts: dict[str, dict[str, Tensor]]
) -> None:
    run, course = state.executor, state.courses[0]
    assert isinstance(run, OneRun)
    for name, kind in COURSE.items():
        if type(description[name]) is not kind:
            raise ValueError(f"{name} is {description[name]!r}")
        setattr(course, name, description[name])
    if course.phase not in PHASES:
        raise ValueError(f"unknown phase {course.phase!r}")
    accuracy, minus_loss = course.best_score
    course.best_score, run.best_weights = (accuracy, minus_loss), parts["best"]
    if bool(run.best_weights) == math.isinf(accuracy):
        raise ValueError("weights of the best epoch are missing")
    for weights in (run.best_weights or parts["model"], parts["model"]):
        _require_fit(weights, run.model.state_dict())
    run.model.load_state_dict(parts["model"])
    for name in OPTIMIZERS:
        optimizer = getattr(state, f"{name}_optimizer")
        groups = optimizer.state_dict()["param_groups"]
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        moments = {int(index): own for index, own in _in_parts(parts[name]).items()}
        for number, own in moments.items():
            p = parameters[number]
            _require_fit(own, {"step": p.new_zeros(()), "exp_avg": p, "exp_avg_sq": p})
        optimizer.load_state_dict({"state": moments, "param_groups": groups})
    if run.clusters is not None:
        run.clusters.totals.copy_(parts["totals"]["table"])


def write_tensors(
    path: Path, kind: str, tensors: Mapping[str, Tensor], description: Mapping[str, Any]
) -> None:
    """Write tensors and a description of a kind to one file; equal content gives equal bytes."""
    header = json.dumps({"format": FORMAT, "kind": kind, **description})
    # Weights may share memory after tying or expansion, which the format cannot express.
    own = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}
    content = save(own, metadata={"vepm": header, "digest": _digest(header, own)})
    # The writer of safetensors puts metadata in any order.
    start = 8 + int.from_bytes(content[:8], "little")
    listing = json.loads(content[8:start])
    listing["__metadata__"] = dict(sorted(listing["__metadata__"].items()))
    text = json.dumps(listing, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    write_bytes(path, len(text).to_bytes(8, "little") + text + content[start:])


def _digest(header: str, tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.blake2b(header.encode(), digest_size=16)
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].cpu().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def read_tensors(
    path: Path, kind: str, device: torch.device | str = "cpu"
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and description from one of our files; whatever is wrong raises one clear error."""
    if not path.is_file():
        raise InputError(f"{path}: there is no such file; is it a run folder of vepm?")
    try:
        with safe_open(path, framework="pt", device=str(device)) as file:
            metadata = file.metadata() or {}
            header = parse_json(metadata.get("vepm", "null"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise InputError(
            f"{path}: not a whole safetensors file ({error}); it may be cut short or of "
            "another format"
        ) from None
    except ValueError:
        header = None
    if not isinstance(header, dict) or header.get("kind") != kind:
        raise InputError(f"{path}: this is not a {kind} written by vepm")
    if header.get("format") != FORMAT:
        raise InputError(
            f"{path}: written in format {header.get('format')!r}, this version reads "
            f"format {FORMAT}; train again or use the version of vepm that wrote it"
        )
    if metadata.get("digest") != _digest(metadata["vepm"], tensors):
        raise InputError(f"{path}: damaged since it was written; train again or copy it anew")
    return tensors, header
