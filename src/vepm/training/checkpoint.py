"""Models and interrupted runs on disk: safetensors with a JSON description, never a pickle."""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from vepm.errors import InputError
from vepm.files import write_bytes
from vepm.nn import VEPM
from vepm.scale.executor import OneRun
from vepm.training.card import TENSORS, ModelCard
from vepm.training.config import Config
from vepm.training.divergence import require_usable
from vepm.training.state import PHASES, TrainingState

FORMAT = 1
STATE_FIELDS: dict[str, type] = {
    "phase": str,
    "epoch": int,
    "history": list,
    "converging": float,
    "smoothed": float,
    "stale": int,
    "best_epoch": int,
    "best_score": list,
}
BESIDES = tuple(f"{part}." for part in TENSORS)
MOMENTS = {"step", "exp_avg", "exp_avg_sq"}


def save_model(path: Path, model: VEPM, card: ModelCard) -> None:
    """Write a model to one file.

    Raises:
        InputError: if the model can predict nothing, and nothing is written.
    """
    require_usable(path, model, card.width)
    tensors = model.state_dict()
    for part in TENSORS:
        held = getattr(card, part)
        tensors |= {f"{part}.{k}": v for k, v in held.tensors().items()} if held else {}
    _write(path, "model", tensors, card.description())


def load_model(path: Path, device: torch.device | str = "cpu") -> tuple[VEPM, ModelCard]:
    """Read a model written by :func:`save_model`; anything else is refused before it is loaded."""
    with _open(path, "model", device) as (file, description):
        try:
            card = ModelCard.from_description(description)
            # On the meta device a model has shapes but no memory: the file is compared with it
            # before anything is allocated.
            with torch.device("meta"):
                model = card.build()
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise InputError(f"{path}: not a usable model description ({error})") from None
        weights = _read_matching(path, file, model.state_dict())
    parts: dict[str, dict[str, Tensor]] = {part: {} for part in TENSORS}
    for name in [name for name in weights if name.startswith(BESIDES)]:
        part, _, key = name.partition(".")
        parts[part][key] = weights.pop(name).cpu()
    model = model.to_empty(device=device)
    model.load_state_dict(weights)
    require_usable(path, model, card.width)
    try:
        return model.eval(), card.with_tensors(parts)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise InputError(
            f"{path}: coordinates, scales or training nodes cannot be used ({error})"
        ) from None


def save_state(path: Path, state: TrainingState, fingerprint: Mapping[str, Any]) -> None:
    """Write everything needed to resume a run.

    Args:
        path: File to write.
        state: The run.
        fingerprint: What must be the same to resume: settings, seed, data.
    """
    run = _one_run(state)
    tensors = {f"model.{k}": v for k, v in run.model.state_dict().items()}
    tensors |= {f"best.{k}": v for k, v in (run.best_weights or {}).items()}
    for name, optimizer in _optimizers(state).items():
        for index, moments in optimizer.state_dict()["state"].items():
            tensors |= {f"{name}.{index}.{key}": value for key, value in moments.items()}
    if (clusters := run.examples[0].clusters) is not None:
        tensors["totals.table"] = clusters.totals.table
    description = {name: getattr(state.courses[0], name) for name in STATE_FIELDS}
    _write(path, "training state", tensors, description | {"fingerprint": fingerprint})


def load_state(path: Path, state: TrainingState, fingerprint: Mapping[str, Any]) -> None:
    """Bring a fresh state to where :func:`save_state` left off."""
    with _open(path, "training state", state.executor.device) as (file, description):
        if not _same_run(description.get("fingerprint"), fingerprint):
            raise InputError(
                f"{path}: this run was started with other settings, seed or data; "
                "give the same ones to resume, or another folder to start anew"
            )
        tensors = _read(path, file)
    parts: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        part, _, key = name.partition(".")
        parts.setdefault(part, {})[key] = tensor
    try:
        _restore(state, description, parts)
    except (KeyError, IndexError, TypeError, ValueError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"{path}: not a usable training state ({reason})") from None


def _same_run(saved: Any, fingerprint: Mapping[str, Any]) -> bool:
    """Whether a state is of the same settings, by present or earlier names, seed and data."""
    try:
        settings = Config.from_dict(saved["config"]).to_dict()
    except (InputError, KeyError, TypeError):
        return False
    same: bool = saved | {"config": settings} == json.loads(json.dumps(fingerprint))
    return same


def _one_run(state: TrainingState) -> OneRun:
    """The executor of a state that can be saved: that of a single run."""
    assert isinstance(state.executor, OneRun)
    return state.executor


def _restore(
    state: TrainingState, description: dict[str, Any], parts: dict[str, dict[str, Tensor]]
) -> None:
    run, course = _one_run(state), state.courses[0]
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
    for weights in (run.best_weights, parts["model"]):
        if weights is not None:
            run.model.load_state_dict(weights)
    for name, optimizer in _optimizers(state).items():
        _restore_moments(optimizer, parts.get(name, {}))
    if (clusters := run.examples[0].clusters) is not None:
        clusters.totals.table.copy_(parts["totals"]["table"])


def _optimizers(state: TrainingState) -> dict[str, torch.optim.Adam]:
    return {"predictor": state.predictor_optimizer, "encoder": state.encoder_optimizer}


def _restore_moments(optimizer: torch.optim.Adam, tensors: dict[str, Tensor]) -> None:
    moments: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        index, _, key = name.partition(".")
        moments.setdefault(int(index), {})[key] = tensor
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for number, found in moments.items():
        shapes = {found[key].shape for key in MOMENTS - {"step"}}
        if found.keys() != MOMENTS or shapes != {parameters[number].shape}:
            raise ValueError(f"moments of parameter {number} do not fit")
    optimizer.load_state_dict(
        {"state": moments, "param_groups": optimizer.state_dict()["param_groups"]}
    )


def _write(path: Path, kind: str, tensors: Mapping[str, Tensor], description: Any) -> None:
    header = json.dumps({"format": FORMAT, "kind": kind, **description})
    # Weights may share memory after tying or expansion, which the format cannot express.
    own = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}
    content = save(own, metadata={"vepm": header, "digest": _digest(header, own)})
    write_bytes(path, _with_sorted_metadata(content))


def _with_sorted_metadata(content: bytes) -> bytes:
    """The bytes of a safetensors file, whose writer puts metadata in any order."""
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + content[start:]


def _digest(header: str, tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.blake2b(header.encode(), digest_size=16)
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].cpu().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _read(path: Path, file: Any) -> dict[str, Tensor]:
    """All tensors of a file, which must be as they were when its digest was taken."""
    tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    metadata = file.metadata()
    if metadata.get("digest") != _digest(metadata["vepm"], tensors):
        raise InputError(f"{path}: damaged since it was written; train again or copy it anew")
    return tensors


@contextmanager
def _open(
    path: Path, kind: str, device: torch.device | str
) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Open a file of ours; whatever is wrong with it becomes one clear error."""
    if not path.is_file():
        raise InputError(f"{path}: there is no such file; is it a run folder of vepm?")
    try:
        with safe_open(path, framework="pt", device=str(device)) as file:
            yield file, _header(path, kind, file.metadata())
    except (SafetensorError, OSError) as error:
        raise InputError(
            f"{path}: not a whole safetensors file ({error}); it may be cut short or of "
            "another format"
        ) from None


def _header(path: Path, kind: str, metadata: dict[str, str] | None) -> dict[str, Any]:
    try:
        header = json.loads((metadata or {}).get("vepm", "null"))
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict) or header.get("kind") != kind:
        raise InputError(f"{path}: this is not a {kind} written by vepm")
    if header.get("format") != FORMAT:
        raise InputError(
            f"{path}: written in format {header.get('format')!r}, this version reads "
            f"format {FORMAT}; train again or use the version of vepm that wrote it"
        )
    return header


def _read_matching(path: Path, file: Any, expected: Mapping[str, Tensor]) -> dict[str, Tensor]:
    names = {name for name in file.keys() if not name.startswith(BESIDES)}  # noqa: SIM118
    if names != set(expected):
        odd = sorted(names ^ set(expected))[0]
        raise InputError(f"{path}: weights do not fit the settings beside them ({odd})")
    for name, tensor in expected.items():
        found = tuple(file.get_slice(name).get_shape())
        if found != tuple(tensor.shape):
            raise InputError(
                f"{path}: {name} has shape {list(found)}, the settings say {list(tensor.shape)}"
            )
    tensors = _read(path, file)
    for name, tensor in expected.items():
        if tensors[name].dtype != tensor.dtype:
            raise InputError(f"{path}: {name} holds {tensors[name].dtype}, not {tensor.dtype}")
    return tensors
