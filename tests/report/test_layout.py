import numpy as np
import pytest

from vepm.report.payload import layout


def _ring(size: int) -> tuple[np.ndarray[tuple[int, ...], np.dtype[np.int64]], int]:
    nodes = np.arange(size)
    forward = np.stack([nodes, (nodes + 1) % size])
    return np.hstack([forward, forward[::-1]]), size


@pytest.mark.parametrize("size", [12, 400])
def test_neighbours_stay_close(size: int) -> None:
    edges, size = _ring(size)
    positions = layout(edges, size)
    assert np.isfinite(positions).all()
    near = np.linalg.norm(positions[edges[0]] - positions[edges[1]], axis=1).mean()
    far = np.linalg.norm(positions[:, None] - positions[None], axis=2).mean()
    assert near < far / 2


def test_edges_of_a_ring_are_about_equally_long() -> None:
    edges, size = _ring(120)
    positions = layout(edges, size)
    lengths = np.linalg.norm(positions[edges[0]] - positions[edges[1]], axis=1)
    assert lengths.std() < lengths.mean() / 3


def test_parts_do_not_lie_on_one_another() -> None:
    ring, size = _ring(6)
    edges = np.hstack([ring, ring + size])
    positions = layout(edges, 2 * size + 3)
    gaps = np.linalg.norm(positions[:, None] - positions[None], axis=2)
    assert gaps[np.triu_indices(len(gaps), 1)].min() > 0.3


def test_no_edges_at_all() -> None:
    positions = layout(np.zeros((2, 0), dtype=np.int64), 4)
    assert len(np.unique(positions, axis=0)) == 4


def test_same_seed_same_positions() -> None:
    edges, size = _ring(300)
    np.testing.assert_array_equal(layout(edges, size), layout(edges, size))
