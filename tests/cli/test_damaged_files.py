"""Models and checkpoints that are cut short, forged or of another version are refused by name."""

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors import safe_open
from safetensors.torch import save_file

from cli.running import QUICK, names_in, refused, succeed, vepm
from vepm.training import fitting, saving


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


def cut_header(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:5])


def make_pickle(path: Path) -> None:
    path.write_bytes(pickle.dumps({"weights": [1.0, 2.0]}))


def other_version(path: Path) -> None:
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata()
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    header = json.loads(metadata["vepm"]) | {"format": 99}
    save_file(tensors, path, metadata | {"vepm": json.dumps(header)})


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "truncated": (truncate, "not a whole safetensors file"),
    "cut in its header": (cut_header, "not a whole safetensors file"),
    "a pickle": (make_pickle, "not a whole safetensors file"),
    "empty": (lambda path: path.write_bytes(b""), "not a whole safetensors file"),
    "of another version": (other_version, "written in format 99, this version reads format 1"),
    "missing": (lambda path: path.unlink(), "there is no such file"),
}


@pytest.mark.parametrize("case", list(DAMAGE))
def test_damaged_models(case: str, pets: Path, pets_run: Path, tmp_path: Path) -> None:
    damage, why = DAMAGE[case]
    shutil.copytree(pets_run, "run")
    damage(Path("run/model.safetensors"))
    line = refused("predict", "run", pets)
    assert "run/model.safetensors" in line
    assert why in line
    assert names_in(tmp_path) == {"run"}


class StopError(Exception):
    pass


@pytest.fixture
def checkpointed(pets: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run that stopped after its first epochs."""

    def save_and_stop(*args: object) -> None:
        saving.save_state(*args)  # type: ignore[arg-type]
        raise StopError

    with monkeypatch.context() as patch:
        patch.setattr(fitting, "save_state", save_and_stop)
        with pytest.raises(StopError):
            vepm("train", pets, "-o", "run", *QUICK)
    return Path("run")


@pytest.mark.parametrize("case", [case for case in DAMAGE if case != "missing"])
def test_damaged_checkpoints(case: str, pets: Path, checkpointed: Path) -> None:
    damage, why = DAMAGE[case]
    damage(checkpointed / "checkpoint.safetensors")
    assert names_in(checkpointed) == {"checkpoint.safetensors"}
    line = refused("train", pets, "-o", checkpointed, *QUICK)
    assert "run/checkpoint.safetensors" in line
    assert why in line
    assert names_in(checkpointed) == {"checkpoint.safetensors"}


@pytest.mark.usefixtures("no_page")
def test_a_checkpoint_of_another_run(pets: Path, checkpointed: Path) -> None:
    words = ("train", pets, "-o", checkpointed, *QUICK, "--seed", "1")
    assert "other settings, seed, data or number" in refused(*words)
    assert names_in(checkpointed) == {"checkpoint.safetensors"}
    succeed(*words, "--overwrite")
