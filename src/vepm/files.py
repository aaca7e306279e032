"""Files appear whole or not at all."""

import os
import tempfile
from pathlib import Path


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file so that a reader, or a crash, sees the old content or the new, never half.

    The content goes to a temporary file in the same folder, is flushed to the disk, and takes
    the name of the real one.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> None:
    """:func:`write_bytes` of UTF-8 text."""
    write_bytes(path, text.encode())
