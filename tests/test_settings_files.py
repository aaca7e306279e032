"""Settings from strangers: TOML, and nothing that takes more than settings can."""

from pathlib import Path

import pytest

from vepm.errors import InputError
from vepm.files import LARGEST_SETTINGS, read_toml

BAD = {
    "not TOML": b"[model\n",
    "not UTF-8": b"\xff\xfe",
    "lists without end": b"x = " + b"[" * 20_000,
    "a number without end": b"x = " + b"1" * 20_000,
    "too large": b"#" * (LARGEST_SETTINGS + 1),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_settings_are_refused_by_name(case: str, tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_bytes(BAD[case])
    with pytest.raises(InputError, match=r"settings\.toml"):
        read_toml(path)


def test_good_settings_come_back(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text("[model]\nconv = 'gcn'\n")
    assert read_toml(path) == {"model": {"conv": "gcn"}}
    with pytest.raises(InputError, match="No such file"):
        read_toml(tmp_path / "none.toml")
