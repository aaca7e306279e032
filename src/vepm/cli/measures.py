"""Commands that measure and show: evaluate, report, bench, datasets."""

import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Column, Table

from vepm import console
from vepm.cli import options
from vepm.cli.folders import RUN, check_output, only_writer
from vepm.errors import InputError
from vepm.files import write_text
from vepm.schema import LARGEST_SEED, MOST_RUNS

if TYPE_CHECKING:
    from vepm.data import Dataset
    from vepm.evaluation import Method
    from vepm.training import Config

protocol_option = functools.partial(typer.Option, rich_help_panel="Protocol")
DEFAULT_SPLITS = 10
MOST_LABELS = 999_999
BENCHMARKS = ("Cora", "PubMed")
SIZES = "100000,1000000,10000000"
QUICK_SIZES = "4000,16000"
FEWEST_EDGES = 4000


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
    console.print_line(f"see: {page}")


def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[DATASET]...",
            help="Datasets of a single graph; Cora and PubMed, where they are at hand, and "
            "generated graphs if none is named.",
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Small graphs and few repeats, within half a minute.")
    ] = False,
    sizes: Annotated[
        str | None,
        typer.Option(
            help="Directed edges of the generated graphs, separated by commas.",
            show_default=SIZES,
        ),
    ] = None,
    repeats: Annotated[
        int, typer.Option(min=1, help="Rounds in which every method trains for a while.")
    ] = 10,
    threads: Annotated[
        int, typer.Option(min=0, help="Threads of the CPU; 0 for one per core.")
    ] = 0,
    output: Annotated[Path, typer.Option(help="Folder for bench.json.")] = Path("runs/bench"),
    device: options.Device = "auto",
    data_dir: options.DataDir = None,
    as_json: options.AsJson = False,
) -> None:
    """Time and memory of a training step beside PyG's GCN and GAT.

    Examples:

        vepm bench --quick

        vepm bench digits

        vepm bench --sizes 100000,1000000 --output runs/bench
    """
    from vepm.bench import Plan, run
    from vepm.data import datasets
    from vepm.training import pick_device

    at_hand = {info.name for info in datasets(data_dir) if info.available}
    usual = () if names or quick else tuple(name for name in BENCHMARKS if name in at_hand)
    generated = QUICK_SIZES if quick else "" if names else SIZES
    plan = Plan(
        device=pick_device(device).type,
        datasets=names or usual,
        edges=_numbers(generated if sizes is None else sizes),
        repeats=min(repeats, 3) if quick else repeats,
        threads=threads,
        data_dir=data_dir,
    )
    with console.err.status("measuring") as status:

        def keep(report: dict[str, Any]) -> None:
            last = report["rows"][-1]
            status.update(f"measuring; done: {last['graph']}, {last['step']}, {last['method']}")
            write_text(output / "bench.json", json.dumps(report, indent=1))

        report = run(plan, keep=keep)
    write_text(output / "bench.json", json.dumps(report, indent=1))
    if as_json:
        print(json.dumps(report))
        return
    console.out.print(as_table(report))
    console.out.print(f"see: {output}", highlight=False)


def _numbers(text: str) -> tuple[int, ...]:
    try:
        found = tuple(int(float(part)) for part in text.split(",")) if text else ()
    except ValueError:
        raise InputError(f"sizes: {text!r} is no list of numbers; give 100000,1000000") from None
    if small := [number for number in found if number < FEWEST_EDGES]:
        raise InputError(f"sizes: {small[0]} edges are too few; give {FEWEST_EDGES} or more")
    return found


def as_table(report: dict[str, Any]) -> Table:
    """Every method with its ratio to ours; above one, ours is faster or smaller."""
    slopes = ", ".join(f"{step} {slope:.2f}" for step, slope in report["slopes"].items())
    caption = f"our time grows with the edges to the power of: {slopes}" if slopes else None
    table = Table(title=report["machine"]["device"], caption=caption)
    for name in ("graph", "edges", "step", "method", "ms", "over ours", "peak MiB", "over ours"):
        words = name in ("graph", "step", "method")
        table.add_column(name, justify="left" if words else "right")
    against = {(r["graph"], r["step"], r["against"]): r for r in report["ratios"]}
    for row in report["rows"]:
        place = (row["graph"], f"{row['edges']:,}", row["step"], row["method"])
        if "error" in row:
            table.add_row(*place, row["error"])
            continue
        ratio = against.get((row["graph"], row["step"], row["method"]), {})
        time, memory = (f"{1 / ratio[k]:.2f}x" if ratio.get(k) else "" for k in ("time", "memory"))
        peak = f"{row['peak_bytes'] / 2**20:,.0f}"
        table.add_row(*place, f"{1e3 * row['median']:,.1f}", time, peak, memory)
    return table


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
