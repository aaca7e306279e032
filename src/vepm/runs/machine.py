"""What a number was measured on and with."""

import importlib.metadata
import os
import platform
import resource
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import torch


def describe_machine() -> dict[str, Any]:
    """Versions and hardware behind a number."""
    packages = ("vepm", "torch", "torch_geometric", "numpy", "scikit-learn")
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
        "gpu": gpu,
        **{name: _version(name) for name in packages},
        "commit": commit(),
    }


def peak_memory() -> dict[str, float]:
    """The most memory this process has held at once so far, in MiB, and the GPU's if there is one.

    The first is all of the process: packages take a few hundred MiB before any data do.
    """
    # Linux counts in KiB, macOS in bytes.
    unit = 2**20 if sys.platform == "darwin" else 2**10
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
    found = {"peak_memory_mib": held}
    if torch.cuda.is_available():
        found["peak_gpu_memory_mib"] = torch.cuda.max_memory_allocated() / 2**20
    return found


def commit() -> str | None:
    """Commit of the source tree, with a plus if its code has changed since; None if installed.

    The environment variable VEPM_COMMIT names it where there is no Git history to ask.
    """
    return os.environ.get("VEPM_COMMIT", "").strip() or _commit_of_tree()


@cache
def _commit_of_tree() -> str | None:
    folder = Path(__file__).parents[1]
    if not (folder.parents[1] / ".git").exists():
        return None
    try:
        head = _git(folder, "rev-parse", "HEAD")
        changes = _git(folder, "status", "--porcelain", "--untracked-files=no", ".")
    except (OSError, subprocess.CalledProcessError):
        return None
    return head + ("+" if changes else "")


def _git(folder: Path, *words: str) -> str:
    command = ["git", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)  # noqa: S603
    return done.stdout.strip()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        # Run from a source tree that is not installed.
        return None
