"""Commands that train a model or use one: train, predict, communities."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from vepm import console
from vepm.cli.options import (
    RESULT_PANEL,
    SETTINGS_PANEL,
    AsJson,
    Baselines,
    BatchNodes,
    ConfigFile,
    DataDir,
    Device,
    Directed,
    Drop,
    Features,
    Input,
    Label,
    Log,
    NoMemoryCheck,
    NoWeights,
    NumCommunities,
    Overwrite,
    OwnData,
    Preset,
    Seed,
    Settings,
    Strict,
)
from vepm.errors import InputError
from vepm.files import STDOUT


def with_batches(pairs: list[str] | None, batch_nodes: int | None) -> list[str]:
    """Settings as given, and the nodes of a batch among them."""
    chosen = [] if batch_nodes is None else [f"batch_size={batch_nodes}"]
    return [*(pairs or []), *chosen]


def train(
    dataset: OwnData = "digits",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Run folder. [default: runs/NAME-SEED]",
            rich_help_panel=RESULT_PANEL,
        ),
    ] = None,
    overwrite: Overwrite = False,
    baselines: Baselines = "",
    log: Log = None,
    as_json: AsJson = False,
    preset: Preset = "default",
    config: ConfigFile = None,
    settings: Settings = None,
    batch_nodes: BatchNodes = None,
    seed: Seed = 0,
    label: Label = None,
    features: Features = None,
    drop: Drop = None,
    no_weights: NoWeights = False,
    directed: Directed = False,
    strict: Strict = False,
    device: Device = "auto",
    no_memory_check: NoMemoryCheck = False,
    data_dir: DataDir = None,
) -> None:
    """Train on a dataset and write a run folder with model, metrics, figures and a page.

    An interrupted run goes on where it stopped when the same command is given again. Under
    torchrun all processes train one model together.

    Examples:

        vepm train

        vepm train Cora --data-dir data --set num_metacommunities=4

        vepm train my-graph/ --output runs/mine --baselines gcn,label-propagation

        vepm train planted:nodes=1000000,edges=10000000 --batch-nodes 50000
    """
    from vepm.cli import work
    from vepm.cli.inputs import read_options

    options = read_options(label, features, drop, strict, no_weights, directed)
    pairs = with_batches(settings, batch_nodes)
    job = work.classification(dataset, data_dir, preset, config, pairs, seed, device, options)
    job = replace(job, check_memory=not no_memory_check)
    peers = work.peers(job, baselines)
    folder = output or Path("runs") / f"{job.data.name}-{seed}"
    written = work.train(job, folder, overwrite, peers, log)
    if written is None:
        return
    metrics, page = written
    console.print_warnings(metrics)
    if as_json:
        console.print_json(metrics)
    else:
        console.print_run(metrics, page)


def predict(
    run: Annotated[Path, typer.Argument(help="Run folder written by `vepm train`.")],
    data: Input,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            help="CSV to write; - for standard output.",
            rich_help_panel=RESULT_PANEL,
        ),
    ] = Path("predictions.csv"),
    as_json: AsJson = False,
    samples: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Draws of the communities to average over; 0 for their mean. "
            "[default: as trained]",
            rich_help_panel=SETTINGS_PANEL,
        ),
    ] = None,
    label: Label = None,
    features: Features = None,
    drop: Drop = None,
    no_weights: NoWeights = False,
    directed: Directed = False,
    strict: Strict = False,
    device: Device = "auto",
    data_dir: DataDir = None,
) -> None:
    """Predict labels with probabilities, as CSV.

    Example:

        vepm predict runs/digits-0 digits -o predictions.csv
    """
    from vepm.cli import work
    from vepm.cli.inputs import read_options

    if as_json and output == STDOUT:
        raise InputError("--output - prints the predictions; leave out --json or name a file")
    options = read_options(label, features, drop, strict, no_weights, directed)
    found = work.predict(run, data, data_dir, samples, device, output, options)
    if as_json:
        console.print_json(found)
    elif output != STDOUT:
        console.print_line(f"{found['n']} predictions in {output}")


def communities(
    data: Input,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Folder. [default: runs/NAME-communities]",
            rich_help_panel=RESULT_PANEL,
        ),
    ] = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
    truth: Annotated[
        Path | None,
        typer.Option(
            help="Known communities to compare with: one on each line, as ids of its members, or "
            "a CSV with columns id and community. [default: those of the data, if any]",
            rich_help_panel=RESULT_PANEL,
        ),
    ] = None,
    baselines: Annotated[
        str,
        typer.Option(
            metavar="NAME,NAME",
            help="Methods to compare with: louvain, leiden, label-propagation, bigclam.",
            rich_help_panel=RESULT_PANEL,
        ),
    ] = "",
    num_communities: NumCommunities = None,
    num_metacommunities: Annotated[
        int | None,
        typer.Option(
            "--metacommunities",
            "-k",
            min=1,
            help="Parts of each edge. [default: one per community]",
            rich_help_panel=SETTINGS_PANEL,
        ),
    ] = None,
    starts: Annotated[
        int,
        typer.Option(
            min=1,
            help="Starts with different seeds, each trained for a sixth of the epochs and the "
            "best of them to the end.",
            rich_help_panel=SETTINGS_PANEL,
        ),
    ] = 4,
    preset: Preset = "communities",
    config: ConfigFile = None,
    settings: Settings = None,
    batch_nodes: BatchNodes = None,
    seed: Seed = 0,
    label: Label = None,
    features: Features = None,
    drop: Drop = None,
    no_weights: NoWeights = False,
    directed: Directed = False,
    strict: Strict = False,
    device: Device = "auto",
    no_memory_check: NoMemoryCheck = False,
    data_dir: DataDir = None,
) -> None:
    """Find overlapping communities without labels: memberships and each edge's split, as CSV.

    Communities have the same numbers, from 0, in the CSV files, on the page and in Python.

    Examples:

        vepm communities KarateClub -c 4

        vepm communities my-graph/ --truth circles.txt --baselines louvain,bigclam
    """
    from vepm.cli import work
    from vepm.cli.inputs import number_or_auto, read_options

    options = read_options(label, features, drop, strict, no_weights, directed)
    sizes = (number_or_auto(num_communities), num_metacommunities)
    pairs = with_batches(settings, batch_nodes)
    job = work.detection(data, data_dir, preset, config, pairs, seed, device, sizes, options)
    job.estimator.set_params(n_init=starts)
    job = replace(job, check_memory=not no_memory_check)
    known, peers = work.truth_for(job, truth), work.community_baselines(baselines)
    folder = output or Path("runs") / f"{job.data.name}-communities"
    metrics, page = work.find_communities(job, folder, overwrite, known, peers)
    console.print_warnings(metrics)
    if as_json:
        console.print_json(metrics)
    else:
        console.print_communities(metrics, folder, page)
