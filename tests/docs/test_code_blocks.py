"""Every block of code in the documentation runs, and prints what the page says."""

from pathlib import Path

import pytest
import torch

from docs.pages import DOCS, PAGES, blocks, plain, run


@pytest.mark.parametrize("page", PAGES)
def test_code_runs_and_prints_what_the_page_says(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    for block, printed in run((DOCS / page).read_text(encoding="utf-8"), page):
        if block.output is not None:
            assert plain(printed) == plain(block.output), f"{page}, line {block.line}"


def test_no_page_with_python_is_left_out() -> None:
    with_code = {
        str(path.relative_to(DOCS))
        for path in DOCS.rglob("*.md")
        if any(block.kind == "python" for block in blocks(path.read_text(encoding="utf-8")))
    }
    assert with_code <= set(PAGES)


def test_outputs_are_compared_but_for_decimals() -> None:
    assert plain("(34, 4) at 0.83\n") == plain("(34, 4) at 0.91")
    assert plain("(34, 4)") != plain("(34, 5)")


def test_blocks_and_their_outputs_are_found() -> None:
    text = "# A\n\n```python\nprint(1)\n```\n\n```text\n1\n```\n\n```shell\nvepm x\n```\n"
    assert [tuple(block) for block in blocks(text)] == [("python", "print(1)\n", "1\n", 3, False)]


def test_blocks_that_need_data_are_run_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "<!-- needs VEPM_DATA -->\n```python\nprint(2)\n```\n\n```text\n1\n```\n"
    monkeypatch.delenv("VEPM_DATA", raising=False)
    ((block, printed),) = run(text, "page")
    assert (block.line, block.needs_data, printed) == (2, True, "1\n")
    monkeypatch.setenv("VEPM_DATA", "somewhere")
    assert [output for _, output in run(text, "page")] == ["2\n"]


def test_a_failing_command_fails_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AssertionError, match="exit code 2"):
        list(run("```bash\nvepm report no-such-run\n```\n", "page"))
