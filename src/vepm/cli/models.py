"""Commands that train a model or use one: train, predict, communities."""

from pathlib import Path
from typing import Annotated

import typer

from vepm import console
from vepm.cli.options import (
    RESULT_PANEL,
    SETTINGS_PANEL,
    AsJson,
    Baselines,
    ConfigFile,
    DataDir,
    Device,
    Input,
    Log,
    Overwrite,
    OwnData,
    Preset,
    Seed,
    Settings,
    Strict,
)


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
    preset: Preset = "tuned",
    config: ConfigFile = None,
    settings: Settings = None,
    seed: Seed = 0,
    strict: Strict = False,
    device: Device = "auto",
    data_dir: DataDir = None,
) -> None:
    """Train on a dataset and write a run folder with model, metrics, figures and a page.

    An interrupted run goes on where it stopped when the same command is given again.

    Examples:

        vepm train

        vepm train Cora --data-dir data --set num_metacommunities=4

        vepm train my-graph/ --output runs/mine --baselines gcn,label-propagation
    """
    from vepm.cli import work

    job = work.classification(dataset, data_dir, preset, config, settings, seed, device, strict)
    peers = work.peers(job, baselines)
    folder = output or Path("runs") / f"{job.data.name}-{seed}"
    metrics, page = work.train(job, folder, overwrite, peers, log)
    if as_json:
        console.print_json(metrics)
    else:
        console.print_run(metrics, page)


def predict(
    run: Annotated[Path, typer.Argument(help="Run folder written by `vepm train`.")],
    data: Input,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="CSV to write.", rich_help_panel=RESULT_PANEL),
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
    strict: Strict = False,
    device: Device = "auto",
    data_dir: DataDir = None,
) -> None:
    """Predict labels with probabilities, as CSV.

    Example:

        vepm predict runs/digits-0 digits -o predictions.csv
    """
    from vepm.cli import work

    found = work.predict(run, data, data_dir, samples, device, output, strict)
    if as_json:
        console.print_json(found)
    else:
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
    num_communities: Annotated[
        int | None,
        typer.Option(
            "--communities",
            "-c",
            min=1,
            help="Number of communities.",
            rich_help_panel=SETTINGS_PANEL,
        ),
    ] = None,
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
    preset: Preset = "tuned",
    config: ConfigFile = None,
    settings: Settings = None,
    seed: Seed = 0,
    strict: Strict = False,
    device: Device = "auto",
    data_dir: DataDir = None,
) -> None:
    """Find overlapping communities without labels: memberships and each edge's split, as CSV.

    Example:

        vepm communities KarateClub -c 4 -k 4
    """
    from vepm.cli import work

    sizes = (num_communities, num_metacommunities or num_communities)
    job = work.detection(data, data_dir, preset, config, settings, seed, device, sizes, strict)
    folder = output or Path("runs") / f"{job.data.name}-communities"
    metrics, page = work.find_communities(job, folder, overwrite)
    if as_json:
        console.print_json(metrics)
    else:
        console.print_communities(metrics, folder, page)
