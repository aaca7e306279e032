"""Options of the commands: those they share, as one object, and what help says of each."""

import functools
import inspect
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any

import typer

_DECLARED = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Given:
    """Options that commands share: of the result, the settings, own data, and the machine."""

    output: Path | None = None
    overwrite: bool = False
    as_json: bool = False
    preset: str = "default"
    config: Path | None = None
    settings: list[str] | None = None
    seed: int = 0
    batch_nodes: int | None = None
    label: str | None = None
    features: str | None = None
    drop: str | None = None
    strict: bool = False
    no_weights: bool = False
    directed: bool = False
    device: str = "auto"
    data_dir: Path | None = None
    no_memory_check: bool = False


GIVEN = Given()
SETTINGS = ("preset", "config", "settings", "seed", "batch_nodes")


def command(*without: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Turn the parameters of a function into options as ``options.toml`` declares them.

    Its last parameter may be the shared options: each of them but those left out becomes an option
    of the command, with the value that it has there as its default.
    """

    def spread(function: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(function)
        own = [p.replace(kind=p.KEYWORD_ONLY) for p in signature.parameters.values()]
        shared = own.pop().default if own[-1].name == "given" else None
        kept = [] if shared is None else [f for f in fields(shared) if f.name not in without]
        options = own + [
            own[0].replace(name=f.name, default=getattr(shared, f.name), annotation=f.type)
            for f in kept
        ]
        options = [option.replace(annotation=_declared(function, option)) for option in options]

        @functools.wraps(function)
        def run(**values: Any) -> None:
            if shared is not None:
                chosen = {f.name: values.pop(f.name) for f in kept}
                values["given"] = replace(shared, **chosen)
            function(**values)

        examples = _DECLARED["examples"][function.__name__]
        heading = f"Example{'s' if len(examples) > 1 else ''}:"
        shown = (f"    {example}" for example in examples)
        run.__doc__ = "\n\n".join([inspect.getdoc(function) or "", heading, *shown])
        vars(run)["__signature__"] = signature.replace(parameters=options)
        run.__annotations__ = {option.name: option.annotation for option in options}
        return run

    return spread


def _declared(function: Callable[..., None], option: inspect.Parameter) -> Any:
    """The type of an option, annotated for Typer."""
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
