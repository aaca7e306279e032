"""Options that several commands take."""

from pathlib import Path
from typing import Annotated

import typer

from vepm.schema import LARGEST_SEED

SETTINGS_PANEL = "Settings"
RESULT_PANEL = "Result"
DATA_PANEL = "Own data"
MACHINE_PANEL = "Where to find things and where to compute"

OwnData = Annotated[
    str,
    typer.Argument(
        help="Name of a dataset (see `vepm datasets`), or path to your own: a folder with "
        "edges.csv and nodes.csv, or a .graphml, .gml, .gexf, .npz or .edgelist file."
    ),
]
Input = Annotated[str, typer.Argument(metavar="INPUT", help="Dataset name or path.")]
Baselines = Annotated[
    str,
    typer.Option(
        metavar="NAME,NAME",
        help="Baselines to run on the same labels.",
        rich_help_panel=RESULT_PANEL,
    ),
]
Log = Annotated[
    str | None,
    typer.Option(
        help="tensorboard: every term and figure, for `tensorboard --logdir`.",
        rich_help_panel=RESULT_PANEL,
    ),
]
DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        help="PyG root of benchmark datasets.",
        envvar="VEPM_DATA",
        rich_help_panel=MACHINE_PANEL,
    ),
]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.", rich_help_panel=MACHINE_PANEL)]
RunsAtOnce = Annotated[
    int,
    typer.Option(
        "--runs-at-once",
        min=0,
        help="Runs of vepm trained as one batch; 0 for as many as pays: all that a GPU holds, "
        "one on a CPU.",
        rich_help_panel=MACHINE_PANEL,
    ),
]
Preset = Annotated[
    str,
    typer.Option(
        help="Named settings: default, communities, tuned, paper or released.",
        rich_help_panel=SETTINGS_PANEL,
    ),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        help="TOML with [model] and [training] that changes the preset.",
        rich_help_panel=SETTINGS_PANEL,
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="One setting, over preset and file; may be given several times.",
        rich_help_panel=SETTINGS_PANEL,
    ),
]
BatchNodes = Annotated[
    int | None,
    typer.Option(
        "--batch-nodes",
        min=0,
        help="Nodes of one large graph per step, in clusters; 0 takes it at once.",
        rich_help_panel=SETTINGS_PANEL,
    ),
]
NoMemoryCheck = Annotated[
    bool,
    typer.Option(
        "--no-memory-check",
        help="Try what seems too large for the memory there is.",
        rich_help_panel=MACHINE_PANEL,
    ),
]
Seed = Annotated[
    int,
    typer.Option(
        min=0,
        max=LARGEST_SEED,
        help="Seed of weights and all draws: the same seed on the same kind of machine with the "
        "same number of threads gives the same bits.",
        rich_help_panel=SETTINGS_PANEL,
    ),
]
Overwrite = Annotated[
    bool,
    typer.Option(
        "--overwrite",
        help="Replace the run that the folder holds.",
        rich_help_panel=RESULT_PANEL,
    ),
]
Strict = Annotated[
    bool,
    typer.Option(
        "--strict",
        help="Refuse own graphs with self-loops, duplicate or one-way edges; do not correct them.",
        rich_help_panel=DATA_PANEL,
    ),
]
NoWeights = Annotated[
    bool,
    typer.Option(
        "--no-weights",
        help="Ignore the weights of edges in own data.",
        rich_help_panel=DATA_PANEL,
    ),
]
Directed = Annotated[
    bool,
    typer.Option(
        "--directed",
        help="Keep the directions of edges in own data: nodes send and receive links.",
        rich_help_panel=DATA_PANEL,
    ),
]
Label = Annotated[
    str | None,
    typer.Option(help="Column of own data with the labels.", rich_help_panel=DATA_PANEL),
]
Features = Annotated[
    str | None,
    typer.Option(
        metavar="NAME,NAME",
        help="Columns of own data to use as features; by default all that can be used.",
        rich_help_panel=DATA_PANEL,
    ),
]
Drop = Annotated[
    str | None,
    typer.Option(
        metavar="NAME,NAME", help="Columns of own data to leave out.", rich_help_panel=DATA_PANEL
    ),
]
AsJson = Annotated[
    bool,
    typer.Option("--json", help="Print JSON and nothing else.", rich_help_panel=RESULT_PANEL),
]
NumCommunities = Annotated[
    str | None,
    typer.Option(
        "--communities",
        "--num-communities",
        "-c",
        metavar="NUMBER|auto",
        help="Number of communities; auto empties those that links can do without.",
        rich_help_panel=SETTINGS_PANEL,
    ),
]
