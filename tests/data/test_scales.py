"""Columns that drown others are told of, once, and bags of words are left in peace."""

from pathlib import Path

import pytest

from vepm.data import read

EDGES = "source,target\na,b\nb,c\nc,d\n"


def folder(path: Path, header: str, *columns: tuple[float, ...]) -> Path:
    path.mkdir()
    rows = (",".join(map(str, row)) for row in zip("abcd", *columns, strict=True))
    (path / "nodes.csv").write_text("\n".join([header, *rows]) + "\n")
    (path / "edges.csv").write_text(EDGES)
    return path


def test_a_column_that_drowns_another_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    people = folder(
        tmp_path / "people", "id,age,one,home", (30, 40, 50, 60), (1,) * 4, (0, 1, 1, 1)
    )
    read(people)
    unused, line = caplog.messages
    assert unused.endswith("people: not used: column 'one' (constant)")
    assert line.startswith("people: feature 'age' is 54 times as large as 'home'")
    assert "mean 0 and deviation 1" in line
    caplog.clear()
    read(people, class_names=("x", "y"))
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("header", "columns"),
    [
        ("id,a,b", [(3.0, -1.0, 2.0, 1.0), (1.0, 9.0, 4.0, 2.0)]),
        ("id,a,b,c", [(100, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0)]),
        ("id,a", [(100.0, 120.0, 90.0, 80.0)]),
        ("id", []),
    ],
    ids=["like scales", "mostly zero", "one column", "none"],
)
def test_other_columns_are_left_in_peace(
    header: str,
    columns: list[tuple[float, ...]],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    read(folder(tmp_path / "graph", header, *columns))
    assert caplog.messages == []
