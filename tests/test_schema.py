"""Checked dataclasses: what is refused, and what the error says."""

from dataclasses import dataclass
from typing import Any

import pytest

from vepm.errors import InputError
from vepm.schema import checked, read


@dataclass(frozen=True)
class Table:
    name: str
    rounds: int = checked(1, low=1, high=9)
    rate: float = checked(0.5, above=0)
    share: float = checked(0.0, low=0, below=1)
    kind: str = checked("a", choices=("a", "b"))
    note: str | None = None
    rows: tuple[Any, ...] | list[Any] = ()


def test_a_table_becomes_a_dataclass() -> None:
    assert read(Table, {"name": "x", "rate": 2, "rows": [1]}, "t") == Table("x", rate=2, rows=[1])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ("x", "t: 'x' is not a table of keys and values"),
        ({}, "t: name is missing"),
        ({"name": "x", "ronds": 1}, "t: there is no 'ronds'; did you mean rounds?"),
        ({"name": "x", "q": 1}, "t: there is no 'q'; there are name, rounds, rate, share, kind"),
        ({"name": 3}, "t: name must be of type str, got 3"),
        ({"name": "x", "rounds": True}, "t: rounds must be of type int, got True"),
        ({"name": "x", "rounds": 10}, "t: rounds must be between 1 and 9, got 10"),
        ({"name": "x", "rate": 0}, "t: rate must be a number above 0, got 0"),
        ({"name": "x", "rate": float("nan")}, "t: rate must be a number above 0, got nan"),
        ({"name": "x", "share": 1}, "t: share must be a number at least 0 and below 1, got 1"),
        ({"name": "x", "kind": "c"}, "t: kind must be one of a, b, got 'c'"),
        ({"name": "x", "note": 1}, "t: note must be of type"),
        ({"name": "x", "rows": 1}, "t: rows must be of type"),
    ],
)
def test_errors_name_the_field_and_what_it_allows(values: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read(Table, values, "t")
    assert str(caught.value).startswith(message)
