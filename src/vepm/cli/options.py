"""Options that several commands take."""

from pathlib import Path
from typing import Annotated

import typer

DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", help="PyG root of benchmark datasets.", envvar="VEPM_DATA"),
]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Preset = Annotated[str, typer.Option(help="Named settings: tuned, paper or released.")]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", help="TOML with [model] and [training] to start from.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="One setting, as name=value; may be given several times."),
]
Seed = Annotated[int, typer.Option(help="Seed of weights and all draws.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
