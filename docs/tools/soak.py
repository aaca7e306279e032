"""Put the records of `results/soak/` into SECURITY.md: ``python docs/tools/soak.py``."""

import json
from pathlib import Path
from typing import Any

from readme import filled
from results import ROOT

Record = dict[str, Any]


def fuzzed(found: Record) -> str:
    """What happened to damaged inputs."""
    kinds = found["kinds"].values()
    each = ", ".join(f"{kind} {part['inputs']:,}" for kind, part in found["kinds"].items())
    taken, refused = (
        sum(sum(part[name].values()) for part in kinds) for name in ("taken", "refused")
    )
    return (
        f"{taken + refused:,} damaged inputs ({each}): {taken:,} could still be used, {refused:,} "
        f"were refused with a one-line error, {sum(len(part['wrong']) for part in kinds)} went "
        f"wrong; the slowest took {max(part['slowest_seconds'] for part in kinds):.1f} s, memory "
        f"peaked at {max(part['peak_memory_mib'] for part in kinds):,.0f} MiB"
    )


def killed(found: Record) -> str:
    """What happened to killed runs."""
    parts = found["commands"]
    each = ", ".join(f"{name} {part['kills']}" for name, part in parts.items())
    return (
        f"{sum(part['kills'] for part in parts.values())} kills, most of them just before a file "
        f"was opened, renamed or removed ({each}): no file was unreadable, and given again, "
        f"{sum(len(part['wrong']) for part in parts.values())} commands ended with other files or "
        "results than one that was never killed"
    )


def repeated(found: Record) -> str:
    """What happened over many runs in one process."""
    return (
        f"{found['cycles']} cycles of train, predict and report in one process, "
        f"{found['seconds'] / 3600:.1f} h: memory {found['resident_mib_after_warm_up']:,.0f} MiB "
        f"after warm-up and {found['resident_mib_at_end']:,.0f} at the end, "
        f"{found['slope_mib_per_hour']:+.1f} MiB an hour where noise allows "
        f"{found['growth_bound_mib']:.0f} over all; {found['descriptors_after_warm_up']} open "
        f"files, then {found['descriptors_at_end']}"
    )


def noticed(found: Record) -> str:
    """How many mutants the tests noticed."""
    packages = found["packages"]
    killed, total = (sum(part[key] for part in packages.values()) for key in ("killed", "mutants"))
    scores = ", ".join(
        f"{name.removeprefix('vepm.')} {part['killed']}/{part['mutants']}"
        for name, part in packages.items()
    )
    return f"{killed} of {total} mutants were noticed by the tests ({killed / total:.1%}: {scores})"


LINES = {"fuzz": fuzzed, "kills": killed, "repeat": repeated, "mutants": noticed}


def line(path: Path) -> str:
    """One record as an item of a list, with commit and machine."""
    found = json.loads(path.read_text(encoding="utf-8"))
    where = found["provenance"]
    commits = dict.fromkeys(found.get("commits", {"": where["commit"]}).values())
    place = f"commit {', '.join(name[:7] for name in commits)}, {where['cores']} cores, "
    place += where["ended"][:10]
    return " ".join(
        [f"- {LINES[path.stem](found)} ({place}).", *found.get("afterwards", "").split()]
    )


def lines() -> str:
    """What every record says."""
    paths = (ROOT / "results" / "soak" / f"{name}.json" for name in LINES)
    return "\n".join(line(path) for path in paths if path.exists())


def main() -> None:
    """Replace the text between the marks."""
    page = ROOT / "SECURITY.md"
    page.write_text(filled(page.read_text(encoding="utf-8"), "soak", lines()), encoding="utf-8")


if __name__ == "__main__":
    main()
