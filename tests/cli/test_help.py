"""What a stranger types first: help, version, the list of datasets, the page of a run."""

import errno
import inspect
import json
import os
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from cli.running import names_in, refused, succeed
from vepm import __version__
from vepm.cli import COMMANDS, main, options
from vepm.cli.bench import SIZES
from vepm.data import datasets
from vepm.errors import InputError, LostProcessError
from vepm.schema import LARGEST_SEED, MOST_RUNS


@pytest.mark.parametrize("command", list(COMMANDS))
def test_every_command_helps_with_an_example(command: str) -> None:
    text = succeed(command, "--help").out
    assert f"vepm {command}" in text.split("Example", 1)[1]
    assert "--help" in text


def test_options_are_grouped() -> None:
    text = succeed("train", "--help").out
    result, settings = text.split("─ Result ─")[1].split("─ Settings ─")
    assert all(option in result for option in ("--output", "--overwrite", "--json"))
    assert all(option in settings for option in ("--preset", "--config", "--set", "--seed"))
    assert "default: digits" in text


def test_help_lists_the_commands() -> None:
    text = succeed("--help").out
    assert all(f" {command} " in text for command in COMMANDS)


def test_version() -> None:
    assert succeed("--version").out == f"vepm {__version__}\n"


START = """
import sys
from vepm_command import main
sys.argv[0] = "vepm"
try:
    main()
finally:
    print(*sorted({"torch", "numpy", "sklearn"} & set(sys.modules)), file=sys.stderr)
"""
"""The command as installed, which says at its end which slow packages it has loaded."""


def started(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", START, *words],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("words", [("--version",), ("--help",), ("tune", "--help")])
def test_help_and_version_wait_for_nothing(words: tuple[str, ...]) -> None:
    done = started(*words)
    assert (done.returncode, done.stderr) == (0, "\n")
    assert "vepm" in done.stdout


def test_completion_waits_for_nothing() -> None:
    done = started(_VEPM_COMPLETE="complete_bash", COMP_WORDS="vepm t", COMP_CWORD="1")
    assert (done.returncode, done.stderr) == (0, "\n")
    assert done.stdout.split() == ["train", "tune"]


def test_the_command_starts_outside_of_the_package() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["scripts"] == {"vepm": "vepm_command:main"}
    assert started("datasets", "--json").stderr == "numpy sklearn torch\n"


@pytest.mark.parametrize(
    "words",
    [
        *(("train", "--nope"), ("--nope",), ("nope",), ("predict",), ("train", "--output")),
        *(("train", "--seed", "-1"), ("train", "a", "b")),
    ],
)
def test_misuse_exits_with_two_and_shows_the_way(words: tuple[str, ...], tmp_path: Path) -> None:
    assert refused(*words).endswith(" --help\n")
    assert names_in(tmp_path) == set()


def test_datasets_are_listed(tmp_path: Path) -> None:
    names = {info.name for info in datasets()}
    table = succeed("datasets", "--data-dir", tmp_path).out
    assert all(name in table for name in names)
    listed = json.loads(succeed("datasets", "--data-dir", tmp_path, "--json").out)
    assert {entry["name"] for entry in listed} == names
    available = {entry["name"] for entry in listed if entry["available"]}
    assert available == {"digits", "digits-graphs", "KarateClub", "planted", "planted-relations"}


def test_the_page_is_written_again(pets_run: Path) -> None:
    shutil.copytree(pets_run, "copy")
    outcome = succeed("report", "copy")
    assert outcome.out == "see: copy/report.html\n"
    assert "pets" in Path("copy/report.html").read_text()
    assert names_in(Path("copy/figures"))
    assert "of several runs" in refused("report", "copy", "-o", "elsewhere.html")


def test_only_a_run_has_a_page(tmp_path: Path) -> None:
    assert "no such run folder" in refused("report", "nowhere")
    Path("empty").mkdir()
    assert "metrics.json" in refused("report", "empty")
    assert names_in(tmp_path / "empty") == set()


def test_options_are_declared_once_and_within_the_bounds_of_settings() -> None:
    declared = tomllib.loads(Path(options.__file__).with_suffix(".toml").read_text())
    panels, shared = declared.pop("panels"), declared.pop("all")
    examples = declared.pop("examples")
    assert set(examples) == set(COMMANDS)
    named = [example.split()[:2] for shown in examples.values() for example in shown]
    assert all(first == "vepm" and command in COMMANDS for first, command in named)
    commands = {command.__name__: command for command in COMMANDS.values()}
    taken = {name: set(inspect.signature(command).parameters) for name, command in commands.items()}
    assert set(shared) <= set().union(*taken.values())
    for name, own in declared.items():
        assert set(own) <= taken[name]
    rows = [*shared.values(), *(row for own in declared.values() for row in own.values())]
    assert {row["panel"] for row in rows if "panel" in row} == set(panels)
    assert shared["seed"]["max"] == LARGEST_SEED
    evaluate = declared["evaluate"]
    assert {evaluate[name]["max"] for name in ("seeds", "splits")} == {MOST_RUNS}
    assert evaluate["first_seed"]["max"] == LARGEST_SEED - MOST_RUNS
    assert declared["reproduce"]["seeds"]["max"] == MOST_RUNS
    assert declared["bench"]["sizes"]["show_default"] == SIZES


CHOICE = {"config": None, "settings": None, "seed": 0, "batch_nodes": None}
READING = dict.fromkeys(("label", "features", "drop"))
READING |= {"strict": False, "no_weights": False, "directed": False}
MACHINE = {"device": "auto", "data_dir": None, "no_memory_check": False}
WRITING = {"output": None, "overwrite": False, "as_json": False}
RUNS = {"jobs": 0, "runs_at_once": 0, "device": "auto", "data_dir": None}
TRAINING = CHOICE | READING | MACHINE | WRITING
DEFAULTS: dict[str, dict[str, object]] = {
    "train": TRAINING | {"dataset": "digits", "baselines": "", "preset": "default"},
    "predict": READING
    | {"output": Path("predictions.csv"), "samples": None}
    | {"device": "auto", "data_dir": None},
    "communities": TRAINING
    | {"truth": None, "baselines": "", "num_communities": None, "num_metacommunities": None}
    | {"starts": 4, "preset": "communities"},
    "links": TRAINING
    | {"top": 100, "pairs": None, "model": None, "num_communities": None, "preset": "links"},
    "evaluate": CHOICE
    | READING
    | RUNS
    | {"protocol": "", "seeds": 1, "first_seed": 0, "folds": None, "labels_per_class": None}
    | {"splits": None, "baselines": "", "method": "vepm", "preset": "default", "as_json": False},
    "tune": CHOICE
    | READING
    | MACHINE
    | WRITING
    | {"trials": 20, "seeds": 1, "timeout": None, "space": None, "preset": "default"},
    "reproduce": RUNS
    | dict.fromkeys(("names", "rows", "seeds", "presets", "experiments"))
    | dict.fromkeys(("list_them", "everything", "quick"), False)
    | {"datasets": "", "output": Path("results")},
    "report": {"output": None},
    "bench": {"names": None, "quick": False, "sizes": None, "repeats": 10, "threads": 0}
    | {"output": Path("runs/bench"), "device": "auto", "data_dir": None, "as_json": False},
    "datasets": {"data_dir": None, "as_json": False},
}
NOT_OF = {
    "links": {"directed"},
    "evaluate": {"seed", "batch_nodes"},
    "tune": {"batch_nodes", "no_memory_check"},
}


@pytest.mark.parametrize("command", list(COMMANDS))
def test_defaults_of_options(command: str) -> None:
    parameters = inspect.signature(COMMANDS[command]).parameters.values()
    found = {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}
    left_out = NOT_OF.get(command, set())
    assert found == {k: v for k, v in DEFAULTS[command].items() if k not in left_out}


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InputError("wrong"), 2),
        (PermissionError("closed"), 2),
        (LostProcessError("killed"), 1),
        (MemoryError(), 1),
        (OSError(errno.ENOSPC, "No space left"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_exit_codes_tell_a_mistake_from_bad_luck_and_from_ctrl_c(
    error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(standalone_mode: bool) -> None:
        raise error

    monkeypatch.setattr("vepm.cli.app", fail)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == code


def test_a_command_that_is_told_to_end_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def end(standalone_mode: bool) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr("vepm.cli.app", end)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 143
