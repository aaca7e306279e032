"""The README keeps its promises: its examples run, and its tree is the one there is."""

import re
from pathlib import Path

import pytest

README = (Path(__file__).parent.parent / "README.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_has_an_example_for_nodes_graphs_and_communities() -> None:
    assert len(EXAMPLES) == 3


@pytest.mark.parametrize("example", EXAMPLES, ids=["nodes", "graphs", "communities"])
def test_example_is_short_and_runs(example: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert len([line for line in example.splitlines() if line.strip()]) <= 10
    exec(compile(example, "README.md", "exec"), {})
    assert capsys.readouterr().out.strip()


def test_every_path_in_the_tree_exists() -> None:
    source = Path(__file__).parent.parent / "src" / "vepm"
    tree = README[README.index("    src/vepm/") : README.index("    tests/ ")]
    names = re.findall(r"^ +([a-z_]+(?:\.py|/))", tree, re.MULTILINE)
    found = {path.name for path in source.rglob("*")}
    assert names
    assert [name for name in names if name.rstrip("/") not in found and name != "src/"] == []
