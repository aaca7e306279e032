"""Options of the commands: groups of them that travel as one object, and what help says of each."""

import functools
import inspect
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

_DECLARED = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Reading:
    """How data of the user's own are read."""

    label: str | None = None
    features: str | None = None
    drop: str | None = None
    strict: bool = False
    no_weights: bool = False
    directed: bool = False

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

    preset: str = "default"
    config: Path | None = None
    settings: list[str] | None = None
    seed: int = 0
    batch_nodes: int | None = None

    @property
    def pairs(self) -> list[str]:
        """Settings as ``name=value``, the nodes of a batch among them."""
        batches = [] if self.batch_nodes is None else [f"batch_size={self.batch_nodes}"]
        return [*(self.settings or []), *batches]


@dataclass(frozen=True)
class Machine:
    """Where data lie and where to compute."""

    device: str = "auto"
    data_dir: Path | None = None
    no_memory_check: bool = False


CHOICE, READING, MACHINE = Choice(), Reading(), Machine()


def command(*without: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Turn the parameters of a function into options as ``options.toml`` declares them.

    A parameter whose default is a group of options becomes an option for each field of it but
    those left out; the fields of the default are the defaults of the options.
    """

    def spread(function: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(function)
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
        options = [option.replace(annotation=_declared(function, option)) for option in options]

        @functools.wraps(function)
        def run(**given: Any) -> None:
            for name, group in groups.items():
                own = {f.name: given.pop(f.name) for f in fields(group) if f.name in given}
                given[name] = replace(group, **own)
            function(**given)

        examples = _DECLARED["examples"][function.__name__]
        heading = f"Example{'s' if len(examples) > 1 else ''}:"
        shown = (f"    {example}" for example in examples)
        run.__doc__ = "\n\n".join([inspect.getdoc(function) or "", heading, *shown])
        vars(run)["__signature__"] = signature.replace(parameters=options)
        run.__annotations__ = {option.name: option.annotation for option in options}
        return run

    return spread


def _declared(function: Callable[..., None], option: inspect.Parameter) -> Any:
    """The type of an option with what Typer should know of it."""
    found = dict(_DECLARED["all"] | _DECLARED.get(function.__name__, {}))[option.name]
    rest = {key: found[key] for key in found.keys() - {"argument", "panel", "names"}}
    if found.get("argument"):
        return Annotated[option.annotation, typer.Argument(**rest)]
    # Without a name of its own, an option of True or False would have a second, --no-NAME.
    alone = [f"--{option.name.replace('_', '-')}"] if option.annotation is bool else []
    panel = _DECLARED["panels"].get(found.get("panel"))
    names = found.get("names", alone)
    return Annotated[option.annotation, typer.Option(*names, rich_help_panel=panel, **rest)]


def listed(names: str) -> list[str]:
    """The entries of a comma-separated list, each once."""
    return list(dict.fromkeys(filter(None, (name.strip() for name in names.split(",")))))
