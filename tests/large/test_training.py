"""Training by clusters: the same bits again, after an interruption too, and it learns."""

from pathlib import Path
from typing import Any

import pytest
import torch

from training.toys import SCHEMES, SMALL, roles, run, same_run, toy
from vepm.data import planted_graph
from vepm.errors import InputError
from vepm.measures import accuracy
from vepm.scale.batches import GraphBatch
from vepm.scale.ddp import ProcessGroup
from vepm.scale.large import LargeGraph
from vepm.training import Config, fit, fitting, probabilities


def settings(**changes: Any) -> Config:
    return SMALL["node"].replace(batch_size=20, **changes)


class StopError(Exception):
    pass


def stop_after(epochs: int) -> Any:
    seen = 0

    def progress(*_: Any) -> None:
        nonlocal seen
        seen += 1
        if seen > epochs:
            raise StopError

    return progress


def test_the_same_seed_gives_the_same_bits() -> None:
    assert same_run(run("node", settings()), run("node", settings()))
    assert not same_run(run("node", settings()), run("node", settings(), seed=1))


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("epochs", [1, 4])
def test_resumed_run_equals_uninterrupted_one(
    scheme: str, epochs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fitting, "SECONDS_BETWEEN_SAVES", 0.0)
    config = settings(scheme=scheme, encoder_interval=2)
    path = tmp_path / "state.safetensors"
    with pytest.raises(StopError):
        run("node", config, checkpoint=path, progress=stop_after(epochs))
    assert same_run(run("node", config, checkpoint=path), run("node", config))


def test_a_graph_that_fits_a_batch_is_taken_at_once() -> None:
    nodes = toy("node").graphs[0].num_nodes
    assert isinstance(run("node", settings()).source, LargeGraph)
    whole = run("node", settings().replace(batch_size=nodes))
    assert isinstance(whole.source, GraphBatch)


def test_clusters_learn_what_the_whole_graph_learns() -> None:
    dataset = planted_graph(1200, 4, average_degree=8, num_features=16, seed=0)
    graph = dataset.graphs[0]
    train, val, test = (
        graph[name].nonzero().flatten() for name in ("train_mask", "val_mask", "test_mask")
    )
    found = []
    for nodes in (0, 300):
        config = SMALL["node"].replace(
            num_communities=4,
            num_metacommunities=4,
            batch_size=nodes,
            epochs=30,
            pretrain_epochs=40,
        )
        fitted = fit(dataset, config, train_on=train, validate_on=val, device="cpu")
        losses = [row["loss"] for row in fitted.history if row["phase"] == "pretrain"]
        assert losses[-1] < 0.6 * losses[0]
        found.append(accuracy(probabilities(fitted.model, fitted.source)[test], graph.y[test]))
    assert found[1] > 0.8
    assert found[1] > found[0] - 0.1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"likelihood": "subsampled"}, "subsampled likelihood"),
        ({"partition": "random"}, "partition"),
        ({"inputs": "random"}, "random inputs"),
    ],
)
def test_settings_that_need_the_whole_graph_are_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        run("node", settings(**change))


def test_one_graph_at_once_cannot_be_shared() -> None:
    with pytest.raises(InputError, match="--batch-nodes"):
        run("node", group=ProcessGroup(0, 2))


def test_too_many_processes_for_the_clusters_are_refused() -> None:
    with pytest.raises(InputError, match="too few for 61 processes"):
        run("node", settings(), group=ProcessGroup(0, 61))


def test_no_labels_are_needed() -> None:
    none = torch.empty(0, dtype=torch.long)
    fitted = run("node", settings(), train_on=none, validate_on=none, watch=None)
    assert {row["phase"] for row in fitted.history} == {"pretrain"}
    assert roles("node")[0].numel()
