"""One loop for every phase and scheme: pretrain on edges, finetune on labels, keep the best."""

import copy
import hashlib
import math
import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from vepm.errors import InputError
from vepm.training.batches import GraphBatch, GraphStore
from vepm.training.config import TrainingConfig
from vepm.training.losses import Held, Terms, bound_loss, hold, predictor_loss, pretraining_loss
from vepm.training.prediction import scores
from vepm.training.state import PHASES, Examples, Progress, Row, TrainingState


def train(
    state: TrainingState,
    examples: Examples,
    config: TrainingConfig,
    *,
    seed: int = 0,
    progress: Progress | None = None,
    on_epoch: Callable[[TrainingState], None] | None = None,
) -> TrainingState:
    """Run the phases that are left, then restore the weights of the best validation epoch.

    Every epoch draws its random numbers from the seed, its phase and its number alone, so a
    run resumed from the state after any epoch gives the numbers of one never interrupted.

    Args:
        state: Where to start from; changed in place.
        examples: Graphs and the roles of their labels.
        config: How to train.
        seed: Seed of all randomness.
        progress: Told of every epoch.
        on_epoch: Given the state after every epoch, to save it.
    """
    devices = [state.model.activation.device] if state.model.activation.is_cuda else []
    with torch.random.fork_rng(devices=devices):
        for phase, run, epochs in [
            ("pretrain", _pretrain_epoch, config.pretrain_epochs),
            ("finetune", _finetune_epoch, config.epochs if examples.train.numel() else 0),
        ]:
            while state.phase == phase and state.epoch < epochs and not _stopped(state, config):
                started = time.perf_counter()
                row = {"phase": phase, "epoch": state.epoch}
                row |= run(state, examples, config, seed)
                row["seconds"] = time.perf_counter() - started
                state.history.append(row)
                state.epoch += 1
                if progress is not None:
                    progress(phase, state.epoch, epochs, row)
                if on_epoch is not None:
                    on_epoch(state)
            if state.phase == phase:
                state.enter(PHASES[PHASES.index(phase) + 1])
    if state.best_weights is not None:
        state.model.load_state_dict(state.best_weights)
    state.model.eval()
    return state


def _stopped(state: TrainingState, config: TrainingConfig) -> bool:
    patience = config.pretrain_patience if state.phase == "pretrain" else config.patience
    return patience > 0 and state.stale >= patience


def _pretrain_epoch(
    state: TrainingState, examples: Examples, config: TrainingConfig, seed: int
) -> Row:
    _seed(seed, "pretrain", state.epoch)
    _set_rate(state.encoder_optimizer, config.pretrain_learning_rate)
    state.model.train()
    tally = _Tally()
    for batch, _ in _batches(examples, examples.pretrain, config.batch_size):
        terms = pretraining_loss(state.model, batch, config)
        _step(terms, state.encoder_optimizer)
        tally.add(terms, 0)
    row = tally.row(state)
    _watch_convergence(state, row["loss"], config)
    return row | {"learning_rate": config.pretrain_learning_rate}


def _watch_convergence(state: TrainingState, loss: float, config: TrainingConfig) -> None:
    # Affiliations are drawn anew in every epoch: the smoothed loss tells progress from luck.
    first = math.isinf(state.smoothed)
    state.smoothed = loss if first else 0.9 * state.smoothed + 0.1 * loss
    margin = config.pretrain_tolerance * abs(state.converging)
    if first or state.smoothed < state.converging - margin:
        state.converging, state.stale = state.smoothed, 0
    else:
        state.stale += 1


def _finetune_epoch(
    state: TrainingState, examples: Examples, config: TrainingConfig, seed: int
) -> Row:
    model = state.model
    factor = schedule_factor(config.schedule, state.epoch, config.epochs)
    _set_rate(state.predictor_optimizer, factor * config.learning_rate)
    _set_rate(state.encoder_optimizer, factor * config.encoder_learning_rate)
    model.train()
    held = _held_for_cycle(state, examples, config, seed)
    _seed(seed, "finetune", state.epoch)
    tally = _Tally()
    batches = list(_batches(examples, examples.train, config.batch_size))
    for i, (batch, rows) in enumerate(batches):
        step = state.epoch * len(batches) + i
        for kind in scheme_steps(config.scheme, config.encoder_interval, step):
            terms = _finetune_step(kind, state, batch, rows, held, config)
        tally.add(terms, rows.numel())
    row = tally.row(state)
    row |= _watch_validation(state, examples)
    return row | {"learning_rate": factor * config.learning_rate}


def scheme_steps(scheme: str, interval: int, step: int) -> tuple[str, ...]:
    """What moves in a step of finetuning: the predictor, the encoder, or both at once.

    Example:
        >>> [scheme_steps("alternating", 2, step) for step in range(2)]
        [('predictor',), ('predictor', 'encoder')]
    """
    if scheme == "predictor":
        return ("predictor",)
    if scheme in ("joint", "scratch"):
        return ("both",)
    return ("predictor", "encoder") if (step + 1) % interval == 0 else ("predictor",)


def schedule_factor(schedule: str, epoch: int, epochs: int) -> float:
    """Learning rate of an epoch relative to the first.

    Example:
        >>> [schedule_factor("halving", epoch, 300) for epoch in (0, 49, 50, 100)]
        [1.0, 1.0, 0.5, 0.25]
    """
    if schedule == "cosine":
        return (1 + math.cos(math.pi * epoch / epochs)) / 2
    return float(0.5 ** (epoch // 50)) if schedule == "halving" else 1.0


def _held_for_cycle(
    state: TrainingState, examples: Examples, config: TrainingConfig, seed: int
) -> Held | None:
    """Affiliations of the one graph, the same until the encoder steps again."""
    if isinstance(examples.source, GraphStore) or config.scheme in ("joint", "scratch"):
        return None
    cycle = state.epoch // config.encoder_interval
    if state.held is None or state.held[0] != cycle:
        _seed(seed, "hold", cycle)
        state.held = cycle, hold(state.model, examples.source, config)
    return state.held[1]


def _finetune_step(
    kind: str,
    state: TrainingState,
    batch: GraphBatch,
    rows: Tensor,
    held: Held | None,
    config: TrainingConfig,
) -> Terms:
    if kind == "predictor":
        held = hold(state.model, batch, config) if held is None else held
        terms = predictor_loss(state.model, batch, rows, held, config)
        _step(terms, state.predictor_optimizer)
        return terms
    terms = bound_loss(state.model, batch, rows, config)
    if kind == "encoder":
        _step(terms, state.encoder_optimizer)
    else:
        _step(terms, state.encoder_optimizer, state.predictor_optimizer)
    return terms


def _watch_validation(state: TrainingState, examples: Examples) -> Row:
    row: Row = {}
    logits = scores(state.model, examples.source)
    y = examples.source.y
    for name, rows in [("val", examples.val), ("test", examples.test)]:
        if rows is None or rows.numel() == 0:
            continue
        rows = rows.to(y.device)
        row[f"{name}_accuracy"] = float((logits[rows].argmax(1) == y[rows]).double().mean())
        row[f"{name}_loss"] = float(torch.nn.functional.cross_entropy(logits[rows], y[rows]))
    if "val_accuracy" not in row:
        state.best_epoch = state.epoch
        return row
    score = (row["val_accuracy"], -row["val_loss"])
    state.stale += 1
    if score > state.best_score:
        state.best_score, state.best_epoch, state.stale = score, state.epoch, 0
        state.best_weights = copy.deepcopy(state.model.state_dict())
    return row


def _batches(
    examples: Examples, chosen: Tensor | None, size: int
) -> Iterator[tuple[GraphBatch, Tensor]]:
    """Batches of the chosen graphs in random order, with the labelled rows of each."""
    source = examples.source
    if isinstance(source, GraphBatch):
        yield source, examples.train.to(source.x.device)
        return
    chosen = torch.arange(len(source)) if chosen is None else chosen
    order = chosen[torch.randperm(chosen.numel())]
    for part in order.split(size or max(order.numel(), 1)):
        batch = source.select(part)
        yield batch, torch.arange(batch.num_graphs, device=batch.x.device)


def _step(terms: Terms, *optimizers: torch.optim.Optimizer) -> None:
    for optimizer in optimizers:
        optimizer.zero_grad(set_to_none=True)
    parameters = [p for o in optimizers for group in o.param_groups for p in group["params"]]
    # Only what is to move needs a gradient: the rest of the backward pass is left out.
    gradients = torch.autograd.grad(terms.loss, parameters, allow_unused=True)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
    for optimizer in optimizers:
        optimizer.step()


def _set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate


def _seed(seed: int, *purpose: str | int) -> None:
    text = "/".join(map(str, (seed, *purpose)))
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    torch.manual_seed(int.from_bytes(digest, "little"))


class _Tally:
    """Means of an epoch's terms, read from the device once at its end."""

    def __init__(self) -> None:
        self.steps: list[Terms] = []
        self.labels = 0

    def add(self, terms: Terms, labels: int) -> None:
        self.steps.append(Terms._make(t if t is None else t.detach() for t in terms))
        self.labels += labels

    def row(self, state: TrainingState) -> Row:
        row: Row = {}
        for name, column in zip(Terms._fields, zip(*self.steps, strict=True), strict=True):
            present = [value for value in column if value is not None]
            if present:
                total = float(torch.stack(present).double().sum())
                row[name] = total / len(present)
        # The loss stands first, but a term it is made of says more about the cause.
        for name in reversed(row):
            if not math.isfinite(row[name]):
                raise InputError(
                    f"training diverged: {name} is {row[name]} in epoch {state.epoch} of "
                    f"{state.phase}; lower the learning rate or check the features' scale"
                )
        if "correct" in row:
            correct = row.pop("correct") * len(self.steps)
            row["train_accuracy"] = correct / max(self.labels, 1)
        return row
