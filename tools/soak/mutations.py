"""Ways to damage a file, each determined by a random generator alone."""

import io
import json
import struct
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import numpy as np
import torch
from safetensors.torch import load, save

from vepm.training.model_file import _digest

Mutation = Callable[[bytes, Random], bytes]

TOKENS: tuple[bytes, ...] = (
    *(b"", b",", b"\n", b"\r", b'"', b"'", b"\0", b" ", b"\t", b"=", b"[", b"]", b"{", b"}", b"<"),
    *(b"nan", b"-inf", b"1e999", b"-1", b"0", b"1.5", b"1e-320", b"10" * 20, b"0x10", b"1_0"),
    *(b"\xff", b"\xef\xbb\xbf", b"\x1b[2J", "\u202e\u0663é".encode(), b"=HYPERLINK(1)", b"../../x"),
    *(b"true", b"null", b"id", b"label", b"source", b"split", b"train", b"<!DOCTYPE x>", b"&lt;"),
    *(
        b"<script>alert(1)</script>",
        b"[" * 3000,
        b"{" * 3000,
        b"a." * 3000 + b"a=1",
        b"x" * 200_000,
    ),
)
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 7, 2**31, 2**53, 2**62, 10**30, -(10**30)),
    *(0.5, -0.5, 1e308, 1e-320, float("nan"), float("inf"), -float("inf")),
    *("", "x", "node", "graph", "done", "\0", "1" * 5000, [], [[]], {}, {"a": 1}, [1] * 50),
)


def damage_bytes(content: bytes, draw: Random) -> bytes:
    """One to four small changes anywhere."""
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        content = draw.choice(_EDITS)(content, draw)
    return content


def _flip(content: bytes, draw: Random) -> bytes:
    if not content:
        return content
    place = draw.randrange(len(content))
    flipped = content[place] ^ (1 << draw.randrange(8))
    return content[:place] + bytes([flipped]) + content[place + 1 :]


def _cut(content: bytes, draw: Random) -> bytes:
    return content[: draw.randint(0, len(content))]


def _span(content: bytes, draw: Random) -> tuple[int, int]:
    start = draw.randint(0, len(content))
    return start, min(len(content), start + draw.choice((1, 2, 5, 20, 100)))


def _delete(content: bytes, draw: Random) -> bytes:
    start, end = _span(content, draw)
    return content[:start] + content[end:]


def _repeat(content: bytes, draw: Random) -> bytes:
    start, end = _span(content, draw)
    return content[:end] + content[start:end] * draw.choice((1, 2, 50)) + content[end:]


def _insert(content: bytes, draw: Random) -> bytes:
    place = draw.randint(0, len(content))
    return content[:place] + draw.choice(TOKENS) + content[place:]


def _overwrite(content: bytes, draw: Random) -> bytes:
    start, end = _span(content, draw)
    return content[:start] + draw.choice(TOKENS) + content[end:]


def _cell(content: bytes, draw: Random) -> bytes:
    """Replace a word between commas, quotes, brackets or blanks."""
    words = content.split(draw.choice((b",", b'"', b"\n", b" ", b"=", b">")))
    words[draw.randrange(len(words))] = draw.choice(TOKENS)
    return draw.choice((b",", b'"', b"\n", b" ", b"=", b">")).join(words)


def _swap_lines(content: bytes, draw: Random) -> bytes:
    lines = content.splitlines(keepends=True)
    draw.shuffle(lines)
    return b"".join(lines)


_EDITS: tuple[Mutation, ...] = (
    *(_flip, _flip, _cut, _delete, _repeat, _insert, _overwrite, _overwrite, _cell, _swap_lines),
)


def damage_json(value: Any, draw: Random) -> Any:
    """Replace, remove, add or move a value somewhere in nested lists and tables."""
    if isinstance(value, dict) and value and draw.random() < 0.85:
        key = draw.choice(sorted(value))
        rest = {name: entry for name, entry in value.items() if name != key}
        match draw.randrange(8):
            case 0:
                return rest
            case 1:
                return value | {draw.choice(("x", "", "format", key + "x")): draw.choice(VALUES)}
        return value | {key: damage_json(value[key], draw)}
    if isinstance(value, list) and value and draw.random() < 0.7:
        place = draw.randrange(len(value))
        return [*value[:place], damage_json(value[place], draw), *value[place + 1 :]]
    return draw.choice(VALUES)


def damage_tensors(content: bytes, draw: Random) -> bytes:
    """A valid safetensors file with a valid digest whose contents are inconsistent."""
    (length,) = struct.unpack("<Q", content[:8])
    metadata = json.loads(content[8 : 8 + length]).get("__metadata__", {})
    tensors = load(content)
    changes = draw.randint(0, 2)
    for _ in range(changes):
        _damage_tensor(tensors, draw)
    if "vepm" in metadata:
        header = json.loads(metadata["vepm"])
        for _ in range(draw.randint(0 if changes else 1, 2)):
            header = damage_json(header, draw)
        text = json.dumps(header)
        metadata = {"vepm": text, "digest": _digest(text, tensors)}
    return save(tensors, metadata=metadata or None)


def _damage_tensor(tensors: dict[str, torch.Tensor], draw: Random) -> None:
    if not tensors:
        return
    name = draw.choice(sorted(tensors))
    tensor = tensors.pop(name)
    match draw.randrange(7):
        case 0:
            return
        case 1:
            tensors[draw.choice(("x", name + ".x", "../x"))] = tensor
            return
        case 2:
            tensor = tensor.reshape(-1)
        case 3:
            tensor = torch.cat([tensor.reshape(-1), tensor.reshape(-1)])
        case 4:
            kinds = (torch.float64, torch.int64, torch.bool, torch.float16, torch.uint8)
            tensor = tensor.to(draw.choice(kinds))
        case 5:
            tensor = tensor.clone()
            if tensor.numel():
                tensor.view(-1)[draw.randrange(tensor.numel())] = _odd_number(tensor.dtype, draw)
        case 6:
            tensor = torch.empty(0, dtype=tensor.dtype)
    tensors[name] = tensor.contiguous()


def _odd_number(kind: torch.dtype, draw: Random) -> float:
    if kind.is_floating_point:
        return draw.choice((-1.0, 0.0, 6e4, 1e20, 1e38, float("nan"), float("inf"), -float("inf")))
    return draw.choice((-1, 0, 2**30, 2**62)) if kind == torch.int64 else draw.choice((0, 1))


def damage_arrays(content: bytes, draw: Random) -> bytes:
    """A valid .npz archive whose arrays are inconsistent or misstate their size."""
    with np.load(io.BytesIO(content)) as archive:
        arrays: dict[str, Any] = dict(archive)
    for _ in range(draw.randint(1, 2)):
        name = draw.choice(sorted(arrays))
        arrays = _damage_array(arrays, name, draw)
        if not arrays:
            break
    stored = io.BytesIO()
    draw.choice((np.savez, np.savez_compressed))(stored, **arrays)
    found = stored.getvalue()
    if draw.random() < 0.1:
        found = found.replace(b"(24,)", b"(99,)").replace(b"(2,)", b"(9,)")
    return found


def _damage_array(arrays: dict[str, Any], name: str, draw: Random) -> dict[str, Any]:
    array = arrays[name]
    rest = {key: value for key, value in arrays.items() if key != name}
    if array.dtype == object:
        return rest
    match draw.randrange(9):
        case 0:
            return rest
        case 1:
            return rest | {draw.choice(("x", "adj_matrix", "attr_matrix", "labels")): array}
        case 2:
            return rest | {name: array.reshape(-1)[: draw.randint(0, array.size)]}
        case 3:
            return rest | {name: array[..., None]}
        case 4:
            kinds: Sequence[Any] = (np.float32, np.int8, np.uint64, np.complex64, "U5", "S3", bool)
            return rest | {name: array.astype(draw.choice(kinds))}
        case 5:
            return rest | {name: np.array([{"a": 1}] * array.size, dtype=object)}
        case 6:
            return rest | {name: np.repeat(array, 3)}
    changed = array.copy().reshape(-1)
    if changed.size:
        numbers = (-1, 0, 1, 3, 2**31 - 1, 2**31, 2**62, 10**18, -(2**63))
        odd: Any = draw.choice(numbers)
        if changed.dtype.kind == "f":
            odd = draw.choice((np.nan, np.inf, 1e300, -1.0, 0.0))
        limits = np.iinfo(changed.dtype) if changed.dtype.kind in "iu" else None
        odd = odd if limits is None else min(max(odd, limits.min), limits.max)
        changed[draw.randrange(changed.size)] = odd
    return rest | {name: changed.reshape(array.shape)}
