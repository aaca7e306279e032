"""The command that searches for better settings."""

import contextlib
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from vepm import console
from vepm.cli.folders import Kind, clear, command_line, own_folder
from vepm.cli.options import (
    RESULT_PANEL,
    SETTINGS_PANEL,
    AsJson,
    ConfigFile,
    DataDir,
    Device,
    Overwrite,
    Preset,
    Seed,
    Settings,
    Strict,
)
from vepm.files import refuse_special

if TYPE_CHECKING:
    from vepm.search import Findings


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
        typer.Option(
            "--output", "-o", help="Folder. [default: runs/tune-NAME]", rich_help_panel=RESULT_PANEL
        ),
    ] = None,
    seeds: Annotated[
        int, typer.Option(min=1, help="Trainings per trial, whose mean scores it.")
    ] = 1,
    timeout: Annotated[
        float | None, typer.Option(min=0, help="Seconds after which no further trial begins.")
    ] = None,
    space: Annotated[
        Path | None,
        typer.Option(
            help="TOML with the settings to vary: a list of values, or low, high and log.",
            rich_help_panel=SETTINGS_PANEL,
        ),
    ] = None,
    preset: Preset = "default",
    config: ConfigFile = None,
    settings: Settings = None,
    seed: Seed = 0,
    strict: Strict = False,
    device: Device = "auto",
    data_dir: DataDir = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
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
    from vepm.data import ReadOptions, require_labels
    from vepm.search import Problem, default_space, read_space, require_optuna
    from vepm.search import tune as search

    require_optuna()
    data = open_data(dataset, data_dir, ReadOptions(strict=strict))
    require_labels(data)
    base = chosen_settings(data, preset, config, settings)
    check_model(data, base, device)
    parts = roles(data)
    where = read_space(space) if space is not None else default_space(data.task)
    problem = Problem.of(
        data, parts["train"], parts["val"], base, where, seeds=seeds, sampler_seed=seed
    )
    folder = output or Path("runs") / f"tune-{data.name}"
    inputs = given_paths(dataset, data_dir, config, space)
    with own_folder(folder, _kind(), inputs), _how_to_continue(folder):
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
                device=device,
                told=progress,
                command=command_line(),
            )
    if as_json:
        console.print_json(found.summary())
    else:
        _print_findings(found, folder, dataset)


def _kind() -> Kind:
    from vepm.search import BEST_FILE, FORMER_FILE, SUMMARY_FILE, TABLE_FILE, TRIALS_FILE

    logs = (TRIALS_FILE, FORMER_FILE, f"{FORMER_FILE}-journal")
    results = {BEST_FILE: "[model]", TABLE_FILE: "trial,state", SUMMARY_FILE: '"rule"'}
    return Kind("search", (*logs, *results), ({TRIALS_FILE: '{"sweep"'}, results))


@contextlib.contextmanager
def _how_to_continue(folder: Path) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        typed = [word for word in sys.argv[1:] if word != "--overwrite"]
        again = shlex.join(["vepm", *typed])
        console.print_note(f"stopped; finished trials are in {folder}, to continue: {again}")
        raise


def _print_findings(found: "Findings", folder: Path, dataset: str) -> None:
    from vepm.runs.machine import peak_memory
    from vepm.search import BEST_FILE
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
