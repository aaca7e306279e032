"""Results of the tools, written with their commit and machine."""

import json
import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from vepm.files import write_text
from vepm.runs import describe_machine

HERE = Path(__file__).resolve().parents[1]


def provenance() -> dict[str, Any]:
    """Commit, machine and time of a result."""
    return {
        "commit": _git("rev-parse", "HEAD"),
        "changed": bool(_git("status", "--porcelain", "--", "src", "tests")),
        "ended": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": os.cpu_count(),
        "memory_mib": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20,
        "system": platform.platform(),
        **describe_machine(),
    }


def beside(path: Path | None, key: str, fresh: dict[str, Any]) -> dict[str, Any]:
    """Fresh parts of a record, each with its commit, beside the parts that it held before."""
    before = json.loads(path.read_text()) if path is not None and path.exists() else {}
    commits = dict.fromkeys(fresh, _git("rev-parse", "HEAD"))
    return {key: before.get(key, {}) | fresh, "commits": before.get("commits", {}) | commits}


def keep(path: Path | None, what: str, found: dict[str, Any]) -> None:
    """Print a result with its provenance, and write it if there is a path."""
    body = {"what": what, **found, "provenance": provenance()}
    text = json.dumps(body, indent=1)
    print(text)
    if path is not None:
        write_text(path, text + "\n")


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=HERE, capture_output=True, text=True, check=False)
    return done.stdout.strip()
