"""Settings from strangers: TOML, and nothing that takes more than settings can."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vepm.errors import InputError
from vepm.files import DEEPEST, LARGEST_SETTINGS, parse_json, parse_toml, read_toml

BAD = {
    "not TOML": b"[model\n",
    "not UTF-8": b"\xff\xfe",
    "lists without end": b"x = " + b"[" * 20_000,
    "tables in tables without end": b".".join([b"x"] * 10_000) + b" = 1",
    "a number without end": b"x = " + b"1" * 20_000,
    "too large": b"#" * (LARGEST_SETTINGS + 1),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_settings_are_refused_by_name(case: str, tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_bytes(BAD[case])
    with pytest.raises(InputError, match=r"settings\.toml"):
        read_toml(path)


@pytest.mark.parametrize(
    ("parse", "nested"),
    [
        # A file is a table already.
        (parse_toml, lambda depth: ".".join("x" * (depth - 1)) + " = {}"),
        (parse_json, lambda depth: "[" * depth + "]" * depth),
    ],
)
def test_nesting_has_a_bound(parse: Callable[[str], Any], nested: Callable[[int], str]) -> None:
    found, depth = parse(nested(DEEPEST)), 1
    while found:
        found, depth = found["x" if isinstance(found, dict) else 0], depth + 1
    assert depth == DEEPEST
    with pytest.raises(ValueError, match="nested too deeply"):
        parse(nested(DEEPEST + 1))


def test_good_settings_come_back(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text("[model]\nconv = 'gcn'\n")
    assert read_toml(path) == {"model": {"conv": "gcn"}}
    with pytest.raises(InputError, match="No such file"):
        read_toml(tmp_path / "none.toml")
