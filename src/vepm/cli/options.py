"""Options that several commands take, and groups of them that travel as one object."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from vepm.schema import LARGEST_SEED

result_option = functools.partial(typer.Option, rich_help_panel="Result")
setting_option = functools.partial(typer.Option, rich_help_panel="Settings")
own_option = functools.partial(typer.Option, rich_help_panel="Own data")
machine_option = functools.partial(
    typer.Option, rich_help_panel="Where to find things and where to compute"
)

Input = Annotated[str, typer.Argument(metavar="INPUT", help="Dataset name or path.")]
Baselines = Annotated[
    str, result_option(metavar="NAME,NAME", help="Baselines to run on the same labels.")
]
Overwrite = Annotated[
    bool, result_option("--overwrite", help="Replace the run that the folder holds.")
]
AsJson = Annotated[bool, result_option("--json", help="Print JSON and nothing else.")]
NumCommunities = Annotated[
    str | None,
    setting_option(
        "--communities",
        "--num-communities",
        "-c",
        metavar="NUMBER|auto",
        help="Number of communities; auto empties those that links can do without.",
    ),
]
DataDir = Annotated[
    Path | None,
    machine_option("--data-dir", help="PyG root of benchmark datasets.", envvar="VEPM_DATA"),
]
Device = Annotated[str, machine_option(help="auto, cpu or cuda.")]
RunsAtOnce = Annotated[
    int,
    machine_option(
        "--runs-at-once",
        min=0,
        help="Runs of vepm trained as one batch; 0 for as many as pays: all that a GPU holds, "
        "one on a CPU.",
    ),
]


@dataclass(frozen=True)
class Reading:
    """How data of the user's own are read."""

    label: Annotated[str | None, own_option(help="Column of own data with the labels.")] = None
    features: Annotated[
        str | None,
        own_option(
            metavar="NAME,NAME",
            help="Columns of own data to use as features; by default all that can be used.",
        ),
    ] = None
    drop: Annotated[
        str | None, own_option(metavar="NAME,NAME", help="Columns of own data to leave out.")
    ] = None
    strict: Annotated[
        bool,
        own_option(
            "--strict",
            help="Refuse own graphs with self-loops, duplicate or one-way edges; do not correct "
            "them.",
        ),
    ] = False
    no_weights: Annotated[
        bool, own_option("--no-weights", help="Ignore the weights of edges in own data.")
    ] = False
    directed: ClassVar[bool] = False

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
class DirectedReading(Reading):
    """The same, where directions may count."""

    directed: Annotated[  # type: ignore[misc]
        bool,
        own_option(
            "--directed",
            help="Keep the directions of edges in own data: nodes send and receive links.",
        ),
    ] = False


@dataclass(frozen=True)
class Choice:
    """Settings of the model and its training."""

    preset: Annotated[
        str, setting_option(help="Named settings: default, communities, tuned, paper or released.")
    ] = "default"
    config: Annotated[
        Path | None,
        setting_option(
            "--config", help="TOML with [model] and [training] that changes the preset."
        ),
    ] = None
    settings: Annotated[
        list[str] | None,
        setting_option(
            "--set",
            metavar="NAME=VALUE",
            help="One setting, over preset and file; may be given several times.",
        ),
    ] = None


@dataclass(frozen=True)
class SeededChoice(Choice):
    """The same with the seed."""

    seed: Annotated[
        int,
        setting_option(
            min=0,
            max=LARGEST_SEED,
            help="Seed of weights and all draws: the same seed on the same kind of machine with "
            "the same number of threads gives the same bits.",
        ),
    ] = 0


@dataclass(frozen=True)
class TrainingChoice(SeededChoice):
    """The same, where a single graph may be trained in batches."""

    batch_nodes: Annotated[
        int | None,
        setting_option(
            "--batch-nodes",
            min=0,
            help="Nodes of one large graph per step, in clusters; 0 takes it at once.",
        ),
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


@dataclass(frozen=True)
class TrainingMachine(Machine):
    """The same, and whether memory is checked first."""

    no_memory_check: Annotated[
        bool,
        machine_option(
            "--no-memory-check", help="Try what seems too large for the memory there is."
        ),
    ] = False


READING, DIRECTED_READING = Reading(), DirectedReading()
CHOICE, SEEDED, TRAINING = Choice(), SeededChoice(), TrainingChoice()
MACHINE, TRAINING_MACHINE = Machine(), TrainingMachine()


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose groups of options are spread out, an option for each of their fields.

    A parameter whose default is a group of options is such a group; the fields of the default
    are the defaults of the options.
    """
    signature = inspect.signature(command)
    groups: dict[str, Any] = {
        p.name: p.default for p in signature.parameters.values() if is_dataclass(p.default)
    }
    keyword = inspect.Parameter.KEYWORD_ONLY
    options = []
    for parameter in signature.parameters.values():
        group = groups.get(parameter.name)
        if group is None:
            options.append(parameter.replace(kind=keyword))
            continue
        for field in fields(group):
            default = getattr(group, field.name)
            options.append(
                parameter.replace(
                    name=field.name, kind=keyword, default=default, annotation=field.type
                )
            )

    @functools.wraps(command)
    def run(**given: Any) -> None:
        for name, group in groups.items():
            values = {field.name: given.pop(field.name) for field in fields(group)}
            given[name] = type(group)(**values)
        command(**given)

    vars(run)["__signature__"] = signature.replace(parameters=options)
    run.__annotations__ = {option.name: option.annotation for option in options}
    return run


def listed(names: str) -> list[str]:
    """The entries of a comma-separated list, each once."""
    return list(dict.fromkeys(filter(None, (name.strip() for name in names.split(",")))))
