"""Text from users' data obeys nobody: not terminals, spreadsheets or Markdown."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies import quick
from vepm.escaping import (
    LONGEST_LINE,
    for_json,
    for_markdown,
    for_spreadsheet,
    for_terminal,
    on_one_line,
)


@quick
@given(st.text())
def test_terminals_get_printable_text(text: str) -> None:
    assert all(c.isprintable() or c == "\n" for c in for_terminal(text))
    line = on_one_line(text)
    assert line.isprintable()
    assert len(line) <= LONGEST_LINE + len(" ... ")


@quick
@given(st.recursive(st.text() | st.integers(), lambda v: st.dictionaries(st.text(), st.lists(v))))
def test_json_is_utf8(value: Any) -> None:
    written = for_json(value)
    assert json.loads(json.dumps(written)) == written
    json.dumps(written, ensure_ascii=False).encode()


def test_only_surrogates_are_changed_in_json() -> None:
    assert for_json({"γ😀\ud800": ("b", 1, None)}) == {"γ😀\\ud800": ["b", 1, None]}


def test_what_is_printable_stays_as_it_is() -> None:
    assert for_terminal("naïve γ ≥ 0\n'quoted' [b]") == "naïve γ ≥ 0\n'quoted' [b]"
    assert on_one_line("a\nb  c") == "a b c"


def test_long_lines_keep_both_ends() -> None:
    line = on_one_line("start " + "x" * 10_000 + " end")
    assert line.startswith("start x")
    assert line.endswith("x end")
    assert line.count("x") == 1000 - len("start ") - len(" end")
    assert " ... " in line
    assert on_one_line("x" * 1000) == "x" * 1000
    assert on_one_line("x" * 1001) == f"{'x' * 500} ... {'x' * 500}"


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("<script>|\n</script>", r"&lt;script&gt;\| &lt;/script&gt;"),
        ("![x](http://y)", r"!\[x\](http://y)"),
        ("# a_b *c* `d` ~~~ \\", r"\# a\_b \*c\* \`d\` \~\~\~ \\"),
        ("\x1b[2J", r"\\x1b\[2J"),
        ("80.1 ± 0.2 ▲ (sd 1)", "80.1 ± 0.2 ▲ (sd 1)"),
        ("""it's "so\"""", """it's "so\""""),
    ],
)
def test_markdown_shows_what_it_is_given(given: str, wanted: str) -> None:
    assert for_markdown(given) == wanted


@pytest.mark.parametrize("cell", ["=1+1", "+cmd|x", "-x", "@SUM(1)", "\t=1", "\r=1"])
def test_formulas_become_text(cell: str) -> None:
    assert for_spreadsheet(cell) == "'" + cell


@pytest.mark.parametrize("cell", ["-1.5", "+3", "1e-3", "", "plain", 2, None, -0.5])
def test_numbers_and_plain_text_stay(cell: object) -> None:
    assert for_spreadsheet(cell) == cell
