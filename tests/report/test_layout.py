import numpy as np
import pytest

from vepm.report import payload
from vepm.report.payload import SMALL, layout


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


def test_three_steps_equal_the_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Springs, pushes and the pull to the middle, node by node."""
    monkeypatch.setattr(payload, "STEPS", 3)
    drawn = np.random.default_rng(5)
    size = SMALL + 1
    edges = np.stack([np.arange(1, size), drawn.integers(np.arange(1, size))])
    random = np.random.default_rng(0)
    position = random.normal(scale=size**0.5 / 3, size=(size, 2))
    degree = np.bincount(edges.ravel(), minlength=size)
    for step in range(3):
        far, move = random.integers(size, size=(size, 6)), np.zeros((size, 2))
        for i, j in [*edges.T, *edges[::-1].T]:
            spring = position[j] - position[i]
            stiffness = 0.8 / min(degree[i], degree[j]) ** 0.5
            move[i] += spring * min(np.linalg.norm(spring), 4) * stiffness
        for i in range(size):
            gaps = np.linalg.norm(position - position[i], axis=1)
            pushes = [(1.5, j) for j in np.argsort(gaps)[1:9]]
            pushes += [(0.25 * size / 6, j) for j in far[i]]
            for strength, j in pushes:
                gap = position[i] - position[j]
                move[i] += strength * gap / (gap @ gap + 0.05)
            outwards = min(np.linalg.norm(position[i]) / size**0.5, 1.5)
            move[i] -= 0.35 * position[i] * outwards
        heat = size**0.5 * 0.05 * (1 - step / 3) + 0.02
        speed = np.linalg.norm(move, axis=1, keepdims=True)
        position = position + move / speed * np.minimum(speed, heat)
    np.testing.assert_allclose(layout(edges, size), position - position.mean(axis=0), atol=1e-9)


def test_small_graphs_have_edges_of_length_one_on_average() -> None:
    edges, size = _ring(SMALL)
    positions = layout(edges, size)
    assert np.linalg.norm(positions[edges[0]] - positions[edges[1]], axis=1).mean() == (
        pytest.approx(1)
    )
    # Two pairs of nodes: three apart, as the longest path is of length one.
    pairs = np.array([[0, 2], [1, 3]])
    found = layout(pairs, 4)
    between = np.linalg.norm(found[:2].mean(axis=0) - found[2:].mean(axis=0))
    assert 1.5 < between < 4.5
    alone = layout(pairs[:, :0], 2)
    assert np.linalg.norm(alone[0] - alone[1]) > 1
