"""What the estimators share: settings as parameters, reading data, fitting, saving."""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from vepm import training
from vepm.data import Dataset, as_dataset, relabelled
from vepm.errors import InputError, TrainingWarning
from vepm.estimators.inputs import Array, ClassWeight, class_weights, node_indices, plain
from vepm.files import write_text
from vepm.nn import VEPM
from vepm.scale.ddp import ProcessGroup
from vepm.schema import LARGEST_SEED, unknown
from vepm.tasks import TaskName
from vepm.training import Config, Explanation, Fitted, ModelCard, Progress
from vepm.training.card import Used
from vepm.training.config import FIELDS

RandomState = int | np.random.RandomState | None
Rows = Tensor | slice  # nodes of a bound graph by index, or all nodes or graphs of a dataset


class EdgePartition(NamedTuple):
    """How each edge is split: both directions of edges [2, E], and shares [E, K] summing to one."""

    edge_index: Array
    share: Array


class Estimator(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Settings, fitting, saving and looking inside."""

    _task: TaskName = "node"
    _needs_classes = False
    _community_per_group = False  # whether there are as many groups as communities by default
    graph: Any = None
    class_weight: ClassWeight = None
    preset: str
    config: Config | None
    device: str
    random_state: RandomState
    progress: Progress | None

    def _assign(self, arguments: dict[str, Any]) -> None:
        """Keep the arguments of a constructor by name; ``settings`` are those it does not list."""
        self._settings = arguments.pop("settings")
        for name in self._settings:
            if name not in FIELDS:
                raise unknown(name, FIELDS, type(self).__name__)
        self.__dict__ |= {name: value for name, value in arguments.items() if name != "self"}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters by name: those of the signature, and every setting that was given."""
        return dict(super().get_params(deep)) | self._settings

    def set_params(self, **params: Any) -> Self:
        """Change parameters, any setting of :class:`vepm.training.Config` among them."""
        named = self._get_param_names()
        changes = {name: params.pop(name) for name in FIELDS if name in params.keys() - named}
        super().set_params(**params)
        self._settings |= changes
        return self

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn may assume: graphs or node indices come in, not a matrix."""
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.transformer_tags.preserves_dtype = []
        return tags

    def settings(self, dataset: str | None = None) -> Config:
        """The settings in force: ``config`` or the preset, with those given by name on top.

        For a dataset of this name, preset ``"tuned"`` may know better settings.
        """
        config = self.config or training.preset(self.preset, self._task, dataset)
        given = self.get_params(deep=False)
        changes = {n: plain(v) for n, v in given.items() if n in FIELDS and v is not None}
        if "num_communities" in changes:
            count = config.replace(num_communities=changes["num_communities"]).model.num_communities
            groups = config.model.num_metacommunities
            default = count if self._community_per_group else min(groups, count)
            changes = {"num_metacommunities": default} | changes
        return config.replace(**changes)

    def memberships(self, X: Any) -> Array | list[Array]:
        """Mean affiliation of every node to every community [N, C]; a list of them for graphs."""
        dataset, rows, found = self._look(X)
        z = found.memberships[rows].cpu()
        if dataset.single_graph:
            return z.numpy()
        return [part.numpy() for part in z.split([len(g.x) for g in dataset.graphs])]

    def edge_partition(self, X: Any) -> EdgePartition:
        """How each edge is split, with nodes numbered through all graphs.

        With nodes of a bound graph, the edges are those between them.
        """
        _, rows, found = self._look(X)
        edge_index, share = found.edge_index.cpu(), found.edge_weight.cpu()
        if isinstance(rows, Tensor):
            inside = torch.isin(edge_index, rows).all(0)
            edge_index, share = edge_index[:, inside], share[inside]
        return EdgePartition(edge_index.numpy(), share.numpy())

    def transform(self, X: Any) -> Array:
        """Composed representation of every node, or of every graph."""
        _, rows, found = self._look(X)
        return found.embeddings[rows].cpu().numpy()

    def explain(self, X: Any) -> Explanation:
        """Memberships, the split of the edges and embeddings at once, as tensors."""
        return self._look(X)[2]

    def save(self, folder: str | Path) -> None:
        """Write the trained model and its settings into a folder."""
        path = Path(folder)
        training.save_model(path / "model.safetensors", self._model(), self.card_)
        write_text(path / "config.toml", self.card_.config.to_toml())

    @classmethod
    def load(cls, folder: str | Path, device: str = "auto") -> Self:
        """Read a model that :meth:`save`, or ``vepm train``, wrote."""
        return cls._loaded(*read_model(folder, device), folder, device)

    @classmethod
    def _loaded(cls, model: VEPM, card: ModelCard, folder: str | Path, device: str) -> Self:
        if card.task != cls._task:
            raise InputError(f"{folder}: this model labels {card.task}s; {cls.__name__} cannot")
        if cls._needs_classes and not card.class_names:
            raise InputError(
                f"{folder}: this model was trained without labels; load it as a CommunityDetector"
            )
        estimator = cls(config=card.config, device=device, random_state=card.seed)
        return estimator._adopt(model, card)

    def fit_split(
        self,
        dataset: Dataset,
        train_on: Tensor,
        validate_on: Tensor | None = None,
        *,
        checkpoint: Path | None = None,
        group: ProcessGroup | None = None,
        check_memory: bool = True,
    ) -> Fitted:
        """Fit to nodes or graphs of your choice; arguments are those of :func:`vepm.training.fit`.

        Without ``validate_on``, a fifth of ``train_on`` chooses the epoch, if there are enough.
        """
        seed = self._seed()
        if validate_on is None:
            train_on, validate_on = training.set_aside(train_on, dataset.labels, seed)
        config, start = self._plan(dataset, seed, check_memory)
        weights = None
        if self.class_weight is not None and train_on.numel():
            names, labels = dataset.class_names, dataset.labels[train_on].numpy()
            weights = class_weights(self.class_weight, names, labels)
        (fitted,) = training.fit_many(
            dataset,
            config,
            [training.Run(train_on, validate_on, seed=start, class_weights=weights)],
            self.device,
            progress=self.progress,
            checkpoint=checkpoint,
            group=group,
            check_memory=check_memory,
        )
        for sign in fitted.warnings:
            warnings.warn(sign, TrainingWarning, stacklevel=3)
        self.history_, self.best_epoch_ = fitted.history, fitted.best_epoch
        self.partitions_ = fitted.tried
        used = Used.of(dataset, train_on, validate_on) if dataset.single_graph else None
        fitted = replace(fitted, card=replace(fitted.card, seed=seed, used=used))
        self._adopt(fitted.model, fitted.card)
        return fitted

    def _plan(self, dataset: Dataset, seed: int, check_memory: bool) -> tuple[Config, int]:
        """The settings to train with, and the seed of the weights and all draws."""
        return self.settings(dataset.name), seed

    def _seed(self) -> int:
        state = self.random_state
        if not isinstance(state, int | np.integer):
            return int(check_random_state(state).randint(2**32, dtype=np.uint32))
        if not 0 <= state <= LARGEST_SEED:
            raise InputError(f"random_state must be between 0 and {LARGEST_SEED}, got {state}")
        return int(state)

    def _adopt(self, model: VEPM, card: ModelCard) -> Self:
        self.model_, self.card_, self.n_features_in_ = model, card, card.in_channels
        self.__dict__.pop("feature_names_in_", None)
        if card.feature_names is not None:
            self.feature_names_in_ = np.array(card.feature_names, dtype=object)
        if self._needs_classes:
            names = card.class_names
            whole = all(name.isascii() and name.isdigit() for name in names)
            self.classes_ = np.array([int(name) for name in names] if whole else names)
        return self

    def _model(self) -> VEPM:
        check_is_fitted(self, "model_", msg="this %(name)s is not fitted yet: call fit first")
        return self.model_

    def _read(self, X: Any, y: Any = None, **known: Any) -> tuple[Dataset, Rows]:
        """The data behind X, with the labels y if given; with a bound graph, X are its nodes."""
        if self.graph is None:
            return as_dataset(X, task=self._task, labels=y, **known), slice(None)
        dataset = as_dataset(self.graph, task=self._task, **known)
        rows = node_indices(X, dataset.labels.numel())
        return dataset if y is None else relabelled(dataset, y, rows), rows

    def _items(self, X: Any) -> tuple[Dataset, Rows]:
        """New data, checked against what the model was trained on."""
        self._model()
        names, directed = self.card_.feature_names or (), self.card_.directed
        dataset, rows = self._read(X, feature_names=names, directed=directed)
        return self.card_.prepare(dataset), rows

    def _source(self, dataset: Dataset) -> training.Source:
        return training.in_batches(dataset, self.model_.activation.device, self.card_.config)

    def _look(self, X: Any) -> tuple[Dataset, Rows, Explanation]:
        dataset, rows = self._items(X)
        return dataset, rows, training.explain(self.model_, self._source(dataset))


def read_model(folder: str | Path, device: str) -> tuple[VEPM, ModelCard]:
    """The model of a folder, and its card."""
    return training.load_model(Path(folder) / "model.safetensors", training.pick_device(device))
