"""From a dataset and settings to a trained model: the one call behind every user of training."""

import hashlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.model_selection import train_test_split
from torch import Tensor

from vepm.data import Dataset
from vepm.errors import DivergedError, InputError
from vepm.nn import VEPM
from vepm.training.batches import GraphBatch, GraphStore, single_graph
from vepm.training.calibration import calibrate
from vepm.training.card import ModelCard
from vepm.training.checkpoint import load_state, save_state
from vepm.training.config import Config
from vepm.training.large import Clusters, LargeGraph
from vepm.training.loop import train
from vepm.training.memory import require_memory
from vepm.training.ordering import examples_in_order, worth_ordering
from vepm.training.prediction import Source
from vepm.training.ranks import Team, own_device
from vepm.training.state import PHASES, Examples, Progress, Row, TrainingState

SECONDS_BETWEEN_SAVES = 10.0
NONE = torch.empty(0, dtype=torch.long)


FEWEST_TO_SPLIT = 10
"""With fewer labels, none is set aside."""


@dataclass(frozen=True, eq=False)
class Fitted:
    """A trained model and how it got there."""

    model: VEPM
    card: ModelCard
    source: Source
    history: list[Row]
    best_epoch: int

    @property
    def best(self) -> Row:
        """History row of the epoch whose weights were kept; empty without finetuning."""
        rows = [row for row in self.history if row["phase"] == "finetune"]
        return rows[self.best_epoch] if rows else {}


def pick_device(name: str) -> torch.device:
    """``"auto"`` takes a GPU if there is one; ``"cpu"`` and ``"cuda"`` insist."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise InputError("device cuda was asked for, but no GPU is available; use auto or cpu")
    try:
        return torch.device(name)
    except RuntimeError:
        raise InputError(f"there is no device {name!r}; use auto, cpu or cuda") from None


def set_aside(rows: Tensor, y: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Split labelled nodes or graphs into four fifths and one, each class in proportion.

    Nothing is set aside where labels are too few to spare any.

    Args:
        rows: Their numbers.
        y: All labels.
        seed: Seed of the draw.
    """
    labels = y[rows].numpy()
    _, counts = np.unique(labels, return_counts=True)
    if len(labels) < FEWEST_TO_SPLIT or counts.min() < 2:
        return rows, rows[:0]
    size = max(len(labels) // 5, len(counts))
    kept, aside = train_test_split(rows.numpy(), test_size=size, stratify=labels, random_state=seed)
    return torch.from_numpy(np.sort(kept)), torch.from_numpy(np.sort(aside))


def source_of(dataset: Dataset, device: torch.device) -> GraphBatch | GraphStore:
    """The dataset's graphs as the training loop wants them, on the device."""
    if dataset.task == "node":
        return single_graph(dataset.graphs[0], device)
    return GraphStore(dataset.graphs, device)


def in_batches(dataset: Dataset, device: torch.device, batch_size: int) -> Source:
    """The same, but one graph of more nodes than go into a batch stays in main memory."""
    if dataset.task == "node" and 0 < batch_size < (dataset.graphs[0].num_nodes or 0):
        return LargeGraph(dataset.graphs[0], device)
    return source_of(dataset, device)


def new_model(card: ModelCard, device: torch.device) -> VEPM:
    """A model with the starting weights of its seed, the caller's random numbers untouched."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(card.seed)
        return card.build().to(device)


def fit(
    dataset: Dataset,
    config: Config,
    *,
    train_on: Tensor = NONE,
    validate_on: Tensor = NONE,
    watch: Tensor | None = None,
    seed: int = 0,
    device: str = "auto",
    progress: Progress | None = None,
    checkpoint: Path | None = None,
    team: Team | None = None,
    check_memory: bool = True,
    calibrated: bool = True,
) -> Fitted:
    """Train on part of a dataset.

    Args:
        dataset: The graphs.
        config: The settings.
        train_on: Numbers of the labelled nodes or graphs to learn from; with none, the
            communities are learned from the edges alone.
        validate_on: Numbers of those that choose the epoch.
        watch: Numbers of those whose accuracy is recorded and decides nothing.
        seed: Seed of weights and all draws.
        device: ``"auto"``, ``"cpu"`` or ``"cuda"``.
        progress: Told of every epoch.
        checkpoint: File to save to now and then; if it exists, training goes on from it.
        team: The processes that train the model together, each of which calls this.
        check_memory: Refuse, before anything large is made, what will not fit in memory.
        calibrated: Fit how sharp the probabilities are; accuracies do not depend on it.
    """
    team = team or Team()
    where = pick_device(device if team.alone else own_device(device))
    if check_memory:
        require_memory(dataset, config, where)
    card = ModelCard.of(dataset, config, seed)
    model = new_model(card, where)
    source = in_batches(dataset, where, config.training.batch_size)
    if isinstance(source, GraphBatch) and not team.alone:
        raise InputError(
            f"{dataset.name}: one graph that is taken at once cannot be shared between "
            f"{team.size} processes; cut it into clusters with --batch-nodes"
        )
    clusters = None
    if isinstance(source, LargeGraph):
        clusters = Clusters(source, config, train_on, team, seed)
    examples = Examples(
        source,
        train_on,
        validate_on,
        watch,
        clusters=clusters,
    )
    if isinstance(source, GraphBatch) and worth_ordering(dataset.graphs[0], config.model, where):
        examples = examples_in_order(examples, dataset.graphs[0])
    state = TrainingState.start(model, config.training, team)
    state.totals = clusters.totals if clusters else None
    on_epoch = None
    if checkpoint is not None:
        fingerprint = _fingerprint(card, examples)
        # The first has made the folder ready by now; what it finds there is what counts.
        if team.from_first(checkpoint.exists):
            load_state(checkpoint, state, fingerprint)
        _check_together(state, checkpoint)
        on_epoch = _saver(checkpoint, fingerprint) if team.leads else None
    left_to_do = state.phase != PHASES[-1]
    try:
        train(state, examples, config.training, seed=seed, progress=progress, on_epoch=on_epoch)
    except DivergedError as error:
        if checkpoint is None or not checkpoint.exists():
            raise
        raise DivergedError(f"{error}; the last good state is kept in {checkpoint}") from None
    finally:
        if state.replicas is not None:
            state.replicas.close()
    if checkpoint is not None and team.leads and left_to_do:
        # Whatever stops the work that follows, nothing is trained again.
        save_state(checkpoint, state, fingerprint)
    if calibrated and train_on.numel():
        calibrate(model, source, validate_on, config.training.num_samples, card.seed)
    return Fitted(model, card, source, state.history, state.best_epoch)


def _check_together(state: TrainingState, checkpoint: Path) -> None:
    """All processes must go on from the same epoch."""
    here = (state.phase, state.epoch)
    if here != state.team.from_first(lambda: here):
        raise InputError(
            f"{checkpoint}: process {state.team.rank} reads another state than the first; keep "
            "the run folder where all machines see it"
        )


def _saver(path: Path, fingerprint: dict[str, Any]) -> Callable[[TrainingState], None]:
    # Saved between epochs only, the first included: an interrupt may come halfway through a
    # step, and what it leaves behind is no state to go on from.
    last = -math.inf

    def save_now_and_then(state: TrainingState) -> None:
        nonlocal last
        if time.monotonic() - last >= SECONDS_BETWEEN_SAVES:
            save_state(path, state, fingerprint)
            last = time.monotonic()

    return save_now_and_then


def _fingerprint(card: ModelCard, examples: Examples) -> dict[str, Any]:
    digest = hashlib.blake2b(digest_size=16)
    source = examples.source
    if isinstance(source, LargeGraph):
        edges, sizes = source.columns, source.degree
    elif isinstance(source, GraphStore):
        edges, sizes = source.edge_index, source.nodes
    else:
        edges, sizes = source.edges.edge_index, NONE
    x = source.x
    if not isinstance(x, Tensor):
        features: tuple[Tensor, ...] = (x.row_pointer, x.columns, x.values)
    else:
        features = (x.indices(), x.values()) if x.layout == torch.sparse_coo else (x,)
    for tensor in (*features, sizes, edges, source.y, examples.train, examples.val):
        # Shapes too: the same bytes could be cut into other pieces.
        digest.update(repr(tuple(tensor.shape)).encode())
        digest.update(tensor.cpu().contiguous().numpy())
    # Names do not change what is learned, and checkpoints of earlier versions have none.
    described = {k: v for k, v in card.description().items() if k != "feature_names"}
    return described | {"data": digest.hexdigest()}
