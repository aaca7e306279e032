"""Commands that measure and show: evaluate, report, datasets."""

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Column, Table

from vepm import console
from vepm.cli import options
from vepm.cli.folders import RUN, check_output, only_writer
from vepm.errors import InputError
from vepm.schema import LARGEST_SEED, MOST_RUNS

if TYPE_CHECKING:
    from vepm.data import Dataset
    from vepm.evaluation import Method
    from vepm.training import Config

protocol_option = functools.partial(typer.Option, rich_help_panel="Protocol")
DEFAULT_SPLITS = 10
MOST_LABELS = 999_999


def evaluate(
    dataset: Annotated[str, typer.Argument(help="Dataset name or path.")],
    protocol: Annotated[
        str,
        protocol_option(
            help="public, gin, capsgnn or few-labels. [default: public for nodes, gin for graphs]"
        ),
    ] = "",
    seeds: Annotated[int, protocol_option(min=1, max=MOST_RUNS, help="Number of seeds.")] = 1,
    first_seed: Annotated[
        int, protocol_option(min=0, max=LARGEST_SEED - MOST_RUNS, help="The first of them.")
    ] = 0,
    folds: Annotated[int, protocol_option(min=2, help="Folds of gin and capsgnn.")] = 10,
    labels_per_class: Annotated[
        int | None,
        protocol_option(
            min=1,
            max=MOST_LABELS,
            help="Random splits with so many training labels of every class: few-labels.",
        ),
    ] = None,
    splits: Annotated[
        int | None,
        protocol_option(min=1, max=MOST_RUNS, help="Random splits of few-labels. [default: 10]"),
    ] = None,
    baselines: options.Baselines = "",
    method: Annotated[str, options.setting_option(help="vepm or the name of a baseline.")] = "vepm",
    choice: options.Choice = options.CHOICE,
    as_json: options.AsJson = False,
    jobs: Annotated[
        int, options.machine_option(min=0, help="Runs at a time; 0 for one per core.")
    ] = 0,
    runs_at_once: options.RunsAtOnce = 0,
    reading: options.DirectedReading = options.DIRECTED_READING,
    machine: options.Machine = options.MACHINE,
) -> None:
    """Measure accuracy by a protocol: many seeds or folds, mean and spread, and the rule.

    Under torchrun the runs are divided among the processes.

    Examples:

        vepm evaluate Cora --seeds 10

        vepm evaluate MUTAG --protocol gin --json

        vepm evaluate my-graph/ --labels-per-class 20 --baselines gcn,gat,label-propagation
    """
    from vepm.cli.inputs import open_data, protocol_splits
    from vepm.cli.inputs import settings as settings_from
    from vepm.data import require_labels
    from vepm.evaluation import Compute
    from vepm.evaluation import evaluate as run_all

    data = open_data(dataset, machine.data_dir, reading)
    require_labels(data)
    protocol, count = _protocol(protocol, labels_per_class, splits, folds)
    parts, rules = protocol_splits(data, protocol, count)
    chosen = settings_from(data, choice.preset, choice.config, choice.settings)
    if rules[0] == "gin":
        # One epoch is chosen for all folds, so all must run equally long.
        chosen = chosen.replace(patience=0)
    if method != "vepm" and (choice.settings or choice.config):
        raise InputError("--set and --config are for vepm; baselines keep their published settings")
    compute = Compute(machine.device, jobs, runs_at_once, shared=True)
    names = dict.fromkeys([method, *options.listed(baselines)])
    runners = [_runner(name, data, chosen, compute.own_device) for name in names]
    every_seed = range(first_seed, first_seed + seeds)
    measured = []
    for name, runner in zip(names, runners, strict=True):
        with console.run_bar(f"{name} on {data.name}") as progress:
            measured.append(run_all(runner, data, parts, every_seed, progress, compute))
    if compute.leads:
        console.print_evaluation(measured, rules, as_json, data.class_names)


def _protocol(
    name: str, labels_per_class: int | None, splits: int | None, folds: int
) -> tuple[str, int]:
    """The protocol that the options ask for, and its number of splits or folds."""
    if labels_per_class is not None:
        if name not in ("", "few-labels"):
            raise InputError(f"--labels-per-class is for few-labels, not for protocol {name}")
        name = f"few-labels-{labels_per_class}"
    if name.startswith("few-labels"):
        return name, DEFAULT_SPLITS if splits is None else splits
    if splits is not None:
        raise InputError("--splits counts random splits; give --labels-per-class too, or --folds")
    return name, folds


def _runner(method: str, data: "Dataset", chosen: "Config", device: str) -> "Method":
    from vepm.cli.inputs import check_model, chosen_baseline
    from vepm.evaluation import VEPMMethod

    if method != "vepm":
        return chosen_baseline(method, data, device)
    check_model(data, chosen, device)
    return VEPMMethod(chosen, device)


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folder, or several.")],
    output: Annotated[
        Path, options.result_option("--output", "-o", help="The page that compares several runs.")
    ] = Path("comparison.html"),
) -> None:
    """Write the page of a run again, or one page that compares several runs.

    Examples:

        vepm report runs/digits-0

        vepm report runs/digits-0 runs/digits-1 -o comparison.html
    """
    from vepm.report import write_comparison, write_report

    for run in runs:
        if not run.is_dir():
            raise InputError(f"{run}: no such run folder; `vepm train` writes one")
    if len(runs) > 1:
        check_output(output, tuple(path for run in runs for path in RUN.found(run)))
        page = write_comparison(runs, output)
    else:
        with only_writer(runs[0]):
            page = write_report(runs[0])
    console.print_line(f"look: {page}")


def list_datasets(data_dir: options.DataDir = None, as_json: options.AsJson = False) -> None:
    """What can be loaded, and from where.

    Example:

        vepm datasets --data-dir data
    """
    from vepm.data import datasets
    from vepm.data.registry import RECIPES

    found = datasets(data_dir)
    if as_json:
        console.print_json([vars(info) for info in found])
        return
    table = Table(Column("name", no_wrap=True), "task", "here now", "source", "what it is")
    for info in found:
        here = "yes" if info.available else "no"
        table.add_row(info.name, info.task, here, info.source, info.description)
    console.out.print(table)
    console.print_line(
        "Your own: a folder with edges.csv and nodes.csv, or a .graphml, .gml, .gexf, .npz or "
        ".edgelist file.\nGenerated, of any size:"
    )
    for name, (_, settings) in RECIPES.items():
        console.print_line(f"  {name}:NAME=VALUE,... with {', '.join(settings)}")
