"""A file is the old one or the new one, whatever happens in between."""

import csv
import errno
import io
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from strategies import quick
from vepm.cli.folders import only_writer
from vepm.data.registry import expanded
from vepm.errors import InputError
from vepm.files import (
    HALVES,
    parse_json,
    parse_toml,
    read_toml,
    write_bytes,
    write_csv,
    write_text,
)


def test_content_is_written_and_folders_are_made(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file.bin"
    write_bytes(path, b"one")
    write_bytes(path, b"two")
    assert path.read_bytes() == b"two"
    assert [p.name for p in path.parent.iterdir()] == ["file.bin"]


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_the_mask_of_the_user_is_respected(mask: int, mode: int, tmp_path: Path) -> None:
    before = os.umask(mask)
    try:
        write_bytes(tmp_path / "file.bin", b"one")
    finally:
        os.umask(before)
    assert (tmp_path / "file.bin").stat().st_mode & 0o777 == mode


def test_text_is_utf8_whatever_the_platform(tmp_path: Path) -> None:
    write_text(tmp_path / "file.txt", "γ ≥ 0\n")
    assert (tmp_path / "file.txt").read_bytes() == "γ ≥ 0\n".encode()


def test_surrogates_are_spelled_out(tmp_path: Path) -> None:
    write_text(tmp_path / "file.txt", os.fsdecode(b"pets\xff"))
    assert (tmp_path / "file.txt").read_bytes() == rb"pets\udcff"


def test_devices_pipes_and_links_are_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "target").write_bytes(b"mine")
    (tmp_path / "link").symlink_to("target")
    (tmp_path / "loose").symlink_to("nowhere")
    for path, kind in (
        (Path(os.devnull), "device or pipe"),
        (tmp_path / "pipe", "device or pipe"),
        (tmp_path / "link", "link"),
        (tmp_path / "loose", "link"),
    ):
        with pytest.raises(InputError, match=f"{path}: is a {kind}, not a file"):
            write_bytes(path, b"new")
    assert Path(os.devnull).is_char_device()
    assert (tmp_path / "pipe").is_fifo()
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_bytes() == b"mine"
    assert {p.name for p in tmp_path.iterdir()} == {"pipe", "target", "link", "loose"}


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
@pytest.mark.parametrize("call", ["fsync", "open", "replace"])
def test_failing_leaves_the_old_file_and_nothing_else(
    call: str, error: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file.bin"
    write_bytes(path, b"old")

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(error, os.strerror(error))

    owner = os if call == "fsync" else Path
    with monkeypatch.context() as patch:
        patch.setattr(owner, call, fail)
        with pytest.raises(OSError, match=os.strerror(error)) as caught:
            write_bytes(path, b"new")
    assert str(caught.value.filename) == str(path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_in_the_place_of_a_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError) as caught:
        write_bytes(tmp_path, b"new")
    assert caught.value.filename == str(tmp_path)


class FullDisk(io.BytesIO):
    """Takes half of what is written, then there is no space."""

    def __init__(self, handle: int) -> None:
        super().__init__()
        self.handle = handle

    def write(self, content: Any) -> int:
        os.write(self.handle, bytes(content)[: len(content) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def close(self) -> None:
        os.close(self.handle)
        super().close()


def test_a_disk_that_fills_up_halfway_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file.bin"
    write_bytes(path, b"old")
    with monkeypatch.context() as patch:
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
        patch.setattr(Path, "open", lambda half, _: FullDisk(os.open(half, flags)))
        with pytest.raises(OSError, match="No space left"):
            write_bytes(path, b"new content")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


# A file that is interrupted between its opening and its use is closed by the collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_ctrl_c_at_any_moment_leaves_the_old_file_or_the_new(tmp_path: Path) -> None:
    path, moment = tmp_path / "file.bin", 0
    for moment in range(1000):
        path.write_bytes(b"old")
        done = _interrupted_after(moment, lambda: write_bytes(path, b"new"))
        assert path.read_bytes() in (b"old", b"new")
        assert list(tmp_path.iterdir()) == [path]
        if done:
            break
    assert path.read_bytes() == b"new"
    assert moment > 10


def _interrupted_after(lines: int, work: Callable[[], None]) -> bool:
    """Whether work ended before so many lines of it had begun, at which Ctrl-C is pressed once."""
    left = lines
    pressed = False

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left, pressed
        if event == "line" and not pressed:
            left -= 1
            if left < 0:
                pressed = True
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    except KeyboardInterrupt:
        return False
    finally:
        sys.settrace(before)
    return True


def test_content_reaches_the_disk_before_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order, fsync, replace = [], os.fsync, Path.replace

    def note_fsync(handle: int) -> None:
        order.append("fsync")
        fsync(handle)

    def note_replace(self: Path, target: Path) -> Path:
        order.append("replace")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(Path, "replace", note_replace)
    write_bytes(tmp_path / "file.bin", b"new")
    assert order == ["fsync", "replace"]


def test_unfinished_files_have_names_by_which_they_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Path] = []
    monkeypatch.setattr(Path, "replace", lambda *_: found.extend(tmp_path.glob(HALVES)))
    write_bytes(tmp_path / "file.bin", b"new")
    assert [half.read_bytes() for half in found] == [b"new"]


def test_folders_that_cannot_be_written_are_an_os_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"in the way")
    with pytest.raises(OSError, match="file"):
        write_bytes(tmp_path / "file" / "inside.bin", b"new")

    def refuse(*_: Any) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(PermissionError):
        write_bytes(tmp_path / "other.bin", b"new")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_folder_in_the_way_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "name").mkdir()
    with pytest.raises(OSError, match="name"):
        write_bytes(tmp_path / "name", b"new")
    assert [p.name for p in tmp_path.iterdir()] == ["name"]


def test_formulas_in_tables_are_defused(tmp_path: Path) -> None:
    cells = ["=1+1", "+cmd", "-cmd", "@x", "\tx", "-1.5", "+3", "plain", "a,b", 'q"q', -2, 0.1]
    write_csv(tmp_path / "table.csv", ["=head", "n"], [[cell, 1] for cell in cells])
    with (tmp_path / "table.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["'=head", "n"]
    assert [row[0] for row in rows[1:]] == [
        *("'=1+1", "'+cmd", "'-cmd", "'@x", "'\tx"),
        *("-1.5", "+3", "plain", "a,b", 'q"q', "-2", "0.1"),
    ]


@quick
@example([["", "\r"], ["a\rb", "c\r\nd"]])
@given(
    st.lists(st.lists(st.text(st.characters(codec="utf-8")), min_size=2, max_size=2), max_size=4)
)
def test_tables_come_back_and_no_cell_starts_a_formula(rows: list[list[str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        write_csv(path, ["a", "b"], rows)
        found = list(csv.reader(io.StringIO(path.read_bytes().decode(), newline="")))
    assert found[0] == ["a", "b"]
    for row, expected in zip(found[1:], rows, strict=True):
        for cell, original in zip(row, expected, strict=True):
            assert cell in (original, "'" + original)
            assert not cell.startswith(("=", "@"))


def test_a_folder_has_one_writer_at_a_time(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with only_writer(folder):
        with (
            pytest.raises(InputError, match="another process is writing") as caught,
            only_writer(folder),
        ):
            pass
        assert str(folder) in str(caught.value)
    with only_writer(folder):
        assert folder.is_dir()
    assert list(folder.iterdir()) == []


def test_a_writer_that_fails_lets_the_next_one_in(tmp_path: Path) -> None:
    with pytest.raises(KeyError), only_writer(tmp_path):
        raise KeyError
    with only_writer(tmp_path):
        assert tmp_path.is_dir()


@pytest.mark.parametrize(
    ("number", "taken"),
    [(2**64 - 1, True), (2**64, False), (-(2**63), True), (-(2**63) - 1, False), (0, True)],
)
def test_integers_have_64_bits(number: int, taken: bool) -> None:
    for parse, text in ((parse_json, f'{{"a": [{number}]}}'), (parse_toml, f"a = [{number}]")):
        if taken:
            assert parse(text) == {"a": [number]}
        else:
            with pytest.raises(ValueError, match="an integer of more than 64 bits"):
                parse(text)


def test_tables_and_lists_are_nested_64_times_at_most() -> None:
    for parse, text in ((parse_json, "{}"), (parse_toml, "a = {}")):
        inside = 64 - text.count("=")
        parse(text.format("[" * inside + "]" * inside))
        with pytest.raises(ValueError, match="nested too deeply"):
            parse(text.format("[" * (inside + 1) + "]" * (inside + 1)))
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_json("[" * 10**5)


def test_a_tilde_is_a_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/some")
    assert expanded("~/a") == Path("/home/some/a")
    with pytest.raises(InputError, match="~nobody-of-this-name/a: there is no such home folder"):
        expanded("~nobody-of-this-name/a")


def test_settings_have_a_megabyte_at_most(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text("a = 1\n" + "#" * (2**20 - 6))
    assert read_toml(path) == {"a": 1}
    path.write_text("a = 1\n" + "#" * (2**20 - 5))
    with pytest.raises(InputError, match="more than 1048576 bytes"):
        read_toml(path)


@pytest.mark.parametrize("name", ["+", "0", "--"])
def test_a_table_is_printed_for_a_dash_alone(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_csv(Path(name), ["a"], [[1]])
    assert Path(name).read_text() == "a\n1\n"
    assert capsys.readouterr().out == ""
    write_csv(Path("-"), ["a"], [[1]])
    assert capsys.readouterr().out == "a\n1\n"
