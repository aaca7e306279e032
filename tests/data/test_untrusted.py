"""Archives from strangers: what they claim is checked before anything is made of it."""

import io
import pickle
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from training.forging import Bomb
from vepm.data import load, npz, read
from vepm.errors import InputError

TRIANGLE = sp.csr_matrix(np.ones((3, 3)) - np.eye(3))


def parts(prefix: str, matrix: Any) -> dict[str, Any]:
    return {
        f"{prefix}data": matrix.data,
        f"{prefix}indices": matrix.indices,
        f"{prefix}indptr": matrix.indptr,
        f"{prefix}shape": np.array(matrix.shape),
    }


def save(path: Path, **arrays: Any) -> Path:
    path.parent.mkdir(exist_ok=True)
    np.savez(path, **arrays)
    return path


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [
        ("adj_indptr", -1, -(2**63)),
        ("adj_indptr", 1, 2**62),
        ("adj_indptr", 0, 1),
        ("adj_indices", 0, -1),
        ("adj_indices", 0, 2**40),
        ("adj_shape", 0, 2**40),
        ("adj_shape", 1, 2**62),
    ],
)
def test_positions_outside_an_npz_matrix_are_refused(
    tmp_path: Path, name: str, place: int, value: int
) -> None:
    """SciPy itself lets the first of these through and writes outside its memory."""
    arrays = {key: np.asarray(part) for key, part in parts("adj_", TRIANGLE).items()}
    arrays[name] = arrays[name].astype(np.int64)
    arrays[name][place] = value
    with pytest.raises(InputError, match=r"cannot be used|must be square"):
        read(save(tmp_path / "g.npz", **arrays))


def test_npz_that_claims_more_than_it_holds_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path / "g.npz", **parts("adj_", TRIANGLE), attr_matrix=np.eye(3))
    stored = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        stored, {"descr": "<f8", "fortran_order": False, "shape": (3, 10**9)}
    )
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("labels.npy", stored.getvalue())
    with pytest.raises(InputError, match="truncated, corrupt or cannot be used"):
        read(path)


def test_npz_that_unpacks_to_gigabytes_is_refused(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("vepm.data.npz._SMALL", 10**6)
    path = tmp_path / "g.npz"
    np.savez_compressed(path, **parts("adj_", TRIANGLE), attr_matrix=np.zeros((3, 10**6)))
    assert path.stat().st_size < 10**5
    with pytest.raises(
        InputError, match=r"unpacks to 24000744 bytes, more than \d+; store zeros sparsely"
    ):
        read(path)


def test_names_in_an_npz_are_not_paths(tmp_path: Path) -> None:
    path = save(tmp_path / "data" / "g.npz", **parts("adj_", TRIANGLE))
    with zipfile.ZipFile(path, "a") as archive:
        stored = io.BytesIO()
        np.save(stored, np.arange(3))
        archive.writestr("../../escaped.npy", stored.getvalue())
    assert read(path).graphs[0].num_nodes == 3
    assert [p.name for p in tmp_path.iterdir()] == ["data"]


def served(monkeypatch: pytest.MonkeyPatch, files: dict[str, bytes]) -> None:
    content = BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, inside in files.items():
            archive.writestr(name, inside)
    monkeypatch.setattr("urllib.request.urlopen", lambda url, timeout: BytesIO(content.getvalue()))


TU = {
    "A": b"1, 2\n2, 1\n3, 4\n4, 3\n",
    "graph_indicator": b"1\n1\n2\n2\n",
    "graph_labels": b"0\n1\n",
}


@pytest.mark.parametrize("folder", ["../../", "/", "IMDB-BINARY/../../../", "..\\..\\"])
def test_fetched_archives_stay_in_their_folder(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {f"{folder}IMDB-BINARY_{part}.txt": content for part, content in TU.items()}
    served(monkeypatch, files | {f"{folder}escaped.txt": b"x"})
    assert len(load("IMDB-BINARY", tmp_path / "a" / "b").graphs) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["b"]
    raw = tmp_path / "a" / "b" / "IMDB-BINARY" / "raw"
    assert {path.name for path in raw.iterdir()} == {f"IMDB-BINARY_{part}.txt" for part in TU}


def test_fetched_archives_that_unpack_to_gigabytes_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vepm.data.registry._LARGEST", 10**5)
    served(monkeypatch, {"IMDB-BINARY_A.txt": b"0" * 10**6})
    with pytest.raises(InputError, match="claims 1000000 bytes"):
        load("IMDB-BINARY", tmp_path)


@pytest.fixture
def forged_cora(tmp_path: Path) -> Path:
    """A root whose Cora is none: every file a pickle that runs code."""
    raw = tmp_path / "Cora" / "raw"
    raw.mkdir(parents=True)
    for part in ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index"):
        (raw / f"ind.cora.{part}").write_bytes(pickle.dumps(Bomb()))
    return tmp_path


def test_benchmark_pickles_with_other_sums_are_not_opened(forged_cora: Path) -> None:
    with pytest.raises(InputError, match="being a pickle that could run any code"):
        load("Cora", forged_cora)


def test_an_archive_may_unpack_to_a_hundred_times_its_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(npz, "_SMALL", 1)
    random = np.random.default_rng(0).integers(0, 255, 1000, dtype=np.uint8)
    for zeros, refused in ((50_000, False), (1_000_000, True)):
        content = io.BytesIO()
        np.savez_compressed(content, random=random, zeros=np.zeros(zeros, np.uint8))
        if refused:
            with pytest.raises(ValueError, match="unpacks to"):
                npz.check_size(content)
        else:
            npz.check_size(content)
