"""The command that reruns the paper: reproduce."""

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.table import Table

from vepm import console
from vepm.cli.folders import Kind, how_to_continue, own_folder
from vepm.cli.options import command, listed
from vepm.errors import InputError
from vepm.escaping import on_one_line
from vepm.schema import unknown

if TYPE_CHECKING:
    from vepm.paper.experiments import Experiment
    from vepm.paper.plan import Square
    from vepm.paper.runner import Ended

EXPERIMENT = Kind("experiment")


@command()
def reproduce(
    names: list[str] | None = None,
    list_them: bool = False,
    everything: bool = False,
    quick: bool = False,
    datasets: str = "",
    rows: list[str] | None = None,
    seeds: int | None = None,
    presets: list[str] | None = None,
    output: Path = Path("results"),
    experiments: Path | None = None,
    jobs: int = 0,
    runs_at_once: int = 0,
    device: str = "auto",
    data_dir: Path | None = None,
) -> None:
    """Rerun tables and figures of the paper, and show ours beside the paper's.

    Finished cells are kept: give the same command again to continue a stopped run. Under torchrun
    the cells are divided among the processes.
    """
    from vepm.evaluation import Compute
    from vepm.paper.experiments import FOLDER, catalogue
    from vepm.paper.plan import PRESET, check_names, select, squares
    from vepm.paper.runner import run

    known = catalogue(experiments or FOLDER)
    if list_them:
        table = Table("name", "what it shows", box=None)
        for name, experiment in known.items():
            table.add_row(name, on_one_line(f"{experiment.title}. {experiment.description}"))
        console.out.print(table)
        return
    wanted = dict.fromkeys(known if everything else names or ())
    if not wanted:
        raise InputError("name a table or figure, or give --all; --list names them")
    for name in wanted:
        if name not in known:
            raise unknown(name, known, "reproduce --list")
    every = {name: squares(e, quick, seeds, presets or [PRESET]) for name, e in known.items()}
    names_of = {"datasets": listed(datasets), "rows": rows or []}
    check_names([square for name in wanted for square in every[name]], **names_of)
    parts = {name: select(every[name], **names_of) for name in wanted}
    planned = [square for part in parts.values() for square in part]
    folder = output / "quick" if quick else output
    compute = Compute(device, jobs, runs_at_once, shared=True)
    elsewhere = [square for found in every.values() for square in found]
    with contextlib.ExitStack() as held, how_to_continue(folder):
        for name in wanted if compute.leads else ():
            held.enter_context(own_folder(folder / name, EXPERIMENT))
        with console.run_bar("runs") as progress:
            ended = run(planned, folder, data_dir, compute, elsewhere, progress)
        if compute.leads:
            for name in (name for name in wanted if parts[name]):
                _show(known[name], parts[name], seeds, folder, ended, quick)
            _conclude(ended, any(s.cells for s in planned))


def _show(
    experiment: "Experiment",
    part: "list[Square]",
    seeds: int | None,
    folder: Path,
    ended: "Ended",
    quick: bool,
) -> None:
    """Print what was selected; write what is known of the whole experiment."""
    from vepm.paper.results import all_squares, gather
    from vepm.report.paper_figures import draw_figures
    from vepm.report.paper_tables import footnotes, heading, terminal_tables, write_tables

    whole = all_squares(experiment, folder, quick, seeds)
    results = gather(experiment, whole, folder, ended, quick)
    paths = write_tables(results, folder / experiment.name)
    paths += draw_figures(results, whole, folder)
    shown = gather(experiment, part, folder, ended, quick)
    console.print_line(heading(shown))
    for table in terminal_tables(shown, console.out.width):
        console.out.print(table, highlight=False)
    for line in (*footnotes(shown), f"files: {' '.join(map(str, paths))}\n"):
        console.print_line(line)


def _conclude(ended: "Ended", expected: bool) -> None:
    notes = [f"data not here: {reason}" for reason in ended.missing.values()]
    for note in (*notes, *(f"failed: {reason}" for reason in dict.fromkeys(ended.failed.values()))):
        console.print_note(note)
    counts = f"{ended.ran} cells computed, {ended.found} found"
    console.print_line(f"{counts}, {len(ended.failed)} failed")
    if expected and ended.missing and not ended.ran + ended.found:
        remedy = "name its folder with --data-dir or VEPM_DATA"
        raise InputError(f"none of the data is here: {', '.join(ended.missing)}; {remedy}")
    if ended.failed:
        raise typer.Exit(1)
