"""Squares of a table: what is measured in each, and what came of it."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from vepm.errors import InputError
from vepm.evaluation import Summary
from vepm.paper.cells import Cell
from vepm.paper.experiments import QUOTED, Metric, Printed


@dataclass(frozen=True, kw_only=True)
class Square:
    """Where a row and a column meet: what is measured there, by which runs, and the paper's."""

    row: str
    column: str
    dataset: str
    method: str
    preset: str | None  # VEPM's, None of other methods
    metric: Metric
    printed: Printed
    cells: tuple[Cell, ...]

    @property
    def quoted(self) -> bool:
        """Whether it only quotes the paper."""
        return self.method == QUOTED


@dataclass(frozen=True, kw_only=True)
class Value(Square):
    """What stands in a square."""

    summaries: tuple[Summary, ...] = ()  # by every rule of the protocol, the main one first
    reason: str = ""  # why some of the planned runs are missing
    seeds: int = 0
    splits: int = 0
    pretrained: bool = False  # whether VEPM had seen all graphs of the set, without labels
    commits: Counter[str | None] = field(default_factory=Counter)

    @property
    def main(self) -> Summary | None:
        """Ours by the protocol's own rule."""
        return self.summaries[0] if self.summaries else None

    @property
    def mark(self) -> str:
        """▲ or ▼ where ours differs by more than our standard error, ≠ from another YES or NO."""
        ours, theirs, metric = self.main, self.printed.value, self.metric
        if self.verdict:
            return "" if self.verdict == theirs else "≠"
        if ours is None or not isinstance(theirs, float) or (ours.n < 2 and not metric.exact):
            return ""
        # Printed numbers are rounded: their last digit decides nothing.
        margin = max(metric.scale * ours.standard_error, 0.5 * 10**-metric.decimals)
        gap = metric.scale * ours.mean - theirs
        return "" if abs(gap) <= margin + 1e-9 else "▲" if gap > 0 else "▼"

    @property
    def verdict(self) -> str:
        """YES or NO where the paper says one of them, by our numbers."""
        yes = self.printed.yes
        if self.main is None or yes is None or self.printed.value not in ("YES", "NO"):
            return ""
        return "YES" if yes[0] <= self.main.mean <= yes[1] else "NO"


def _words(name: str) -> set[str]:
    """Words of a name: GCN is one of "Cora, GCN" and none of "GCN-64"."""
    return set(re.findall(r"[\w=-]+", name.lower()))


def select(
    found: Iterable[Square], datasets: Sequence[str] = (), rows: Sequence[str] = ()
) -> list[Square]:
    """Squares of the datasets, by the paper's name or ours, and of rows that have these words."""
    wanted, words = {name.lower() for name in datasets}, [_words(row) for row in rows]
    return [
        square
        for square in found
        if (not words or any(own <= _words(square.row) for own in words))
        and (not wanted or wanted & {square.dataset.lower(), square.column.lower()})
    ]


def check_names(
    found: Sequence[Square], datasets: Sequence[str] = (), rows: Sequence[str] = ()
) -> None:
    """Refuse a dataset or row that selects no square; the error lists those there are."""
    for name in datasets:
        if not select(found, datasets=[name]):
            known = ", ".join(dict.fromkeys(square.dataset for square in found))
            raise InputError(f"no dataset '{name}' here; there are {known}")
    for name in rows:
        if not select(found, rows=[name]):
            known = ", ".join(dict.fromkeys(square.row for square in found))
            raise InputError(f"no row '{name}' here; there are {known}")
