"""Raw benchmark files: where they lie, and how missing ones are fetched."""

import os
import shutil
import tempfile
import urllib.request
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vepm.errors import InputError

_TIMEOUT_SECONDS = 30


@dataclass(frozen=True)
class RawFiles:
    """The raw files of one dataset under a PyG root, and where they can be fetched from.

    Args:
        folder: the dataset's folder under the root.
        names: the files needed in ``folder/raw``.
        urls: what to fetch: the files themselves, or one .zip that holds them; may be empty.
    """

    folder: str
    names: tuple[str, ...]
    urls: tuple[str, ...]

    def missing(self, root: Path) -> list[Path]:
        """The files that are not there."""
        paths = [root / self.folder / "raw" / name for name in self.names]
        return [path for path in paths if not path.is_file()]

    def ensure(self, root: Path) -> Path:
        """The raw folder, with what is missing fetched if that can be done."""
        missing = self.missing(root)
        if missing and self.urls:
            try:
                self._fetch(root / self.folder / "raw")
            except (OSError, zipfile.BadZipFile) as error:
                raise InputError(self._explain(missing, f"cannot be fetched ({error})")) from None
            missing = self.missing(root)
        if missing:
            raise InputError(self._explain(missing, "cannot be fetched from anywhere"))
        return root / self.folder / "raw"

    def _fetch(self, raw: Path) -> None:
        raw.mkdir(parents=True, exist_ok=True)
        # Beside the target, so that the moves below are atomic: half a file is never seen.
        with tempfile.TemporaryDirectory(dir=raw.parent) as folder:
            for url in self.urls:
                _download(url, Path(folder))
            for path in sorted(Path(folder).rglob("*")):
                if path.name in self.names or path.name == "README.txt":
                    path.replace(raw / path.name)

    def _explain(self, missing: Sequence[Path], why: str) -> str:
        listed = ", ".join(path.name for path in missing)
        origin = f" (from {self.urls[0].rpartition('/')[0]})" if self.urls else ""
        return (
            f"{self.folder}: raw files are missing and {why}; put {listed} into "
            f"{missing[0].parent}{origin}, or name another data folder with root= or VEPM_DATA"
        )


def _download(url: str, folder: Path) -> None:
    path = folder / url.rpartition("/")[2]
    if not url.startswith("https://"):
        raise InputError(f"{url}: only https is fetched from; put the files in place by hand")
    with urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as reply, path.open("wb") as file:  # noqa: S310
        shutil.copyfileobj(reply, file)
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            archive.extractall(folder)


def default_root() -> Path:
    """The data folder when none is named: VEPM_DATA, else a cache in the user's home."""
    named = os.environ.get("VEPM_DATA")
    return Path(named).expanduser() if named else Path.home() / ".cache" / "vepm" / "data"
