"""The training loop for many runs at once; each keeps a course of its own."""

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from vepm.nn import VEPM
from vepm.training.batches import GraphBatch
from vepm.training.config import TrainingConfig
from vepm.training.losses import Held, Terms, bound_loss, hold, predictor_loss, pretraining_loss
from vepm.training.recording import Recorder, recordable_adam, worth_recording
from vepm.training.schedule import (
    consistency_weight,
    descend,
    schedule_factor,
    scheme_steps,
    seed_draws,
    set_rate,
)
from vepm.training.state import PRETRAIN_LEARNING_RATE, Course, Examples, Row, pretrains
from vepm.training.tally import Tally, check_finite
from vepm.training.together.batches import (
    GraphBatches,
    PlannedBatch,
    SharedBatch,
    StackedBatch,
    Watch,
)
from vepm.training.together.keeping import Keeper
from vepm.training.together.replicas import Replicas

T = TypeVar("T")


class Together:
    """Trains replicas side by side, as :func:`vepm.training.train` would each on its own.

    All are in the same phase. A replica that has finished a phase early waits: the others' steps
    go through its weights too, and what it had is put back when the phase ends.

    Args:
        replicas: Models with their starting weights.
        examples: What each learns from, over one source.
        seeds: Seed of each.
        config: How to train.
    """

    def __init__(
        self,
        replicas: Replicas,
        examples: Sequence[Examples],
        seeds: Sequence[int],
        config: TrainingConfig,
    ) -> None:
        self.replicas, self.examples, self.seeds, self.config = replicas, examples, seeds, config
        self.courses = [Course() for _ in seeds]
        theta, phi = replicas.predictor_parameters(), replicas.encoder_parameters()
        self.predictor_optimizer = recordable_adam(theta, config.weight_decay)
        self.encoder_optimizer = recordable_adam(phi)
        self.keeper = Keeper(replicas)
        self.watch = Watch(examples)
        self.whole_graph: SharedBatch | None = None
        if isinstance(examples[0].source, GraphBatch):
            rows = torch.stack([own.train for own in examples]).to(replicas.device)
            self.whole_graph = SharedBatch(self.watch.pieces[0], rows)
        graphs = (piece.edges.edge_index for piece in self.watch.pieces)
        self.recorder = Recorder(on=all(map(worth_recording, graphs)))
        self.held: tuple[int, Held] | None = None
        self.consistency_weight = replicas.model.activation.new_zeros(())

    def train(self) -> None:
        """Run all phases, then restore the weights of each replica's best validation epoch."""
        device = self.replicas.device
        labelled = any(own.train.numel() for own in self.examples)
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            if pretrains(self.config):
                self._run_phase("pretrain", self._pretrain_epoch, self.config.pretrain_epochs)
                self.keeper.put_back()
            self._enter("finetune")
            self._run_phase("finetune", self._finetune_epoch, self.config.epochs * labelled)
            self.keeper.put_back()
            self._enter("done")

    def _enter(self, phase: str) -> None:
        for course in self.courses:
            course.enter(phase)
        self.encoder_optimizer.state.clear()
        self.recorder.forget()

    def _run_phase(self, phase: str, run: Callable[[int], dict[str, Tensor]], epochs: int) -> None:
        if self.whole_graph is None:
            size = self.config.batch_size
            self.batches = GraphBatches(self.examples, self.seeds, phase, epochs, size)
        for epoch in range(epochs):
            active = [r for r, course in enumerate(self.courses) if not course.stopped(self.config)]
            if not active:
                return
            started = time.perf_counter()
            values = run(epoch)
            # The one time in an epoch that the device is waited for.
            columns = torch.stack([value.double() for value in values.values()]).tolist()
            share = (time.perf_counter() - started) / len(active)
            for r in active:
                numbers = {name: column[r] for name, column in zip(values, columns, strict=True)}
                row = {"phase": phase, "epoch": epoch} | self._measured(r, numbers)
                self._note(r, row | {"learning_rate": self._rate(epoch), "seconds": share})
            self.keeper.keep([r for r in active if self._settled(r)])

    def _rate(self, epoch: int) -> float:
        config = self.config
        if self.courses[0].phase == "pretrain":
            return PRETRAIN_LEARNING_RATE
        return schedule_factor(config.schedule, epoch, config.epochs) * config.learning_rate

    def _measured(self, r: int, numbers: Row) -> Row:
        """Numbers of a replica without those of roles that nothing has in it."""
        check_finite({k: v for k, v in numbers.items() if k in Terms._fields}, self.courses[r])
        own = self.examples[r]
        roles = {"val": own.val, "test": own.test}
        absent = {role for role, rows in roles.items() if rows is None or not rows.numel()}
        return {k: v for k, v in numbers.items() if k.partition("_")[0] not in absent}

    def _note(self, r: int, row: Row) -> None:
        course = self.courses[r]
        if course.phase == "pretrain":
            course.watch_convergence(row["loss"])
        else:
            course.judge(row)
        course.history.append(row)
        course.epoch += 1

    def _settled(self, r: int) -> bool:
        """Whether a replica's weights of now are those it is to have when the phase ends."""
        course = self.courses[r]
        if course.phase == "pretrain":
            return course.stopped(self.config)
        # Without validation that is the last epoch, which needs no keeping.
        return course.best_epoch == course.epoch - 1 and bool(self.examples[r].val.numel())

    def _pretrain_epoch(self, epoch: int) -> dict[str, Tensor]:
        set_rate(self.encoder_optimizer, PRETRAIN_LEARNING_RATE)
        self.replicas.model.train()
        tally = Tally()
        for batch in self._batches("pretrain", epoch):
            name = ("pretrain", batch.room)
            tally.add(self.recorder.run(name, self._pretrain_step, batch))
        return tally.means()

    def _pretrain_step(self, planned: PlannedBatch) -> Terms:
        batch = planned.laid_out()
        terms = self._terms(batch, lambda m, g, _: pretraining_loss(m, g, self.config))
        descend(terms.loss.sum(), self.encoder_optimizer)
        return terms.detached()

    def _finetune_epoch(self, epoch: int) -> dict[str, Tensor]:
        config = self.config
        # A recorded step reads it where it is.
        self.consistency_weight.fill_(consistency_weight(config, epoch))
        factor = schedule_factor(config.schedule, epoch, config.epochs)
        set_rate(self.predictor_optimizer, factor * config.learning_rate)
        set_rate(self.encoder_optimizer, factor * config.encoder_learning_rate)
        self.replicas.model.train()
        held = self._held_for_cycle(epoch)
        tally, batches = Tally(), self._batches("finetune", epoch)
        for i, batch in enumerate(batches):
            step = epoch * len(batches) + i
            for kind in scheme_steps(config.scheme, config.encoder_interval, step):
                inputs = (batch,) if kind != "predictor" or held is None else (batch, held)
                work = functools.partial(self._finetune_step, kind)
                terms = self.recorder.run((kind, batch.room), work, *inputs)
            tally.add(terms)
        means = tally.means()
        labels = [sum(counts) for counts in zip(*(b.labels for b in batches), strict=True)]
        correct = means.pop("correct") * len(batches)
        means["train_accuracy"] = correct / torch.tensor(labels, device=correct.device)
        watched = functools.partial(self.watch.metrics, self.replicas)
        return means | self.recorder.run("watch", watched)

    def _batches(self, phase: str, epoch: int) -> list[PlannedBatch]:
        whole = self.whole_graph
        batches: list[PlannedBatch]
        batches = self.batches.epoch(epoch) if whole is None else [whole]
        seed_draws(*self.seeds, phase, epoch)
        return batches

    def _held_for_cycle(self, epoch: int) -> Held | None:
        """Affiliations of the one graph, the same until the encoders step again."""
        if self.whole_graph is None or self.config.scheme in ("joint", "scratch"):
            return None
        cycle = epoch // self.config.encoder_interval
        if self.held is None or self.held[0] != cycle:
            seed_draws(*self.seeds, "hold", cycle)
            self.held = cycle, self.recorder.run("hold", self._hold, self.whole_graph)
        return self.held[1]

    def _hold(self, batch: StackedBatch) -> Held:
        return self._on(batch, lambda m, g, _: hold(m, g, self.config))

    def _finetune_step(self, kind: str, planned: PlannedBatch, held: Held | None = None) -> Terms:
        batch, config, weight = planned.laid_out(), self.config, self.consistency_weight
        if kind == "predictor":
            held = self._hold(batch) if held is None else held
            terms = self._terms(
                batch,
                lambda m, g, rows, held: predictor_loss(m, g, rows, held, config, weight),
                held,
            )
            descend(terms.loss.sum(), self.predictor_optimizer)
            return terms.detached()
        terms = self._terms(batch, lambda m, g, rows: bound_loss(m, g, rows, config, weight))
        optimizers = [self.encoder_optimizer]
        optimizers += [self.predictor_optimizer] if kind == "both" else []
        descend(terms.loss.sum(), *optimizers)
        return terms.detached()

    def _terms(self, batch: StackedBatch, loss: Callable[..., Terms], *own: Any) -> Terms:
        """Terms of every replica [R]."""

        def present(*arguments: Any) -> dict[str, Tensor]:
            terms = loss(*arguments)._asdict()
            return {name: value for name, value in terms.items() if value is not None}

        return Terms(**self._on(batch, present, *own))

    def _on(self, batch: StackedBatch, function: Callable[..., T], *own: Any) -> T:
        """Call a function with every replica's model, batch, rows and own tensors."""
        presence = self.replicas.presence

        def one(model: VEPM, parts: Any, *own: Any) -> T:
            graphs, rows = batch.local(parts)
            presence.nodes = graphs.nodes_present
            try:
                return function(model, graphs, rows, *own)
            finally:
                presence.nodes = None

        return self.replicas.each(one, batch.parts, *own)
