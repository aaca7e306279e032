"""Known vulnerabilities of the pinned packages: one that nobody accepted stops the build.

A service that cannot be asked is reported and stops nothing. Exceptions stand in
``accepted-vulnerabilities.toml``, each with a reason and a day after which it no longer counts.
"""

import json
import subprocess
import sys
import tomllib
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
COMMAND = ("pip-audit", "--progress-spinner", "off", "--disable-pip", "--no-deps", "-f", "json")
LONGEST_SECONDS = 300


def accepted(today: date) -> set[str]:
    """Ids that are accepted on a day."""
    entries = tomllib.loads((HERE / "accepted-vulnerabilities.toml").read_text())
    return {name for name, entry in entries.items() if entry["reason"] and today <= entry["until"]}


def ask() -> list[dict[str, Any]] | None:
    """What is known of each package, or nothing if the service cannot be asked."""
    program = Path(sys.executable).with_name(COMMAND[0])
    words = [str(program), *COMMAND[1:], "-r", str(HERE.parent / "constraints.txt")]
    try:
        done = subprocess.run(  # noqa: S603
            words, capture_output=True, text=True, timeout=LONGEST_SECONDS, check=False
        )
        return json.loads(done.stdout)["dependencies"]
    except (subprocess.TimeoutExpired, OSError, ValueError, KeyError):
        return None


def judge(packages: list[dict[str, Any]] | None, known: set[str]) -> tuple[str, bool]:
    """What to say, and whether the build may go on."""
    asked = [package for package in packages or [] if "vulns" in package]
    if not asked:
        return "the vulnerability service cannot be reached: nothing was audited", True
    found = [
        f"{package['name']} {package['version']}: {vulnerability['id']}"
        for package in asked
        for vulnerability in package["vulns"]
        if not known & {vulnerability["id"], *vulnerability.get("aliases", ())}
    ]
    if found:
        return "\n".join(["known vulnerabilities:", *found]), False
    skipped = len(packages or []) - len(asked)
    return f"{len(asked)} packages audited, none vulnerable; {skipped} not known there", True


def main() -> None:
    """Ask, say what came of it, and stop the build if need be."""
    said, fine = judge(ask(), accepted(datetime.now(UTC).date()))
    print(said)
    sys.exit(0 if fine else 1)


if __name__ == "__main__":
    main()
