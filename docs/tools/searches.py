"""The summary that `vepm tune` wrote, in words and a table."""

import json
from typing import Any

from results import ROOT, grid


def summary(folder: str) -> str:
    """What a search found, from its ``summary.json``."""
    found = json.loads((ROOT / folder / "summary.json").read_text(encoding="utf-8"))
    counts, versions = found["trials"], found["versions"]
    header = ["settings", "trial", "validation accuracy", "validation loss"]
    table = grid(header, [_row(name, found[name]) for name in ("default", "best")])
    changes = ", ".join(f"`{name} = {_short(v)}`" for name, v in found["best"]["changes"].items())
    lines = [
        table,
        "",
        f"`{found['command']}`: {counts['finished']} trials{_earlier(counts)}; "
        f"{found['seconds']:.0f} s on {versions['threads']} thread of {versions['machine']}, "
        f"torch {versions['torch']}, commit `{versions['commit'][:7]}`. Training seed "
        f"{found['seeds'][0]}, search seed {found['sampler_seed']}, {found['num_val']} validation "
        f"{found['task']}s. Rule: {found['rule']}. Best settings: {changes}.",
    ]
    return "\n".join(lines)


def _earlier(counts: dict[str, int]) -> str:
    """What searches of earlier versions counted too."""
    if "abandoned" not in counts:
        return ""
    return (
        f", {counts['pruned']} of them stopped early, {counts['abandoned']} more cut short when "
        "the search was killed and begun anew"
    )


def _row(name: str, trial: dict[str, Any]) -> list[str]:
    accuracy, loss = f"{100 * trial['val_accuracy']:.1f} %", f"{trial['val_loss']:.3f}"
    return [name, str(trial["trial"]), accuracy, loss]


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
