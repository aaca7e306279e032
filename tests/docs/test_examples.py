"""The examples run as a reader would run them."""

import runpy
from pathlib import Path

import pytest

from docs.pages import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(
    path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out


def test_examples_are_short_and_all_there() -> None:
    assert [path.stem for path in EXAMPLES] == ["communities", "graphs", "nodes", "scikit_learn"]
    for path in EXAMPLES:
        assert len(path.read_text(encoding="utf-8").splitlines()) < 45, path.name
