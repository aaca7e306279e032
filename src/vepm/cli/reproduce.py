"""The command that reruns the paper: reproduce."""

import contextlib
import difflib
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.table import Table

from vepm import console
from vepm.cli.folders import Kind, how_to_continue, own_folder
from vepm.cli.options import MACHINE, Machine, command, listed
from vepm.errors import InputError
from vepm.escaping import on_one_line

if TYPE_CHECKING:
    from vepm.paper.experiments import Experiment
    from vepm.paper.plan import Selection
    from vepm.paper.runner import Ended

EXPERIMENT = Kind("experiment")
AGAIN = "finished cells are kept: give the same command again to continue"


@command("no_memory_check")
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
    machine: Machine = MACHINE,
) -> None:
    """Rerun tables and figures of the paper, and show ours beside the paper's.

    Finished cells are kept: give the same command again to continue a stopped run. Under torchrun
    the cells are divided among the processes.
    """
    from vepm.evaluation import Compute
    from vepm.paper.experiments import FOLDER, catalogue
    from vepm.paper.plan import PRESET, Selection, check_selection, select, squares
    from vepm.paper.runner import run

    known = catalogue(experiments or FOLDER)
    if list_them:
        table = Table("name", "what it shows", box=None)
        for name, experiment in known.items():
            table.add_row(name, on_one_line(f"{experiment.title}. {experiment.description}"))
        console.out.print(table)
        return
    chosen = _choose(known, names or [], everything)
    chosen_rows, chosen_presets = tuple(rows or ()), tuple(presets or (PRESET,))
    selection = Selection(tuple(listed(datasets)), chosen_rows, seeds, chosen_presets)
    check_selection(chosen, selection)
    folder = output / "quick" if quick else output
    compute = Compute(machine.device, jobs, runs_at_once, shared=True)
    every = {name: squares(e, quick, seeds, selection.presets) for name, e in known.items()}
    planned = [s for e in chosen for s in select(every[e.name], selection)]
    elsewhere = [square for found in every.values() for square in found]
    with contextlib.ExitStack() as held, how_to_continue(lambda: AGAIN):
        for experiment in chosen if compute.leads else ():
            held.enter_context(own_folder(folder / experiment.name, EXPERIMENT))
        with console.run_bar("runs") as progress:
            ended = run(planned, folder, machine.data_dir, compute, elsewhere, progress)
        if compute.leads:
            _show(chosen, selection, folder, ended, quick)
            _conclude(ended, any(s.cells for s in planned))


def _choose(
    known: "dict[str, Experiment]", names: list[str], everything: bool
) -> "list[Experiment]":
    if everything:
        return list(known.values())
    if not names:
        raise InputError("name a table or figure, or give --all; --list names them")
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean '{close[0]}'? " if close else ""
            raise InputError(f"no experiment '{name}'; {hint}`vepm reproduce --list` names them")
    return [known[name] for name in dict.fromkeys(names)]


def _show(
    chosen: "list[Experiment]", selection: "Selection", folder: Path, ended: "Ended", quick: bool
) -> None:
    """Print what was selected; write what is known of the whole experiment."""
    from vepm.paper.plan import EVERY_PRESET, select, squares
    from vepm.paper.results import gather, with_finished_presets
    from vepm.report.paper_figures import draw_figures
    from vepm.report.paper_tables import footnotes, heading, terminal_tables, write_tables

    for experiment in chosen:
        # More seeds than the experiment asks for are shown; fewer are a part of it.
        own = squares(experiment, quick, presets=EVERY_PRESET)
        asked = squares(experiment, quick, selection.seeds, EVERY_PRESET)
        part = select(squares(experiment, quick, selection.seeds, selection.presets), selection)
        if not part:
            continue
        whole = max(own, asked, key=lambda found: sum(len(square.cells) for square in found))
        whole = with_finished_presets(experiment, whole, folder)
        results = gather(experiment, whole, folder, ended, quick)
        paths = write_tables(results, folder / experiment.name)
        paths += draw_figures(results, whole, folder)
        shown = gather(experiment, part, folder, ended, quick)
        console.print_line(heading(shown))
        for table in terminal_tables(shown, console.out.width):
            console.out.print(table, highlight=False)
        for line in footnotes(shown):
            console.print_line(line)
        console.print_line("files: " + " ".join(str(path) for path in paths) + "\n")


def _conclude(ended: "Ended", expected: bool) -> None:
    from vepm.runs.metrics import commit

    for reason in ended.missing.values():
        console.print_note(f"data not here: {reason}")
    for method, reason in ended.absent.items():
        console.print_note(f"{method}: {reason}; pip install 'vepm[{method}]'")
    for reason in dict.fromkeys(ended.failed.values()):
        console.print_note(f"failed: {reason}")
    others = {name: n for name, n in ended.commits.items() if name != commit()}
    if others:
        counts = ", ".join(f"{(name or 'unknown')[:12]} ({n})" for name, n in others.items())
        console.print_note(
            f"of the cells found, {sum(others.values())} ran on other commits: {counts}"
        )
    console.print_line(
        f"{ended.ran} cells computed, {ended.found} found, {len(ended.failed)} failed"
    )
    if expected and ended.missing and not ended.ran + ended.found:
        raise InputError(
            f"none of the data is here: {', '.join(ended.missing)}; name its folder with "
            "--data-dir or VEPM_DATA"
        )
    if ended.failed:
        raise typer.Exit(1)
