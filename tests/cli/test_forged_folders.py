"""Folders with links, pipes and foreign files in any place: nothing outside them changes."""

import os
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from strategies import quick
from vepm.cli.folders import MARKER, RUN, SUBFOLDERS, only_writer, run_folder
from vepm.errors import InputError
from vepm.files import refuse_special, write_bytes

FILES = [name for name in RUN.files if "*" not in name]
NAMES = [*FILES, *SUBFOLDERS, "cells/gcn", "notes.txt", "figures/mine.svg"]
KINDS = ["file", "folder", "link to a file", "link to a folder", "link to nothing", "pipe"]

many = settings(quick, max_examples=100)
entries = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(KINDS), max_size=4)


def forge(folder: Path, outside: Path, made: dict[str, str]) -> None:
    """Put something of a kind in each place, as far as what is already there allows."""
    for name, kind in sorted(made.items()):
        path = folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if not path.parent.resolve().is_relative_to(folder):
            continue
        if kind == "file":
            path.write_bytes(b"mine")
        elif kind == "folder":
            path.mkdir(exist_ok=True)
        elif kind == "pipe":
            os.mkfifo(path)
        else:
            path.symlink_to(outside / kind.removeprefix("link to a "))


def snapshot(folder: Path) -> dict[str, object]:
    """Every file, link and pipe below a folder, without following links."""
    found: dict[str, object] = {}
    for place, folders, files in os.walk(folder):
        for path in (Path(place, name) for name in folders + files):
            if path.is_symlink():
                found[str(path)] = path.readlink()
            elif not path.is_dir():
                found[str(path)] = path.read_bytes() if path.is_file() else "pipe"
    return found


def write_everything(folder: Path) -> None:
    for name in FILES:
        write_bytes(folder / name, b"ours")


def make_outside(place: Path) -> Path:
    outside = place / "outside"
    (outside / "folder").mkdir(parents=True)
    for name in ("file", "folder/adjacency.svg", "folder/.a.01234567.half", f"folder/{MARKER}"):
        (outside / name).write_bytes(b"mine")
    return outside


@many
@given(entries, st.booleans(), st.booleans())
def test_a_run_changes_its_own_files_alone(
    made: dict[str, str], marked: bool, overwrite: bool
) -> None:
    with tempfile.TemporaryDirectory() as name:
        place = Path(name).resolve()
        folder, outside = place / "run", make_outside(place)
        folder.mkdir()
        forge(folder, outside, made)
        if marked:
            (folder / MARKER).write_bytes(b"vepm run\n")
        ours = {str(folder / name) for name in (*FILES, MARKER)}
        inside, elsewhere = snapshot(folder), snapshot(outside)
        try:
            with run_folder(folder, overwrite, ()):
                write_everything(folder)
            accepted = True
        except (InputError, OSError):
            accepted = False
        assert snapshot(outside) == elsewhere
        after = snapshot(folder)
        for path, content in inside.items():
            assert after.get(path) == content or (marked and path in ours)
        assert marked or not accepted or not inside


@many
@given(entries)
def test_a_page_changes_nothing_outside(made: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory() as name:
        place = Path(name).resolve()
        folder, outside = place / "run", make_outside(place)
        folder.mkdir()
        forge(folder, outside, made)
        elsewhere = snapshot(outside)
        try:
            with only_writer(folder):
                refuse_special(folder / "figures")
                write_everything(folder)
        except (InputError, OSError):
            pass
        assert snapshot(outside) == elsewhere
