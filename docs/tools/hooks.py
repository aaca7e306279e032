"""What the site generates while it is built: tables, figures, formulas, the notebook.

A page asks for them with a comment of its own line, ``<!-- name: argument -->``.
"""

import html
import re
import sys
import unicodedata
from pathlib import Path
from typing import Any

import latex2mathml.converter

HERE = Path(__file__).parent
DOCS = HERE.parent
sys.path[:0] = [str(HERE), str(DOCS.parent)]


import cards  # noqa: E402
import goals  # noqa: E402
import headlines  # noqa: E402
import notebook  # noqa: E402
import results  # noqa: E402
import searches  # noqa: E402
import squares  # noqa: E402
import tables  # noqa: E402
from benchmarks.page import as_page, read_reports  # noqa: E402
from vepm.report.style import inline_svg  # noqa: E402

DIRECTIVE = re.compile(r"^<!-- (\w+)(?:: ([^|>]+?))?(?: \| ([^>]+?))? -->$", re.MULTILINE)
FIGURE = re.compile(r"<!-- figure: ([\w/.-]+) \| (.+?) -->")
FORMULA = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">\\[(\[](?P<tex>.*?)\\[)\]]</(?P=tag)>', re.DOTALL
)

VARIANT = re.compile(r'<mi mathvariant="(bold|script|double-struck|bold-italic)">([^<]+)</mi>')


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put generated Markdown in the place of the comments that ask for it."""
    return DIRECTIVE.sub(_expand, markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Put in figures, and write formulas in MathML, which browsers draw without scripts."""
    html = FIGURE.sub(_figure, html)
    return FORMULA.sub(_formula, html)


def _expand(found: re.Match[str]) -> str:
    name, argument, rest = found[1], found[2] or "", found[3] or ""
    if name == "include":
        path = DOCS / argument
        return path.read_text(encoding="utf-8") if path.exists() else rest
    if name == "notebook":
        return notebook.as_markdown(DOCS / argument)
    makers = {
        "results": results.tables,
        "table": results.table,
        "benchmarks": lambda folder: as_page(read_reports(DOCS.parent / folder)),
        "search": searches.summary,
        "experiments": lambda _: tables.experiments(),
        "settings": tables.settings,
        "headlines": lambda _: headlines.headlines(),
        "split": lambda _: headlines.split_table(),
        "cards": lambda _: cards.cards(),
        "goals": lambda _: goals.goals(),
        "sweeps": goals.sweeps,
        "tried": searches.tried,
        "squares": lambda _: squares.counts(),
        "partitions": goals.partitions,
        "tuned": lambda _: goals.tuned(),
        "presets": lambda _: tables.presets(),
        "commands": lambda _: tables.commands(),
        "datasets": lambda _: tables.datasets_table(),
        "baselines": lambda _: tables.baselines_table(),
        "rules": lambda _: tables.rules_table(),
    }
    return makers[name](argument) if name in makers else found[0]


def _figure(found: re.Match[str]) -> str:
    words, name = found[2], found[1].rpartition("/")[2]
    folder = DOCS.parent if "/" in found[1] else DOCS / "figures"
    svg = inline_svg((folder / f"{found[1]}.svg").read_text(encoding="utf-8"), name)
    return f'<figure class="drawing" role="img" aria-label="{html.escape(words)}">{svg}</figure>'


def _formula(found: re.Match[str]) -> str:
    display = "block" if found["tag"] == "div" else "inline"
    tex = html.unescape(found["tex"]).strip()
    formula = VARIANT.sub(_letter, latex2mathml.converter.convert(tex, display=display))
    # The converter takes TeX's relation for the character on the keyboard.
    formula = formula.replace("<mi>&#x0007E;</mi>", "<mo>&#x0223C;</mo>")
    return f'<div class="formula">{formula}</div>' if display == "block" else formula


def _letter(found: re.Match[str]) -> str:
    """Browsers know bold and script letters as characters of their own, not as attributes."""
    letter = html.unescape(found[2])
    style = found[1].split("-italic")[0].upper()
    name = re.sub(r"^(LATIN|GREEK) (CAPITAL|SMALL) LETTER", r"\2", unicodedata.name(letter))
    for full in (f"MATHEMATICAL {style} {name}", f"{style} {name}"):
        try:
            return f"<mi>{unicodedata.lookup(full)}</mi>"
        except KeyError:
            continue
    return f"<mi>{found[2]}</mi>"
