"""How many numbers of the paper's tables are measured here, and why the others are not."""

from collections import Counter

from results import ROOT, grid
from vepm.paper.experiments import catalogue
from vepm.paper.plan import PRESET, PRESET_ROWS, Value, squares
from vepm.paper.results import gather
from vepm.paper.runner import Ended

NOT_AT_HAND = ("WikiCS", "REDDIT-MULTI-5K")
LABELS = "needs labels of edges, which these copies of the data lack"
NO_REFERENCE = "has no reference to check a baseline of our own against"
WHY_QUOTED = {
    "R-GCN": LABELS,
    "CompGCN": LABELS,
    "WGCAE": NO_REFERENCE,
    "GCAPS-CNN": NO_REFERENCE,
}
STATES = ("measured", "in part", "quoted", "impossible", "to be run")
PRESETS = ("paper", "released")


def counts() -> str:
    """A line per table: how many numbers the paper prints, and what has become of them here."""
    rows, reasons = [], Counter[str]()
    for name in (name for name in catalogue() if name.startswith("table-")):
        found = [(_state(value), value) for value in _printed(name, PRESET)]
        states = Counter(state for state, _ in found)
        reasons.update(_reason(*one) for one in found if one[0] in ("quoted", "impossible"))
        numbers = [len(found), *(states[state] for state in STATES)]
        rows.append([name, *map(str, numbers), *(_of_preset(name, preset) for preset in PRESETS)])
    totals = [str(sum(int(row[i]) for row in rows)) for i in range(1, 2 + len(STATES))]
    header = ["", "printed", *STATES, *(f"VEPM {PRESET_ROWS[preset]}" for preset in PRESETS)]
    why = (f"- {what}: {number} squares" for what, number in sorted(reasons.items()))
    return "\n".join([grid(header, [*rows, ["all", *totals, "", ""]]), "", *why])


def _printed(name: str, preset: str) -> list[Value]:
    experiment = catalogue()[name]
    chosen = squares(experiment, presets=(preset,))
    found = gather(experiment, chosen, ROOT / "results", Ended(), quick=False)
    return [value for value in found.values if value.printed.value is not None]


def _of_preset(name: str, preset: str) -> str:
    """How many numbers of VEPM are measured with a preset."""
    own = [v for v in _printed(name, preset) if v.preset == preset and v.method != "quoted"]
    own = [v for v in own if PRESET_ROWS[preset] in f"{v.row} {v.column}"]
    return f"{sum(value.main is not None for value in own)} of {len(own)}"


def _state(value: Value) -> str:
    if value.main is not None:
        return "measured" if value.main.n == len(value.cells) else "in part"
    if value.dataset in NOT_AT_HAND and not value.quoted:
        return "impossible"
    return "quoted" if value.quoted else "to be run"


def _reason(state: str, value: Value) -> str:
    if state == "impossible":
        return f"impossible, {value.dataset}: the data are not at hand"
    return f"quoted, {value.row}: {WHY_QUOTED.get(value.row, 'no baseline of our own')}"
