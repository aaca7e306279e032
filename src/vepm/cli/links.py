"""Command that predicts links."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from vepm import console
from vepm.cli.options import (
    RESULT_PANEL,
    SETTINGS_PANEL,
    AsJson,
    BatchNodes,
    ConfigFile,
    DataDir,
    Device,
    Drop,
    Features,
    Input,
    Label,
    NoMemoryCheck,
    NoWeights,
    NumCommunities,
    Overwrite,
    Preset,
    Seed,
    Settings,
    Strict,
)


def links(
    data: Input,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Folder. [default: runs/NAME-links]",
            rich_help_panel=RESULT_PANEL,
        ),
    ] = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
    top: Annotated[
        int,
        typer.Option(min=1, help="Missing links to write.", rich_help_panel=RESULT_PANEL),
    ] = 100,
    pairs: Annotated[
        Path | None,
        typer.Option(
            help="File with two ids on each line: write how likely these are joined.",
            rich_help_panel=RESULT_PANEL,
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            help="Folder that this command wrote: use its model, also for nodes that are new, "
            "and train nothing.",
            rich_help_panel=SETTINGS_PANEL,
        ),
    ] = None,
    num_communities: NumCommunities = None,
    preset: Preset = "links",
    config: ConfigFile = None,
    settings: Settings = None,
    batch_nodes: BatchNodes = None,
    seed: Seed = 0,
    label: Label = None,
    features: Features = None,
    drop: Drop = None,
    strict: Strict = False,
    no_weights: NoWeights = False,
    device: Device = "auto",
    no_memory_check: NoMemoryCheck = False,
    data_dir: DataDir = None,
) -> None:
    """Predict links: the likeliest missing ones and how surprising each edge is, as CSV.

    A tenth of the edges is held out from training, to calibrate probabilities and to measure how
    well they rank. Each pair comes with the communities that it runs through.

    Examples:

        vepm links KarateClub

        vepm links my-graph/ --pairs candidates.txt

        vepm links grown-graph/ --model runs/my-graph-links
    """
    from vepm.cli import work
    from vepm.cli.inputs import number_or_auto, read_options
    from vepm.cli.models import with_batches

    options = read_options(label, features, drop, strict, no_weights, False)
    chosen, count = with_batches(settings, batch_nodes), number_or_auto(num_communities)
    job = work.link_prediction(data, data_dir, preset, config, chosen, seed, device, count, options)
    job = replace(job, check_memory=not no_memory_check)
    folder = output or Path("runs") / f"{job.data.name}-links"
    metrics = work.find_links(job, folder, overwrite, model, pairs, top)
    console.print_warnings(metrics)
    if as_json:
        console.print_json(metrics)
    else:
        console.print_links(metrics, folder)
