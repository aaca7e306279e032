"""One loop for every phase and scheme: pretrain on edges, finetune on labels, keep the best."""

import copy
import functools
import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from vepm.nn import VEPM
from vepm.training.batches import GraphBatch, GraphStore
from vepm.training.config import TrainingConfig
from vepm.training.divergence import check_weights
from vepm.training.losses import Held, Terms, bound_loss, hold, predictor_loss, pretraining_loss
from vepm.training.pages import kept_pages
from vepm.training.prediction import scores
from vepm.training.ranks import Team
from vepm.training.recording import Recorder, worth_recording
from vepm.training.schedule import (
    consistency_weight,
    descend,
    schedule_factor,
    scheme_steps,
    seed_draws,
    set_rate,
)
from vepm.training.state import (
    PHASES,
    PRETRAIN_LEARNING_RATE,
    Examples,
    Progress,
    Row,
    TrainingState,
)
from vepm.training.tally import Tally


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
    # Steps on one graph are alike; batches of graphs, and draws of its nodes, have many sizes.
    alike = isinstance(examples.source, GraphBatch) and worth_recording(
        examples.source.edges.edge_index
    )
    alone = state.replicas is None and config.likelihood != "subsampled"
    state.recorder = Recorder(on=alike and alone)
    with torch.random.fork_rng(devices=devices), kept_pages():
        for phase, run, epochs in [
            ("pretrain", _pretrain_epoch, config.pretrain_epochs),
            ("finetune", _finetune_epoch, config.epochs if examples.train.numel() else 0),
        ]:
            while state.phase == phase and state.epoch < epochs and not state.stopped(config):
                started = time.perf_counter()
                row = {"phase": phase, "epoch": state.epoch}
                row |= run(state, examples, config, seed)
                check_weights(state)
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


def _pretrain_epoch(
    state: TrainingState, examples: Examples, config: TrainingConfig, seed: int
) -> Row:
    seed_draws(seed, "pretrain", state.epoch)
    set_rate(state.encoder_optimizer, PRETRAIN_LEARNING_RATE)
    state.model.train()
    tally = Tally()
    for batch, _ in _batches(examples, None, config.batch_size, state.team)[1]:
        tally.add(_pretrain_step(state, batch, config))
    row = tally.row(state, state.team)
    state.watch_convergence(row["loss"])
    return row | {"learning_rate": PRETRAIN_LEARNING_RATE}


def _pretrain_step(state: TrainingState, batch: GraphBatch, config: TrainingConfig) -> Terms:
    def loss(model: VEPM) -> Terms:
        return pretraining_loss(model, batch, config)

    return _move(state, [state.encoder_optimizer], "pretrain", loss)


def _finetune_epoch(
    state: TrainingState, examples: Examples, config: TrainingConfig, seed: int
) -> Row:
    model = state.model
    # A recorded step reads it where it is.
    state.consistency_weight.fill_(consistency_weight(config, state.epoch))
    factor = schedule_factor(config.schedule, state.epoch, config.epochs)
    set_rate(state.predictor_optimizer, factor * config.learning_rate)
    set_rate(state.encoder_optimizer, factor * config.encoder_learning_rate)
    model.train()
    held = _held_for_cycle(state, examples, config, seed)
    seed_draws(seed, "finetune", state.epoch)
    tally = Tally()
    count, batches = _batches(examples, examples.train, config.batch_size, state.team)
    for i, (batch, rows) in enumerate(batches):
        step = state.epoch * count + i
        for kind in scheme_steps(config.scheme, config.encoder_interval, step):
            terms = _finetune_step(kind, state, batch, rows, held, config)
        tally.add(terms, rows.numel())
    row = tally.row(state, state.team)
    row |= _watch_validation(state, examples)
    return row | {"learning_rate": factor * config.learning_rate}


def _held_for_cycle(
    state: TrainingState, examples: Examples, config: TrainingConfig, seed: int
) -> Held | None:
    """Affiliations of the one graph, the same until the encoder steps again."""
    if not isinstance(examples.source, GraphBatch) or config.scheme in ("joint", "scratch"):
        return None
    cycle = state.epoch // config.encoder_interval
    if state.held is None or state.held[0] != cycle:
        seed_draws(seed, "hold", cycle)
        work = functools.partial(hold, state.model, examples.source, config)
        state.held = cycle, state.recorder.run("hold", work)
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

        def loss(model: VEPM, held: Held) -> Terms:
            return predictor_loss(model, batch, rows, held, config, state.consistency_weight)

        return _move(state, [state.predictor_optimizer], kind, loss, held)
    moving = [state.encoder_optimizer]
    if kind == "both":
        moving.append(state.predictor_optimizer)
    weight = state.consistency_weight
    return _move(state, moving, kind, lambda m: bound_loss(m, batch, rows, config, weight))


def _move(
    state: TrainingState,
    optimizers: list[torch.optim.Adam],
    name: str,
    loss: Callable[..., Terms],
    *held: Held,
) -> Terms:
    """Let some parameters take a step down a loss; all processes do so together."""
    if state.replicas is not None:
        return state.replicas.descend(optimizers, loss, *held)

    def step(*held: Held) -> Terms:
        terms = loss(state.model, *held)
        descend(terms.loss, *optimizers)
        return terms.detached()

    return state.recorder.run(name, step, *held)


def _watch_validation(state: TrainingState, examples: Examples) -> Row:
    # One process judges: were each to judge by its own arithmetic, they might part ways.
    row = state.team.from_first(lambda: _validate(state, examples))
    if state.judge(row):
        state.best_weights = copy.deepcopy(state.model.state_dict())
    return row


def _validate(state: TrainingState, examples: Examples) -> Row:
    row: Row = {}
    logits = scores(state.model, examples.source)
    y = examples.source.y
    for name, rows in [("val", examples.val), ("test", examples.test)]:
        if rows is None or rows.numel() == 0:
            continue
        rows = rows.to(y.device)
        row[f"{name}_accuracy"] = float((logits[rows].argmax(1) == y[rows]).double().mean())
        row[f"{name}_loss"] = float(torch.nn.functional.cross_entropy(logits[rows], y[rows]))
    return row


def _batches(
    examples: Examples, chosen: Tensor | None, size: int, team: Team
) -> tuple[int, Iterator[tuple[GraphBatch, Tensor]]]:
    """How many batches an epoch has, and this process's share of each with its labelled rows."""
    source = examples.source
    if isinstance(source, GraphBatch):
        return 1, iter([(source, examples.train.to(source.x.device))])
    if examples.clusters is not None:
        return examples.clusters.steps, examples.clusters.epoch()
    assert isinstance(source, GraphStore)
    chosen = torch.arange(len(source)) if chosen is None else chosen
    order = chosen[torch.randperm(chosen.numel())]
    parts = order.split(size or max(order.numel(), 1))
    team.part_ways()
    return len(parts), (_graphs(source, part, team) for part in parts)


def _graphs(source: GraphStore, part: Tensor, team: Team) -> tuple[GraphBatch, Tensor]:
    batch = source.share(part, team.rank, team.size)
    return batch, torch.arange(batch.num_graphs, device=batch.x.device)
