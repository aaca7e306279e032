"""The commands that search for better settings: tune and sweep."""

import math
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from vepm import console
from vepm.cli import options
from vepm.cli.folders import Kind, clear, command_line, how_to_continue, own_folder
from vepm.escaping import on_one_line
from vepm.files import refuse_special

if TYPE_CHECKING:
    from vepm.search.log import Trial
    from vepm.search.tuning import Findings

SHOWN = 10
_WARNING = (
    "note: this search has seen labels of most graphs. The test part of `vepm train` it has not; "
    "the folds of `vepm evaluate` test on graphs that it has",
)


def tune(
    dataset: Annotated[
        str, typer.Argument(help="Name of a dataset (see `vepm datasets`) or path to your own.")
    ],
    trials: Annotated[
        int, typer.Option(min=1, help="Trials in all, those already in the folder included.")
    ] = 20,
    output: Annotated[
        Path | None,
        options.result_option("--output", "-o", help="Folder. [default: runs/tune-NAME]"),
    ] = None,
    seeds: Annotated[
        int, typer.Option(min=1, help="Trainings per trial, whose mean scores it.")
    ] = 1,
    timeout: Annotated[
        float | None, typer.Option(min=0, help="Seconds after which no further trial begins.")
    ] = None,
    space: Annotated[
        Path | None,
        options.setting_option(
            help="TOML with the settings to vary: a list of values, or low, high and log."
        ),
    ] = None,
    choice: options.SeededChoice = options.SEEDED,
    reading: options.DirectedReading = options.DIRECTED_READING,
    machine: options.Machine = options.MACHINE,
    overwrite: options.Overwrite = False,
    as_json: options.AsJson = False,
) -> None:
    """Search for better settings by validation accuracy; test labels are never looked at.

    Trial 0 is the settings as given, so the best found are never worse on validation. Hopeless
    trials are stopped early. A search that was stopped, even killed, continues when the same
    command is given again. `--seed` is that of the search; trainings use seeds 0, 1, ...

    Examples:

        vepm tune Cora --trials 20 --output runs/tune-Cora

        vepm train Cora --config runs/tune-Cora/best.toml
    """
    from vepm.cli.inputs import check_model, given_paths, open_data, roles
    from vepm.cli.inputs import settings as chosen_settings
    from vepm.data import require_labels
    from vepm.search.space import default_space, read_space, require_optuna
    from vepm.search.tuning import Problem
    from vepm.search.tuning import tune as search

    require_optuna()
    data = open_data(dataset, machine.data_dir, reading)
    require_labels(data)
    base = chosen_settings(data, choice.preset, choice.config, choice.settings)
    check_model(data, base, machine.device)
    parts = roles(data)
    where = read_space(space) if space is not None else default_space(data.task)
    problem = Problem(data, parts["train"], parts["val"], base, where, seeds, choice.seed)
    folder = output or Path("runs") / f"tune-{data.name}"
    inputs = given_paths(dataset, machine.data_dir, choice.config, space)
    advice = f"finished trials are in {folder}, to continue: {command_line(again=True)}"
    with own_folder(folder, _kind(), inputs), how_to_continue(lambda: advice):
        if overwrite:
            clear(folder, _kind())
        for name in _kind().files:
            refuse_special(folder / name)
        with console.run_bar(f"trials on {data.name}") as progress:
            found = search(
                problem,
                folder,
                trials=trials,
                timeout=timeout,
                device=machine.device,
                told=progress,
                command=command_line(),
            )
    if as_json:
        console.print_json(found.summary())
    else:
        _print_findings(found, folder, dataset)


def _kind() -> Kind:
    from vepm.search.tuning import BEST_FILE, SUMMARY_FILE, TABLE_FILE, TRIALS_FILE

    results = {BEST_FILE: "[model]", TABLE_FILE: "trial,state", SUMMARY_FILE: '"rule"'}
    return Kind("search", (TRIALS_FILE, *results), ({TRIALS_FILE: '{"sweep"'}, results))


def _print_findings(found: "Findings", folder: Path, dataset: str) -> None:
    from vepm.runs.metrics import peak_memory
    from vepm.search.tuning import BEST_FILE
    from vepm.tasks import TASKS

    summary = found.summary()
    table = Table("settings", "trial", "validation accuracy", "validation loss")
    for name in ("default", "best"):
        row = summary[name]
        numbers = f"{100 * row['val_accuracy']:.2f} %", f"{row['val_loss']:.4f}"
        table.add_row(name, str(row["trial"]), *numbers)
    console.out.print(table)
    counts = summary["trials"]
    following = shlex.join(["vepm", "train", dataset, "--config", str(folder / BEST_FILE)])
    for line in (
        f"{100 * summary['improvement']:+.2f} points over the default, on seeds 0 to "
        f"{summary['seeds'][-1]} and {summary['num_val']} {summary['task']}s; the best of many on "
        "the same labels looks better than it is",
        f"rule: {summary['rule']}",
        f"cost: {summary['seconds']:.1f} s in {counts['finished']} trials, {counts['pruned']} "
        f"stopped early, {counts['refused']} impossible; at most "
        f"{peak_memory()['peak_memory_mib']:,.0f} MiB of memory",
        *(_WARNING if not TASKS[summary["task"]].single_graph else ()),
        f"next: {following}",
    ):
        console.print_line(line)


def sweep(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="TOML that says what to try.")],
    output: Annotated[
        Path | None,
        typer.Option(help="File of results; by default beside the TOML, ending in .jsonl."),
    ] = None,
    jobs: Annotated[int, options.machine_option(min=0, help="Processes; 0: one per core.")] = 0,
    minutes: Annotated[
        float, options.machine_option(min=0, help="Begin no run after so long.")
    ] = math.inf,
    runs_at_once: options.RunsAtOnce = 0,
    machine: options.Machine = options.MACHINE,
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
    from vepm.search.log import standings
    from vepm.search.sweeps import Sweep, run_sweep

    chosen = Sweep.read(file)
    path = output or file.with_suffix(".jsonl")
    with console.run_bar("runs") as progress:
        rows = run_sweep(
            chosen,
            path,
            root=machine.data_dir,
            compute=Compute(machine.device, jobs, runs_at_once),
            minutes=minutes,
            progress=progress,
        )
    found = standings(rows)
    _show_standings(found, list(chosen.datasets))
    console.print_line(f"Rule: {chosen.rule}.")
    console.print_line(f"{len(rows)} of {chosen.count} runs are in {path}")


def _show_standings(found: "list[Trial]", datasets: list[str]) -> None:
    table = Table("setting", "mean", *map(on_one_line, datasets), "changes")
    for one in found[:SHOWN]:
        spread = "" if math.isnan(one.spread) else f" ± {100 * one.spread:.1f}"
        changes = ", ".join(f"{name}={value}" for name, value in one.changes.items())
        scores = (f"{100 * one.by_dataset.get(name, math.nan):.1f}" for name in datasets)
        mean = f"{100 * one.val_accuracy:.1f}{spread}"
        shown = on_one_line(changes) or "the settings to improve on"
        table.add_row(str(one.number), mean, *scores, shown)
    console.out.print(table, highlight=False)
