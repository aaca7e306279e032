"""vepm sweep: settings of any method compared over datasets, splits and seeds."""

import math
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from vepm import console
from vepm.cli import options
from vepm.escaping import on_one_line

if TYPE_CHECKING:
    from vepm.search.log import Row, Trial

SHOWN = 10


@options.command("no_memory_check")
def sweep(
    file: Path,
    output: Path | None = None,
    jobs: int = 0,
    minutes: float = math.inf,
    runs_at_once: int = 0,
    machine: options.Machine = options.MACHINE,
) -> None:
    """Try settings of any method over datasets and seeds, judged on validation alone.

    Unlike `tune`, which improves one run on one graph, a sweep compares the same settings of any
    method across datasets, splits and seeds; presets and baselines are chosen with it. Test
    accuracies are not kept. Finished runs are kept: give the same command again to continue.
    """
    from vepm.evaluation import Compute
    from vepm.search.log import standings
    from vepm.search.sweeps import Sweep, run_search

    chosen = Sweep.read(file)
    path = output or file.with_suffix(".jsonl")
    compute = Compute(machine.device, jobs, runs_at_once)
    with console.run_bar("runs") as progress:

        def tell(rows: "list[Row]") -> None:
            if progress is not None and rows:
                progress(len(rows), chosen.count, rows[-1]["dataset"])

        root = machine.data_dir
        rows = run_search(chosen, path, root=root, compute=compute, minutes=minutes, told=tell)
    _show(standings(rows)[:SHOWN], chosen.datasets)
    console.print_line(f"Rule: {chosen.rule}.")
    console.print_line(f"{len(rows)} of {chosen.count} runs are in {path}")


def _show(found: "list[Trial]", datasets: list[str]) -> None:
    table = Table("setting", "mean", *map(on_one_line, datasets), "changes")
    for one in found:
        spread = "" if math.isnan(one.spread) else f" ± {100 * one.spread:.1f}"
        changes = ", ".join(f"{name}={value}" for name, value in one.changes.items())
        scores = (f"{100 * one.by_dataset.get(name, math.nan):.1f}" for name in datasets)
        mean = f"{100 * one.val_accuracy:.1f}{spread}"
        shown = on_one_line(changes) or "the settings to improve on"
        table.add_row(str(one.number), mean, *scores, shown)
    console.out.print(table, highlight=False)
