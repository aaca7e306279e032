"""Checked dataclasses: what is refused, and what the error says."""

from dataclasses import dataclass
from typing import Any

import pytest

from vepm.errors import InputError
from vepm.schema import LARGEST_SEED, check, checked, is_of_type, read, unknown


@dataclass(frozen=True)
class Table:
    name: str
    rounds: int = checked(1, low=1, high=9)
    rate: float = checked(0.5, above=0)
    share: float = checked(0.0, low=0, below=1)
    kind: str = checked("a", choices=("a", "b"))
    note: str | None = None
    rows: tuple[Any, ...] | list[Any] = ()


@pytest.mark.parametrize(("count", "listed"), [(1, True), (12, True), (13, False)])
def test_few_names_are_listed(count: int, listed: bool) -> None:
    names = [f"{chr(97 + i) * 3}" for i in range(count)]
    assert str(unknown("1", names, "t")).endswith(names[-1]) == listed


def test_bounds_are_named() -> None:
    with pytest.raises(TypeError):
        checked(1, 2)  # type: ignore[call-arg, arg-type]
    with pytest.raises(TypeError, match="bounds are low, high, above, below, not lowest"):
        checked(1, lowest=2)


def test_seeds_have_32_bits() -> None:
    assert LARGEST_SEED == 4_294_967_295


@pytest.mark.parametrize(
    ("value", "kind", "fits"),
    [
        ([1, 2], list[int], True),
        ([1, "2"], list[int], False),
        ((1,), list[int], False),
        ({"a": 1.5}, dict[str, float], True),
        ({"a": [1.5]}, dict[str, float], False),
        ({"a": [1.5]}, dict[str, list[float]], True),
        ({"a": ["1.5"]}, dict[str, list[float]], False),
        ((1, 2), tuple[int, ...], True),
        ((1, None), tuple[int, ...], False),
        (None, str | None, True),
        (3, Any, True),
    ],
)
def test_types_hold_inside_of_lists_and_tables(value: Any, kind: Any, fits: bool) -> None:
    assert is_of_type(value, kind) == fits


def test_a_table_becomes_a_dataclass() -> None:
    assert read(Table, {"name": "x", "rate": 2, "rows": [1]}, "t") == Table("x", rate=2, rows=[1])
    assert read(Table, {"name": "x", "rate": 0.25}, "t").rate == 0.25
    # It has no float, and needs none to be compared.
    assert read(Table, {"name": "x", "rate": 10**400}, "t").rate == 10**400


def test_a_dataclass_that_was_made_by_hand_can_be_checked() -> None:
    check(Table("x"), "t")
    with pytest.raises(InputError, match="t: kind must be one of a, b, got 'c'"):
        check(Table("x", kind="c"), "t")


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
