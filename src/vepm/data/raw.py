"""Raw benchmark files: where they lie, and how missing ones are fetched."""

import io
import os
import urllib.request
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from vepm.errors import InputError
from vepm.files import write_bytes

_TIMEOUT_SECONDS = 30
# Several times the largest dataset known here, and little enough for a machine's memory.
_LARGEST = 2**30


@dataclass(frozen=True)
class RawFiles:
    """The raw files of one dataset under a PyG root, and where they can be fetched from.

    Args:
        folder: the dataset's folder under the root.
        names: the files needed in ``folder/inside``.
        urls: what to fetch: the files themselves, or one .zip that holds them; may be empty.
        inside: the folder inside ``folder`` that holds them.
    """

    folder: str
    names: tuple[str, ...]
    urls: tuple[str, ...]
    inside: str = "raw"

    def missing(self, root: Path) -> list[Path]:
        """The files that are not there."""
        paths = [root / self.folder / self.inside / name for name in self.names]
        return [path for path in paths if not path.is_file()]

    def ensure(self, root: Path) -> Path:
        """The raw folder, with what is missing fetched if that can be done."""
        missing = self.missing(root)
        if missing and self.urls:
            try:
                self._fetch(root / self.folder / self.inside)
            except (OSError, zipfile.BadZipFile) as error:
                raise InputError(self._explain(missing, f"cannot be fetched ({error})")) from None
            missing = self.missing(root)
        if missing:
            raise InputError(self._explain(missing, "cannot be fetched from anywhere"))
        return root / self.folder / self.inside

    def _fetch(self, raw: Path) -> None:
        wanted = {*self.names, "README.txt"}
        for url in self.urls:
            content = _download(url)
            name = url.rpartition("/")[2]
            found = _unpack(content, wanted) if name.endswith(".zip") else {name: content}
            for file, inside in found.items():
                write_bytes(raw / file, inside)

    def _explain(self, missing: Sequence[Path], why: str) -> str:
        listed = ", ".join(path.name for path in missing)
        origin = f" (from {self.urls[0].rpartition('/')[0]})" if self.urls else ""
        return (
            f"{self.folder}: raw files are missing and {why}; put {listed} into "
            f"{missing[0].parent}{origin}, or name another data folder with root= or VEPM_DATA"
        )


def _download(url: str) -> bytes:
    if not url.startswith("https://"):
        raise InputError(f"{url}: only https is fetched from; put the files in place by hand")
    with urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as reply:  # noqa: S310 # nosec B310
        content: bytes = reply.read(_LARGEST + 1)
    if len(content) > _LARGEST:
        raise InputError(f"{url}: larger than any dataset here; put the files in place by hand")
    return content


def _unpack(content: bytes, wanted: set[str]) -> dict[str, bytes]:
    """The wanted files of an archive by name, whatever folders it claims they belong in."""
    found: dict[str, bytes] = {}
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for entry in archive.infolist():
            name = entry.filename.replace("\\", "/").rpartition("/")[2]
            if name not in wanted:
                continue
            if entry.file_size > _LARGEST:
                raise zipfile.BadZipFile(f"{name} claims {entry.file_size} bytes")
            found[name] = archive.read(entry)
    return found


def read_integers(
    path: Path, columns: int = 1, *, delimiter: str | None = ",", header: bool = False
) -> Tensor:
    """A text file of integers [rows], or [rows, columns]; ``delimiter=None`` means blanks."""
    if path.stat().st_size == 0:
        raise InputError(f"{path}: the file is empty; fetch it again")
    try:
        values = np.loadtxt(
            path, np.int64, delimiter=delimiter, skiprows=int(header), ndmin=2, encoding="utf-8"
        )
    except (ValueError, UnicodeDecodeError) as error:
        line = " ".join(str(error).split())
        raise InputError(f"{path}: not integers in columns ({line}); fetch it again") from None
    if values.shape[1] != columns:
        raise InputError(
            f"{path}: {values.shape[1]} columns where {columns} belong; fetch it again"
        )
    return torch.from_numpy(values if columns > 1 else values[:, 0])


def expanded(path: str | os.PathLike[str]) -> Path:
    """A path with ``~`` replaced by a home folder."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise InputError(f"{path}: there is no such home folder; write the path out") from None


def data_root(root: str | os.PathLike[str] | None) -> Path:
    """The data folder: the one given, else VEPM_DATA, else a cache in the user's home."""
    named = root if root is not None else os.environ.get("VEPM_DATA")
    return expanded(named) if named else Path.home() / ".cache" / "vepm" / "data"
