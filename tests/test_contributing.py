"""The page for contributors names files that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_a_run_goes_through_files_that_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    rows = re.findall(r"^\| `([a-z_/]+\.py)` \| (\d+) \|", text, re.MULTILINE)
    (counts,) = re.findall(r"passes through (\d+) files and (\d+) functions", text)
    files, functions = map(int, counts)
    assert len(rows) == files > 40
    assert sum(int(count) for _, count in rows) == functions
    assert [name for name, _ in rows if not (ROOT / "src/vepm" / name).is_file()] == []
