"""Pages whose code runs: what they hold, and what it prints.

``python tests/docs/pages.py`` runs them all and writes the outputs into the pages. On pages,
``python`` and ``bash`` fences are run, ``shell`` fences are only shown, and a ``text`` fence
right after a run one is its output. A fence below a comment that it needs ``VEPM_DATA`` is run
where that is set.
"""

import contextlib
import io
import os
import re
import shlex
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [
    "start.md",
    "is-it-for-me.md",
    "tutorials/nodes.md",
    "tutorials/graphs.md",
    "tutorials/communities.md",
    "tutorials/own-data.md",
    "tutorials/large.md",
    "tutorials/layers.md",
    "tutorials/coming-from.md",
    "tutorials/hidden-relations.md",
    "how-it-works.md",
    "settings.md",
]
FENCE = re.compile(
    r"(?P<needs>^<!-- needs VEPM_DATA -->\n)?"
    r"^```(python|bash)\n(?P<code>.*?)^```\n(?:\n```text\n(?P<output>.*?)^```\n)?",
    re.DOTALL | re.MULTILINE,
)
FEW_EPOCHS = ["--set", "pretrain_epochs=2", "--set", "epochs=2"]
TRAINING = ("train", "communities", "evaluate")


class Block(NamedTuple):
    """A piece of code on a page."""

    kind: str
    code: str
    output: str | None
    line: int
    needs_data: bool = False


def blocks(text: str) -> list[Block]:
    """The code of a page that is run, in order."""
    return [
        Block(
            found[2],
            found["code"],
            found["output"],
            text.count("\n", 0, found.start(2)) + 1,
            found["needs"] is not None,
        )
        for found in FENCE.finditer(text)
    ]


def run(text: str, page: str) -> Iterator[tuple[Block, str]]:
    """Run a page's blocks in one namespace and give each with what it printed."""
    # A dataclass or pickle may look its module up by name.
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(text):
        if block.needs_data and "VEPM_DATA" not in os.environ:
            yield block, block.output or ""
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            if block.kind == "python":
                # Blank lines in front make line numbers in tracebacks those of the page.
                source = "\n" * block.line + block.code
                exec(compile(source, page, "exec"), namespace)
            else:
                for line in block.code.replace("\\\n", "").splitlines():
                    command(line)
        yield block, printed.getvalue()


def command(line: str) -> None:
    """Run ``vepm ...`` in this process, with few epochs; it must succeed."""
    from vepm.cli import main

    words = shlex.split(line, comments=True)
    assert words[0] == "vepm", f"only vepm commands are run: {line}"
    if words[1] in TRAINING:
        words += FEW_EPOCHS
    code: int | str | None = 0
    with patch.object(sys, "argv", words):
        try:
            main()
        except SystemExit as stop:
            code = stop.code
    assert not code, f"{line}: exit code {code}"


def plain(text: str) -> str:
    """An output without its decimals, which differ between machines."""
    return re.sub(r"-?\d+\.\d+", "#", text).strip()


def refreshed(text: str, page: str) -> str:
    """The page with outputs as they are now."""
    outputs = iter([output for _, output in run(text, page)])

    def renew(found: re.Match[str]) -> str:
        printed = next(outputs)
        whole = found[0]
        if found["output"] is None:
            return whole
        head = whole[: found.start("output") - found.start()]
        return f"{head}{printed.rstrip()}\n```\n"

    return FENCE.sub(renew, text)


def _refresh_all(chosen: list[str]) -> None:
    warnings.simplefilter("ignore")
    for page in chosen or PAGES:
        text = (DOCS / page).read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            (DOCS / page).write_text(refreshed(text, page), encoding="utf-8")
            os.chdir(ROOT)


if __name__ == "__main__":
    _refresh_all(sys.argv[1:])
