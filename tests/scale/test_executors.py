"""The executors of one run and of many, by hand: optimizers, watched accuracies, kept weights."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from vepm.scale.ddp import ProcessGroup
from vepm.scale.executor import LabelledBatch, OneRun, Run, capturable_adam, descend, set_rate
from vepm.scale.many import ManyRuns, copy_runs

NONE = torch.zeros(0, dtype=torch.long)


def weights(*values: float) -> list[Tensor]:
    return [torch.tensor([value], requires_grad=True) for value in values]


def test_weights_decay_only_if_told() -> None:
    (plain,) = capturable_adam(weights(1.0)).param_groups
    assert (plain["weight_decay"], plain["lr"], plain["capturable"]) == (0, 0, False)
    both = weights(1.0, 2.0)
    decayed, free = capturable_adam(both, 0.25, both[1:]).param_groups
    assert (decayed["params"], decayed["weight_decay"]) == (both[:1], 0.25)
    assert (free["params"], free["weight_decay"]) == (both[1:], 0)


def test_a_captured_rate_is_set_in_place() -> None:
    optimizer = torch.optim.SGD([{"params": weights(1.0)}, {"params": weights(1.0)}], lr=1.0)
    held = optimizer.param_groups[1]["lr"] = torch.tensor(1.0)
    set_rate(optimizer, 0.5)
    assert optimizer.param_groups[0]["lr"] == 0.5
    assert optimizer.param_groups[1]["lr"] is held
    assert float(held) == 0.5


def test_a_step_moves_the_parameters_of_its_optimizers_alone() -> None:
    moved, unused, other = weights(3.0, 4.0, 5.0)
    optimizers = [torch.optim.SGD([moved], lr=0.5), torch.optim.SGD([unused], lr=0.5)]
    descend((moved.square() * other).sum(), optimizers, ProcessGroup())
    # The gradient is 2 x 3 x 5.
    assert (moved.item(), unused.item(), other.item()) == (-12, 4, 5)
    assert other.grad is None


def test_only_roles_with_rows_are_watched() -> None:
    rows = torch.tensor([1])
    assert Run(rows, NONE).watched == Run(rows, NONE, NONE).watched == {}
    assert list(Run(rows, rows, rows).watched) == ["val", "test"]


def watched(logits: Tensor, y: Tensor, run: Run, rank: int = 0) -> dict[str, float]:
    """What an executor of one run finds if these are its scores."""
    stub: Any = SimpleNamespace(
        scores=lambda *_: logits,
        model=None,
        source=SimpleNamespace(y=y),
        runs=[run],
        device="cpu",
        group=ProcessGroup(rank, 2),
    )
    return {name: float(value) for name, value in OneRun.watch(stub).items()}


def test_other_processes_add_nothing_to_what_the_first_one_finds() -> None:
    run = Run(NONE, torch.tensor([0, 1]), torch.tensor([2]))
    logits, y = torch.tensor([[2.0, 0], [0, 1], [0, 3]]), torch.tensor([0, 1, 1])
    first, second = (watched(logits, y, run, rank) for rank in (0, 1))
    assert list(first) == list(second)
    assert all(first.values())
    assert not any(second.values())


@pytest.mark.parametrize(("by_class", "right"), [(None, 2 / 3), ([1.0, 3.0], 4 / 5)])
def test_labels_count_by_the_weights_of_their_classes(
    by_class: list[float] | None, right: float
) -> None:
    logits, y = torch.tensor([[2.0, 0], [0, 1], [0, 3], [9, 0]]), torch.tensor([0, 0, 1, 1])
    weight = None if by_class is None else torch.tensor(by_class)
    rows = torch.tensor([0, 1, 2])
    found = watched(logits, y, Run(NONE, rows, class_weights=weight))
    assert found["val_accuracy"] == pytest.approx(right)
    assert found["val_loss"] == pytest.approx(float(cross_entropy(logits[:3], y[:3], weight)))
    assert found.keys() == {"val_accuracy", "val_loss"}


def test_many_runs_are_watched_as_each_would_be_alone() -> None:
    torch.manual_seed(0)
    logits, y = torch.randn(2, 5, 3), torch.tensor([0, 1, 2, 1, 0])
    val = [torch.tensor([0, 1, 4]), NONE]
    test = [torch.tensor([2]), torch.tensor([0, 2, 3])]
    runs = [Run(NONE, v, t) for v, t in zip(val, test, strict=True)]

    def masks(rows: list[Tensor]) -> Tensor:
        return torch.stack([torch.isin(torch.arange(5), own) for own in rows])

    pieces = iter([logits[:, :2], logits[:, 2:]])
    stub: Any = SimpleNamespace(
        call=lambda *_: next(pieces),
        _pieces=[None, None],
        _y=y,
        _roles={"val": masks(val), "test": masks(test)},
        runs=runs,
    )
    found = ManyRuns._metrics(stub)
    for number, run in enumerate(runs):
        alone = watched(logits[number], y, run)
        assert {name: float(found[name][number]) for name in alone} == pytest.approx(alone)


def test_weights_of_some_runs_are_copied() -> None:
    source = {"a": torch.ones(3), "b": torch.ones(3, 2, 2)}
    target = {name: torch.zeros_like(tensor) for name, tensor in source.items()}
    copy_runs(source, target, [0, 2])
    assert target["a"].tolist() == [1, 0, 1]
    assert target["b"].sum((1, 2)).tolist() == [4, 0, 4]


def test_every_run_has_as_many_labels_as_the_others() -> None:
    batch: Any = None
    assert LabelledBatch(batch, torch.zeros(3, 5)).labels == [5, 5, 5]
    assert LabelledBatch(batch, torch.zeros(4)).labels == [4]
