"""The command line: each command a few lines on top of the package.

What a command needs is imported when it runs: help and completion do not wait for it.
"""

import contextlib
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from vepm import __version__, console
from vepm.cli import (
    bench,
    communities,
    datasets,
    evaluate,
    links,
    predict,
    report,
    reproduce,
    train,
    tune,
)
from vepm.errors import InputError, LostProcessError

RENAMED = {"together": "runs-at-once"}  # former names of options, which still work

UsageError: Any = typer.BadParameter.__base__  # which Typer does not export


@contextlib.contextmanager
def _on_one_line() -> Iterator[None]:
    try:
        yield
    except UsageError as error:
        where = error.ctx.command_path if error.ctx else "vepm"
        raise InputError(f"{error.format_message().rstrip('.')}; see {where} --help") from None


class _Commands(TyperGroup):
    """What is wrong with the words of a command takes one line, as what is wrong with data does."""

    def make_context(self, info_name: str | None, args: list[str], *more: Any, **extra: Any) -> Any:
        # Without any words there is the help.
        with _on_one_line() if args else contextlib.nullcontext():
            return super().make_context(info_name, args, *more, **extra)

    def invoke(self, ctx: Any) -> Any:
        with _on_one_line():
            return super().invoke(ctx)


app = typer.Typer(
    name="vepm",
    cls=_Commands,
    help="Variational edge partition models: classify nodes or graphs, and see the overlapping "
    "communities behind the edges.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"token_normalize_func": lambda word: RENAMED.get(word, word)},
)

UNUSABLE_PATH = (PermissionError, FileExistsError, IsADirectoryError, NotADirectoryError)

MODULES = (train, predict, communities, links, evaluate, tune, reproduce, report, bench)
NAMES = {module.__name__.rpartition(".")[2]: module for module in (*MODULES, datasets)}
COMMANDS: dict[str, Callable[..., None]] = {name: vars(NAMES[name])[name] for name in NAMES}
for _name, _command in COMMANDS.items():
    app.command(_name)(_command)


@app.callback(invoke_without_command=True)
def _start(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    if version:
        console.out.print(f"vepm {__version__}", highlight=False)
        raise typer.Exit
    console.show_messages()


def main() -> None:
    """Run the command line; errors that a user can correct take one line and exit code 2."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        app()
    except (InputError, LostProcessError, OSError, MemoryError) as error:
        console.print_error(error)
        sys.exit(2 if isinstance(error, (InputError, *UNUSABLE_PATH)) else 1)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
