"""Whatever is wrong with an input takes one line and exit code 2, and leaves nothing behind."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from cli.running import QUICK, names_in, refused, succeed
from cli.writing import write_nodes, write_table


def replace_line(number: int, line: str, name: str = "nodes.csv") -> Callable[[Path], object]:
    """Spoils one line of a file, counted from the header as 0."""

    def spoil(folder: Path) -> None:
        lines = (folder / name).read_text().splitlines()
        lines[number] = line
        (folder / name).write_text("\n".join(lines))

    return spoil


def one_class(folder: Path) -> None:
    text = (folder / "nodes.csv").read_text()
    (folder / "nodes.csv").write_text(text.replace("dog", "cat"))


def number_labels(folder: Path) -> None:
    text = (folder / "nodes.csv").read_text().replace("dog", "1").replace("cat", "0")
    (folder / "nodes.csv").write_text(text.replace("n1,1,", "n1,1.5,", 1))


SPOILED: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing column": (replace_line(0, "name,label,f0,f1"), "column 'id' is missing"),
    "edge column": (replace_line(0, "from,to", "edges.csv"), "column 'source' is missing"),
    "non-integer label": (number_labels, "label '1.5' is not an integer"),
    "unknown node": (replace_line(3, "n0,n99", "edges.csv"), "row 4, column target: node 'n99'"),
    "NaN feature": (replace_line(2, "n1,dog,nan,1"), "row 3, column f0: 'nan' is not finite"),
    "text feature": (replace_line(2, "n1,dog,big,1"), "'big' is not a number"),
    "short row": (replace_line(2, "n1,dog"), "row 3: 2 cells"),
    "empty file": (lambda folder: (folder / "nodes.csv").write_text(""), "the file is empty"),
    "no edges file": (lambda folder: (folder / "edges.csv").unlink(), "no such file"),
    "one class": (one_class, "at least two classes"),
    "no labels": (lambda folder: write_nodes(folder, labels=False), "no node has a label"),
}


@pytest.mark.parametrize("case", list(SPOILED))
def test_spoiled_folders(case: str, pets: Path, tmp_path: Path) -> None:
    spoil, why = SPOILED[case]
    shutil.copytree(pets, "data")
    spoil(Path("data"))
    assert why in refused("train", "data/", *QUICK)
    assert names_in(tmp_path) == {"data"}


OPTIONS: dict[str, tuple[tuple[str, ...], str]] = {
    "unknown setting": (("--set", "epoch=1"), "there is no 'epoch'; did you mean epochs?"),
    "strange setting": (("--set", "foo=1"), "there is no 'foo'"),
    "no value": (("--set", "epochs"), "--set epochs: write it as name=value"),
    "wrong type": (("--set", "epochs=many"), "epochs must be of type int, got 'many'"),
    "wrong choice": (("--set", "scheme=quick"), "scheme must be one of alternating, joint"),
    "too many parts": (
        ("--set", "num_communities=4", "--set", "num_metacommunities=5"),
        "metacommunities",
    ),
    "bad TOML": (("--config", "bad.toml"), "bad.toml: not a readable TOML file"),
    "unknown key in TOML": (("--config", "odd.toml"), "there is no 'rate'"),
    "no TOML": (("--config", "none.toml"), "none.toml: not a readable TOML file (No such file"),
    "binary TOML": (("--config", "binary.toml"), "binary.toml: not a readable TOML file"),
    "unknown preset": (
        ("--preset", "best"),
        "no preset 'best'; choose from paper, released, tuned",
    ),
    "unknown baseline": (("--baselines", "gcn,foo"), "no baseline 'foo'; there are mlp"),
    "baseline of another task": (("--baselines", "gin"), "'gin' labels graphs"),
    "unknown device": (("--device", "abacus"), "no device 'abacus'; use auto, cpu or cuda"),
    "device without support": (("--device", "mps"), "there is no device 'mps'"),
    "another one": (("--device", "xpu"), "there is no device 'xpu'"),
    "device without memory": (("--device", "meta"), "there is no device 'meta'"),
    "processor by number": (("--device", "cpu:7"), "there is no device 'cpu:7'"),
    "rate beyond precision": (("--set", "learning_rate=1e38"), "learning_rate must be between"),
    "draws without end": (("--set", "num_samples=1000000000"), "num_samples must be between"),
    "setting as a pipe": (("--config", "pipe"), "(not a file)"),
    "output is a file": (("-o", "bad.toml"), "bad.toml: cannot be written to"),
    "output in a file": (("-o", "bad.toml/run"), "cannot be written to"),
}


@pytest.mark.parametrize("case", list(OPTIONS))
def test_bad_options(case: str, pets: Path, tmp_path: Path) -> None:
    Path("bad.toml").write_text("[model\n")
    Path("odd.toml").write_text("[training]\nrate = 1\n")
    Path("binary.toml").write_bytes(b"\xff\xfe")
    os.mkfifo("pipe")
    options, why = OPTIONS[case]
    assert why in refused("train", pets, *options)
    assert names_in(tmp_path) == {"bad.toml", "odd.toml", "binary.toml", "pipe"}


@pytest.mark.parametrize(
    "words",
    [
        ("train", "planted", "--seed", str(2**64)),
        ("train", "planted", "--seed", "-1"),
        ("evaluate", "planted", "--seeds", str(10**9)),
        ("evaluate", "planted", "--first-seed", str(2**32)),
        ("reproduce", "table-1", "--seeds", str(10**9)),
    ],
)
def test_counts_and_seeds_out_of_range(words: tuple[str, ...], tmp_path: Path) -> None:
    assert "Invalid value" in refused(*words)
    assert names_in(tmp_path) == set()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("command", ["train", "communities", "evaluate"])
def test_a_gpu_that_is_not_there(command: str, pets: Path, tmp_path: Path) -> None:
    assert "no GPU is available" in refused(command, pets, "--device", "cuda")
    assert names_in(tmp_path) == set()


@pytest.mark.parametrize("command", ["train", "communities", "evaluate"])
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("KarateKlub", "did you mean 'KarateClub'?"),
        ("nowhere", "unknown dataset 'nowhere'"),
        ("nowhere/", "nowhere: no such file or folder"),
        ("graph.xlsx", "graph.xlsx: no such file or folder"),
    ],
)
def test_unknown_data(command: str, name: str, why: str, tmp_path: Path) -> None:
    assert why in refused(command, name)
    assert names_in(tmp_path) == set()


def test_absent_benchmarks_say_which_file_goes_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_network(*_: object, **__: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr("urllib.request.urlopen", no_network)
    line = refused("train", "Cora", "--data-dir", tmp_path / "root")
    assert str(tmp_path / "root" / "Cora" / "raw") in line
    assert "ind.cora.x" in line


@pytest.mark.usefixtures("no_page")
def test_a_finished_run_is_not_replaced_by_accident(pets: Path) -> None:
    succeed("train", pets, "-o", "run", *QUICK)
    before = {path: path.read_bytes() for path in Path("run").iterdir()}
    assert "run: holds a finished run" in refused("train", pets, "-o", "run", *QUICK)
    refused("train", pets, "-o", "run", "--overwrite", "--set", "foo=1")
    refused("train", pets, "-o", "run", "--overwrite", "--set", "num_communities=1")
    assert {path: path.read_bytes() for path in Path("run").iterdir()} == before


def test_other_features_than_in_training(pets_run: Path, tmp_path: Path) -> None:
    wider = write_nodes(tmp_path / "wider", features=3)
    line = refused("predict", pets_run, wider)
    assert "'f2' unknown to the model" in line
    assert names_in(tmp_path) == {"wider"}


def test_unknown_labels_to_predict(pets: Path, pets_run: Path, tmp_path: Path) -> None:
    shutil.copytree(pets, "data")
    replace_line(2, "n1,fish,0.5,1")(Path("data"))
    assert "'fish' is none of the known classes (cat, dog)" in refused("predict", pets_run, "data")
    assert names_in(tmp_path) == {"data"}


def test_models_of_the_other_task(
    pets_run: Path, shapes: Path, shapes_run: Path, tmp_path: Path
) -> None:
    plain = write_nodes(tmp_path / "plain", labels=False)
    assert "labels nodes, the model" in refused("predict", shapes_run, plain)
    assert "is none of the known classes" in refused("predict", pets_run, shapes)
    assert names_in(tmp_path) == {"plain"}


def test_predictions_that_cannot_be_written(pets: Path, pets_run: Path, tmp_path: Path) -> None:
    Path("file").touch()
    Path("folder").mkdir()
    assert "file" in refused("predict", pets_run, pets, "-o", "file/predictions.csv")
    assert "folder" in refused("predict", pets_run, pets, "-o", "folder")
    assert names_in(tmp_path) == {"file", "folder"}
    assert names_in(Path("folder")) == set()


def test_no_training_labels(pets: Path) -> None:
    shutil.copytree(pets, "data")
    rows = [line.split(",") for line in (pets / "nodes.csv").read_text().splitlines()[1:]]
    write_table(Path("data/nodes.csv"), "id,label,split", [(*row[:2], "test") for row in rows])
    assert "mark some as train" in refused("train", "data")
