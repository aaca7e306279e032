"""Where a run goes: the files and functions of vepm between a command and its page.

    python -m tools.trace_run train Cora --device cpu

prints a table of the files in the order they are reached, and rewrites the one in CONTRIBUTING.md
with ``--write``. Imports are not counted, nor is what draws the page.
"""

import importlib
import inspect
import pkgutil
import sys
import tempfile
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import vepm
from vepm.cli import main
from vepm.files import write_text

ROOT = Path(vepm.__file__).parent
PAGE = Path(__file__).resolve().parents[1] / "CONTRIBUTING.md"
BEGIN, END = "<!-- where a run goes -->\n", "<!-- end -->\n"
SHORT = ("--set", "epochs=3", "--set", "pretrain_epochs=3", "--overwrite")
LAST = "write_report"
"""The function with which the page begins."""

Found = dict[str, set[str]]
"""Functions that were called, by file."""


def trace(words: list[str]) -> Found:
    """Run a command of vepm and note the functions it passes through."""
    found: Found = {}
    ended = False

    def note(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal ended
        code = frame.f_code
        ended = ended or (code.co_name == LAST and _is_ours(code))
        if event == "call" and not ended and _is_ours(code) and not code.co_name.startswith("<"):
            path = str(Path(code.co_filename).relative_to(ROOT))
            found.setdefault(path, set()).add(code.co_qualname)

    sys.argv = ["vepm", *words]
    sys.setprofile(note)
    try:
        main()
    except SystemExit as stop:
        if stop.code:
            raise
    finally:
        sys.setprofile(None)
    return found


def _is_ours(code: CodeType) -> bool:
    # Bodies of modules and classes run when they are imported, and are no functions.
    return bool(code.co_flags & inspect.CO_OPTIMIZED) and code.co_filename.startswith(str(ROOT))


def table(words: list[str], found: Found) -> str:
    """The files in the order they are reached, with what each is for."""
    functions = sum(map(len, found.values()))
    lines = [
        f"`vepm {' '.join(words)}` passes through {len(found)} files and {functions} functions of "
        "`src/vepm` before its page is drawn, in this order:",
        "",
        "| file | functions | what it is for |",
        "|---|---|---|",
    ]
    for path, names in found.items():
        module = importlib.import_module("vepm." + path.removesuffix(".py").replace("/", "."))
        purpose = (module.__doc__ or "").strip().partition("\n")[0].rstrip(".")
        lines.append(f"| `{path}` | {len(names)} | {purpose} |")
    return "\n".join(lines) + "\n"


def run(words: list[str], write: bool) -> None:
    """Trace a command in a folder of its own; print the table or write it into the page."""
    for module in pkgutil.walk_packages(vepm.__path__, "vepm."):
        if "triton" not in module.name and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    with tempfile.TemporaryDirectory() as folder:
        found = trace([*words, *SHORT, "--output", folder])
    text = table(words, found)
    if not write:
        print(text)
        return
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    write_text(PAGE, before + BEGIN + text + END + rest.partition(END)[2])


if __name__ == "__main__":
    given = [word for word in sys.argv[1:] if word != "--write"]
    run(given or ["train", "Cora", "--device", "cpu"], "--write" in sys.argv)
