"""Files that are whole in themselves and still wrong."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors.torch import load as read_tensors
from safetensors.torch import save as write_tensors
from torch import Tensor

from vepm.training.saving import _digest

Tensors = dict[str, Tensor]
Forge = Callable[[Tensors, dict[str, Any]], Any]


def contents(path: Path) -> tuple[Tensors, dict[str, Any]]:
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    metadata = json.loads(content[8 : 8 + length])["__metadata__"]
    return read_tensors(content), json.loads(metadata["vepm"])


def forge(path: Path, change: Forge) -> None:
    """Rewrite a file with other contents and a digest that agrees with them."""
    tensors, header = contents(path)
    change(tensors, header)
    text = json.dumps(header)
    metadata = {"vepm": text, "digest": _digest(text, tensors)}
    path.write_bytes(write_tensors(tensors, metadata=metadata))


def put(**changes: Any) -> Forge:
    """Entries of the description."""
    return lambda tensors, header: header.update(changes)


class Bomb:
    """Fails a test if it is ever unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (exec, ("raise AssertionError('a pickle was run')",))
