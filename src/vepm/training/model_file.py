"""Models on disk: safetensors with a JSON description, never a pickle."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from vepm.errors import InputError
from vepm.files import parse_json, write_bytes
from vepm.nn import VEPM
from vepm.training.card import TENSORS, ModelCard

FORMAT = 1
BESIDES = tuple(f"{part}." for part in TENSORS)
LARGEST_WEIGHT = 1e30  # more than a trained model holds, and near the end of single precision


def save_model(path: Path, model: VEPM, card: ModelCard) -> None:
    """Write a model to one file, unless it cannot predict."""
    require_usable(path, model, card.width)
    tensors = model.state_dict()
    for part in TENSORS:
        held = getattr(card, part)
        tensors |= {f"{part}.{k}": v for k, v in held.tensors().items()} if held else {}
    write_tensors(path, "model", tensors, card.description())


def load_model(path: Path, device: torch.device | str = "cpu") -> tuple[VEPM, ModelCard]:
    """Read a model written by :func:`save_model`; anything else is refused before it is loaded."""
    with open_tensors(path, "model", device) as (file, description):
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


@torch.no_grad()
def require_usable(path: Path, model: VEPM, in_channels: int) -> None:
    """Refuse a model whose weights are not finite, or lead to numbers that are not."""
    remedy = "training diverged or the file was tampered with; train with a lower learning rate"
    for name, tensor in model.state_dict().items():
        if not (tensor.abs() <= LARGEST_WEIGHT).all():
            raise InputError(f"{path}: {name} is not finite, or beyond all bounds; {remedy}")
    # What it says of the smallest graph with an edge.
    device, training = model.activation.device, model.training
    found = model.eval()(
        torch.ones(2, in_channels, device=device), torch.tensor([[1, 0], [0, 1]], device=device)
    )
    model.train(training)
    if not all(part.isfinite().all() for part in (found.z, found.edge_weight, found.logits)):
        raise InputError(f"{path}: the model gives no finite numbers; {remedy}")


def write_tensors(
    path: Path, kind: str, tensors: Mapping[str, Tensor], description: Mapping[str, Any]
) -> None:
    """Write tensors and a description of a kind to one file; equal content gives equal bytes."""
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


def read_tensors(path: Path, file: Any) -> dict[str, Tensor]:
    """All tensors of a file, which must be as they were when its digest was taken."""
    tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    metadata = file.metadata()
    if metadata.get("digest") != _digest(metadata["vepm"], tensors):
        raise InputError(f"{path}: damaged since it was written; train again or copy it anew")
    return tensors


@contextmanager
def open_tensors(
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
        header = parse_json((metadata or {}).get("vepm", "null"))
    except ValueError:
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
    tensors = read_tensors(path, file)
    for name, tensor in expected.items():
        if tensors[name].dtype != tensor.dtype:
            raise InputError(f"{path}: {name} holds {tensors[name].dtype}, not {tensor.dtype}")
    return tensors
