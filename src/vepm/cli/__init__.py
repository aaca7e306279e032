"""The command line: each command a few lines on top of the package.

What a command needs is imported when it runs: help and completion do not wait for it.
"""

import signal
import sys
from collections.abc import Callable
from typing import Annotated, Any

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
    train,
    tune,
)
from vepm.errors import InputError, LostProcessError

RENAMED = {"together": "runs-at-once"}  # former names of options, which still work

UsageError: Any = typer.BadParameter.__base__  # which Typer does not export

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
        sys.exit(app(standalone_mode=False))
    except UsageError as error:
        if len(sys.argv) > 1:
            where = error.ctx.command_path if error.ctx else "vepm"
            text = f"{error.format_message().rstrip('.')}; see {where} --help"
            console.print_error(InputError(text))
        else:
            error.show()
        sys.exit(error.exit_code)
    except (InputError, LostProcessError, OSError, MemoryError) as error:
        console.print_error(error)
        sys.exit(2 if isinstance(error, (InputError, *UNUSABLE_PATH)) else 1)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(128 + signal.SIGINT)
