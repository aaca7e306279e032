"""Options that several commands take, and groups of them that travel as one object."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from vepm.schema import LARGEST_SEED


def _in_panel(panel: str | None) -> Callable[..., Any]:
    """Makes options for a panel of the help: what it says of them, their names if any, the rest."""

    def option(help: str, *names: str, **rest: Any) -> Any:  # noqa: A002
        return typer.Option(*names, help=help, rich_help_panel=panel, **rest)

    return option


option, result, setting = _in_panel(None), _in_panel("Result"), _in_panel("Settings")
where = _in_panel("Where to find things and where to compute")
_own, protocol = _in_panel("Own data"), _in_panel("Protocol")

Input = Annotated[str, typer.Argument(metavar="INPUT", help="Dataset name or path.")]
Baselines = Annotated[str, result("Baselines to run on the same labels.", metavar="NAME,NAME")]
Overwrite = Annotated[bool, result("Replace the run that the folder holds.", "--overwrite")]
AsJson = Annotated[bool, result("Print JSON and nothing else.", "--json")]
NumCommunities = Annotated[
    str | None,
    setting(
        "Number of communities; auto empties those that links can do without.",
        "--communities",
        "--num-communities",
        "-c",
        metavar="NUMBER|auto",
    ),
]
DataDir = Annotated[Path | None, where("PyG root of benchmark datasets.", envvar="VEPM_DATA")]
Device = Annotated[str, where("auto, cpu or cuda.")]
RunsAtOnce = Annotated[
    int,
    where(
        "Runs of vepm trained as one batch; 0 for as many as pays: all that a GPU holds, "
        "one on a CPU.",
        min=0,
    ),
]


@dataclass(frozen=True)
class Reading:
    """How data of the user's own are read."""

    label: Annotated[str | None, _own("Column of own data with the labels.")] = None
    features: Annotated[
        str | None,
        _own(
            "Columns of own data to use as features; by default all that can be used.",
            metavar="NAME,NAME",
        ),
    ] = None
    drop: Annotated[str | None, _own("Columns of own data to leave out.", metavar="NAME,NAME")] = (
        None
    )
    strict: Annotated[
        bool,
        _own(
            "Refuse own graphs with self-loops, duplicate or one-way edges; do not correct them.",
            "--strict",
        ),
    ] = False
    no_weights: Annotated[
        bool, _own("Ignore the weights of edges in own data.", "--no-weights")
    ] = False
    directed: Annotated[
        bool,
        _own(
            "Keep the directions of edges in own data: nodes send and receive links.", "--directed"
        ),
    ] = False

    def arguments(self) -> dict[str, Any]:
        """The arguments of :func:`vepm.data.read`."""
        return {
            "label": self.label,
            "features": None if self.features is None else listed(self.features),
            "drop": listed(self.drop or ""),
            "strict": self.strict,
            "weights": not self.no_weights,
            "directed": self.directed,
        }


@dataclass(frozen=True)
class Choice:
    """Settings of the model and its training."""

    preset: Annotated[
        str, setting("Named settings: default, communities, tuned, paper or released.")
    ] = "default"
    config: Annotated[
        Path | None, setting("TOML with [model] and [training] that changes the preset.")
    ] = None
    settings: Annotated[
        list[str] | None,
        setting(
            "One setting, over preset and file; may be given several times.",
            "--set",
            metavar="NAME=VALUE",
        ),
    ] = None
    seed: Annotated[
        int,
        setting(
            "Seed of weights and all draws: the same seed on the same kind of machine with "
            "the same number of threads gives the same bits.",
            min=0,
            max=LARGEST_SEED,
        ),
    ] = 0
    batch_nodes: Annotated[
        int | None,
        setting("Nodes of one large graph per step, in clusters; 0 takes it at once.", min=0),
    ] = None

    @property
    def pairs(self) -> list[str]:
        """Settings as ``name=value``, the nodes of a batch among them."""
        batches = [] if self.batch_nodes is None else [f"batch_size={self.batch_nodes}"]
        return [*(self.settings or []), *batches]


@dataclass(frozen=True)
class Machine:
    """Where data lie and where to compute."""

    device: Device = "auto"
    data_dir: DataDir = None
    no_memory_check: Annotated[
        bool, where("Try what seems too large for the memory there is.", "--no-memory-check")
    ] = False


CHOICE, READING, MACHINE = Choice(), Reading(), Machine()


def with_groups(*without: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Turn a command's groups of options into options, one for each field but those left out.

    A parameter whose default is a group of options is such a group; the fields of the default
    are the defaults of the options.
    """

    def spread(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command)
        groups: dict[str, Any] = {}
        options = []
        for parameter in signature.parameters.values():
            option = parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            group = parameter.default
            if not is_dataclass(group):
                options.append(option)
                continue
            groups[parameter.name] = group
            options += [
                option.replace(name=f.name, default=getattr(group, f.name), annotation=f.type)
                for f in fields(group)
                if f.name not in without
            ]

        @functools.wraps(command)
        def run(**given: Any) -> None:
            for name, group in groups.items():
                own = {f.name: given.pop(f.name) for f in fields(group) if f.name in given}
                given[name] = replace(group, **own)
            command(**given)

        vars(run)["__signature__"] = signature.replace(parameters=options)
        run.__annotations__ = {option.name: option.annotation for option in options}
        return run

    return spread


def listed(names: str) -> list[str]:
    """The entries of a comma-separated list, each once."""
    return list(dict.fromkeys(filter(None, (name.strip() for name in names.split(",")))))
