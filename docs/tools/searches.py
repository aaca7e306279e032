"""What searches found and how much they tried, in words and tables."""

import json
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

from results import ROOT, grid
from vepm.baselines import BASELINES, baseline
from vepm.paper.experiments import task_of
from vepm.training import preset

SHARED = ", on folds of results"
LENGTHS = ("epochs", "pretrain_epochs", "patience")


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


def tried(folder: str) -> str:
    """How many different settings of each method were tried on each dataset.

    Longer is not different, and the settings that are usual count as one.
    """
    found: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for log in sorted((ROOT / folder).glob("*.jsonl")):
        for method, row, changes in _runs(log):
            # A setting named with its usual value is the one that does not name it.
            values = _usual(method.removesuffix(SHARED), row["dataset"]) | changes
            own = {name: value for name, value in values.items() if name not in LENGTHS}
            found[row["dataset"], method].add(json.dumps(own, sort_keys=True))
    first = ["vepm", f"vepm{SHARED}"]
    methods = [*first, *sorted({method for _, method in found} - set(first))]
    datasets = sorted({dataset for dataset, _ in found})
    rows = [[name, *(str(len(found[name, m])) for m in methods)] for name in datasets]
    return grid(["dataset", *methods], rows)


def _runs(log: Path) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """The method, the run and the settings that differ from the usual, for each run of a log."""
    head, *rows = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    if "sweep" not in head:
        # The first search of all wrote every run's settings in full, and no head.
        return [("vepm", row, row["settings"]) for row in [head, *rows]]
    sweep = head["sweep"]
    # Searches of graph sets that name no folds had those of the results.
    shared = "folds" not in sweep and any(task_of(n) == "graph" for n in sweep["datasets"])
    method = sweep["method"] + SHARED * shared
    return [(method, row, {**sweep["base"], **row["changes"]}) for row in rows]


@cache
def _usual(method: str, dataset: str) -> dict[str, Any]:
    if method in BASELINES:
        return baseline(method, dataset).settings()
    sections = preset("tuned", task_of(dataset)).to_dict()
    return sections["model"] | sections["training"]
