"""The command that searches settings of any method over datasets: sweep."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vepm import console
from vepm.cli.options import MACHINE_PANEL, DataDir, Device, RunsAtOnce
from vepm.escaping import on_one_line

if TYPE_CHECKING:
    from vepm.search import Trial

SHOWN = 10


def sweep(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="TOML that says what to try.")],
    output: Annotated[
        Path | None,
        typer.Option(help="File of results; by default beside the TOML, ending in .jsonl."),
    ] = None,
    jobs: Annotated[
        int,
        typer.Option(min=0, help="Processes; 0: one per core.", rich_help_panel=MACHINE_PANEL),
    ] = 0,
    minutes: Annotated[
        float,
        typer.Option(min=0, help="Begin no run after so long.", rich_help_panel=MACHINE_PANEL),
    ] = math.inf,
    runs_at_once: RunsAtOnce = 0,
    data_dir: DataDir = None,
    device: Device = "auto",
) -> None:
    """Try settings of any method over datasets and seeds, judged on validation alone.

    Unlike `tune`, which improves one run on one graph, a sweep compares the same settings of any
    method across datasets, splits and seeds; presets and baselines are chosen with it. Test
    accuracies are not kept. Finished runs are kept: give the same command again to continue.

    Examples:

        vepm sweep results/search/disengcn.toml --jobs 2

        vepm sweep mine.toml --device cuda --minutes 10
    """
    from vepm.evaluation import Compute
    from vepm.search import Sweep, run_sweep, standings

    chosen = Sweep.read(file)
    path = output or file.with_suffix(".jsonl")
    with console.run_bar("runs") as progress:
        rows = run_sweep(
            chosen,
            path,
            root=data_dir,
            compute=Compute(device, jobs, runs_at_once),
            minutes=minutes,
            progress=progress,
        )
    found = standings(rows)
    _show(found, list(chosen.datasets))
    console.print_line(f"Rule: {chosen.rule}.")
    console.print_line(f"{len(rows)} of {chosen.count} runs are in {path}")


def _show(found: "list[Trial]", datasets: list[str]) -> None:
    from rich.table import Table

    table = Table("setting", "mean", *map(on_one_line, datasets), "changes")
    for one in found[:SHOWN]:
        spread = "" if math.isnan(one.spread) else f" ± {100 * one.spread:.1f}"
        changes = ", ".join(f"{name}={value}" for name, value in one.changes.items())
        scores = (f"{100 * one.by_dataset.get(name, math.nan):.1f}" for name in datasets)
        mean = f"{100 * one.val_accuracy:.1f}{spread}"
        shown = on_one_line(changes) or "the settings to improve on"
        table.add_row(str(one.number), mean, *scores, shown)
    console.out.print(table, highlight=False)
