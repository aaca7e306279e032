"""Ways to damage a file, each determined by a random generator alone."""

import io
import json
import re
import struct
import warnings
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import torch
from safetensors.torch import load, save

from vepm.training.saving import _digest

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
KEYS = ("x", "", "format", "excerpt_of", "warnings", "baselines", "versions", "rule", "nmi", "ece")
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 7, 65_000, 2**31, 2**53, 2**62, 10**30, -(10**30), 10**400),
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
                return value | {draw.choice((*KEYS, key + "x")): draw.choice(VALUES)}
        return value | {key: damage_json(value[key], draw)}
    if isinstance(value, list) and value and draw.random() < 0.7:
        place = draw.randrange(len(value))
        return [*value[:place], damage_json(value[place], draw), *value[place + 1 :]]
    return draw.choice(VALUES)


Arrays = dict[str, Any]
Change = Callable[[Any, Random], Any]
"""From an array to one of another type, shape or scale."""

DTYPES: tuple[Any, ...] = (
    *(bool, "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", ">i8", ">f4"),
    *("g", "c8", "G", "U5", "S3", "M8[s]", "m8[ns]", "V3", object, [("a", "f4")]),
)
SCALES = (0.0, 1e-320, 1e-45, 1e-38, 1e-27, 1e-19, 1e-8, -1.0, 1e8, 1e19, 1e27, 1e38, 1e200, 1e308)
INTEGERS = (-1, 0, 1, 3, 65_000, 2**31 - 1, 2**31, 2**62, 10**18, -(2**63))


def retype(array: Any, draw: Random) -> Any:
    """The array in another type, or zeros of a type that it cannot be converted to."""
    kind = draw.choice(DTYPES)
    try:
        with warnings.catch_warnings(action="ignore"):
            return array.astype(kind)
    except (TypeError, ValueError, RuntimeError):
        return np.zeros(array.shape, kind)


def reshape(array: Any, draw: Random) -> Any:
    """The array in another shape, with entries lost, repeated or added."""
    flat = array.reshape(-1)
    match draw.randrange(12):
        case 0:
            return flat
        case 1:
            return flat[: draw.randint(0, flat.size)]
        case 2:
            return array[..., None]
        case 3:
            return array[None]
        case 4:
            return array.T.copy()
        case 5:
            return np.repeat(array, 3, axis=-1) if array.ndim else flat
        case 6:
            return array[1:] if array.ndim else flat
        case 7:
            return np.concatenate([flat, flat])
        case 8:
            return flat[0] if flat.size else array
        case 9:
            return np.zeros((draw.choice((0, 1, 24)), draw.choice((0, 1, 1000))), array.dtype)
        case 10 if draw.random() < RARELY:
            return np.zeros(draw.choice(((2**24,), (2**12, 2**12))), array.dtype)
    return array[..., :1] if array.ndim else array


def rescale(array: Any, draw: Random) -> Any:
    """The array with one entry, or all, of extreme size or not finite."""
    changed = array.copy().reshape(-1)
    if not changed.size or changed.dtype.kind not in "iuf":
        return array
    if changed.dtype.kind == "f":
        with np.errstate(all="ignore"):
            if draw.random() < 0.5:
                return (array.astype("f8") * draw.choice(SCALES)).astype(array.dtype)
            odd: Any = draw.choice((np.nan, np.inf, -np.inf, *SCALES))
            changed[draw.randrange(changed.size)] = odd
    else:
        limits = np.iinfo(changed.dtype)
        odd = min(max(draw.choice(INTEGERS), limits.min), limits.max)
        changed[draw.randrange(changed.size)] = odd
    return changed.reshape(array.shape)


RARELY = 0.005
"""How often arrays are made large, which takes as long as hundreds of small ones."""
NUMBER = re.compile(rb"(?<![\w.])-?\d+(\.\d+)?(?![\w.])")
NUMBERS = (
    *(b"0", b"-0.0", b"-1", b"1e-320", b"1e-46", b"1e-27", b"1e-19", b"3e19", b"1e38", b"1e39"),
    *(b"1e308", b"1e999", b"nan", b"inf", b"-inf", b"9" * 40, b"9" * 400, b"0x" + b"f" * 4000),
    *(str(2**power).encode() for power in (31, 32, 53, 63, 64)),
)


def rescale_text(content: bytes, draw: Random) -> bytes:
    """A text in which some numbers are extreme."""
    share, odd = draw.choice((0.02, 0.3, 1.0)), draw.choice(NUMBERS)
    return NUMBER.sub(lambda found: odd if draw.random() < share else found[0], content)


def in_npz(change: Change) -> Mutation:
    """Changes one or two arrays of an .npz archive, or what it says of their shapes."""

    def damage(content: bytes, draw: Random) -> bytes:
        with np.load(io.BytesIO(content)) as archive:
            arrays = dict(archive)
        _change_some(arrays, change, draw)
        stored = io.BytesIO()
        draw.choice((np.savez, np.savez_compressed))(stored, **arrays)
        found = stored.getvalue()
        if change is reshape and draw.random() < 0.1:
            found = found.replace(b"(24,)", b"(99,)").replace(b"(2,)", b"(9,)")
        return found

    return damage


def in_tensors(change: Change) -> Mutation:
    """Changes a few tensors of a safetensors file whose digest is right nevertheless."""

    def damage(content: bytes, draw: Random) -> bytes:
        tensors, metadata = unpack_tensors(content)
        arrays: Arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
        _change_some(arrays, change, draw)
        found = {}
        for name, array in arrays.items():
            try:
                fresh = torch.from_numpy(np.ascontiguousarray(array))
                found[name] = fresh.clone(memory_format=torch.contiguous_format)
            except (TypeError, ValueError):
                # A type that the format does not have.
                found[name] = tensors[name].to(draw.choice((torch.bfloat16, torch.complex64)))
        return pack_tensors(found, metadata)

    return damage


def _change_some(arrays: Arrays, change: Change, draw: Random) -> None:
    for _ in range(draw.randint(1, 2)):
        name = draw.choice(sorted(arrays))
        if arrays[name].dtype != object:
            arrays[name] = change(arrays[name], draw)


def unpack_tensors(content: bytes) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """The tensors and metadata of a safetensors file."""
    (length,) = struct.unpack("<Q", content[:8])
    return load(content), json.loads(content[8 : 8 + length]).get("__metadata__", {})


def pack_tensors(tensors: dict[str, torch.Tensor], metadata: dict[str, str]) -> bytes:
    """A safetensors file of ours, its digest included if it has a description."""
    if "vepm" in metadata:
        metadata = {"vepm": metadata["vepm"], "digest": _digest(metadata["vepm"], tensors)}
    return save(tensors, metadata=metadata or None)


def damage_description(content: bytes, draw: Random) -> bytes:
    """A safetensors file of ours whose description is inconsistent, or lacks a tensor."""
    tensors, metadata = unpack_tensors(content)
    if tensors and draw.random() < 0.3:
        name = draw.choice(sorted(tensors))
        tensor = tensors.pop(name)
        if draw.random() < 0.5:
            tensors[draw.choice(("x", name + "x", *sorted(tensors)))] = tensor
    if "vepm" in metadata:
        header = json.loads(metadata["vepm"])
        for _ in range(draw.randint(1, 2)):
            header = damage_json(header, draw)
        metadata = {"vepm": json.dumps(header)}
    return pack_tensors(tensors, metadata)
