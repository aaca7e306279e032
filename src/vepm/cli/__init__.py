"""The command line: each command a few lines on top of the package.

What a command needs is imported when it runs: help and completion do not wait for it.
"""

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Annotated

import typer

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
    sweep,
    train,
    tune,
)
from vepm.errors import InputError, LostProcessError

RENAMED = {"together": "runs-at-once"}  # former names of options, which still work

app = typer.Typer(
    name="vepm",
    help="Variational edge partition models: classify nodes or graphs, and see the overlapping "
    "communities behind the edges.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"token_normalize_func": lambda word: RENAMED.get(word, word)},
)

UNUSABLE_PATH = (PermissionError, FileExistsError, IsADirectoryError, NotADirectoryError)

MODULES = (train, predict, communities, links, evaluate, tune, sweep, reproduce, report, bench)
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


@contextlib.contextmanager
def _ending_when_told() -> Iterator[None]:
    """Treat SIGTERM as Ctrl-C, but for the exit code."""
    told = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal told
        told = True
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        if told:
            raise SystemExit(128 + signal.SIGTERM) from None
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


def main() -> None:
    """Run the command line; errors that a user can correct take one line and exit code 2."""
    try:
        with _ending_when_told():
            app()
    except (InputError, LostProcessError, OSError, MemoryError) as error:
        console.print_error(error)
        sys.exit(2 if isinstance(error, (InputError, *UNUSABLE_PATH)) else 1)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
