"""Commands that measure and show: evaluate, report, datasets."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from vepm import console
from vepm.baselines import baseline
from vepm.cli.options import AsJson, ConfigFile, DataDir, Device, Preset, Settings
from vepm.data import datasets
from vepm.protocols import Method, VEPMMethod, evaluate_in_parallel, splits_for
from vepm.report import write_report


def evaluate(
    dataset: Annotated[str, typer.Argument(help="Dataset name or path.")],
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds.")] = 1,
    first_seed: Annotated[int, typer.Option(help="The first of them.")] = 0,
    protocol: Annotated[
        str,
        typer.Option(help="public, gin or capsgnn. [default: public for nodes, gin for graphs]"),
    ] = "",
    method: Annotated[str, typer.Option(help="vepm or the name of a baseline.")] = "vepm",
    preset: Preset = "tuned",
    config: ConfigFile = None,
    settings: Settings = None,
    jobs: Annotated[int, typer.Option(min=0, help="Runs at a time; 0 for one per core.")] = 0,
    device: Device = "auto",
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Measure accuracy by a protocol: many seeds or folds, mean and spread, and the rule.

    Examples:

        vepm evaluate Cora --seeds 10

        vepm evaluate MUTAG --protocol gin --json
    """
    data = console.open_data(dataset, data_dir)
    splits, rules = splits_for(data, protocol)
    chosen = console.settings(data, preset, config, settings)
    if rules[0] == "gin":
        chosen = chosen.replace(patience=0)
    if method == "vepm":
        runner: Method = VEPMMethod(chosen, device)
    else:
        runner = baseline(method, data.name)
    with console.run_bar(f"{method} on {data.name}") as progress:
        results = evaluate_in_parallel(
            runner, data, splits, range(first_seed, first_seed + seeds), jobs, progress
        )
    console.print_evaluation(results, rules, as_json)


def report(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
) -> None:
    """Write the page of a run again: one self-contained HTML file.

    Example:

        vepm report runs/digits-0
    """
    console.out.print(f"look: {write_report(run)}", highlight=False)


def list_datasets(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """What can be loaded, and from where."""
    found = datasets(data_dir)
    if as_json:
        print(json.dumps([vars(info) for info in found]))
        return
    table = Table("name", "task", "here now", "source", "what it is")
    for info in found:
        here = "yes" if info.available else "no"
        table.add_row(info.name, info.task, here, info.source, info.description)
    console.out.print(table)
    console.out.print("Your own: a folder with edges.csv and nodes.csv, a .graphml or a .npz file.")
