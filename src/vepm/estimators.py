"""VEPM as scikit-learn users expect it: fit, predict, predict_proba, transform."""

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, ClusterMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_random_state

from vepm.data import Dataset, as_dataset, require_labels
from vepm.errors import InputError
from vepm.files import write_text
from vepm.nn import VEPM, interactions, members
from vepm.tasks import TASKS, TaskName
from vepm.training import (
    Config,
    Explanation,
    Fitted,
    ModelCard,
    Progress,
    Source,
    explain,
    fit,
    in_batches,
    load_model,
    pick_device,
    preset,
    probabilities,
    save_model,
    set_aside,
)

Array = NDArray[Any]


class EdgePartition(NamedTuple):
    """How each edge is split among the metacommunities."""

    edge_index: Array
    """Edges [2, E], both directions."""
    share: Array
    """Share of each edge in each metacommunity [E, K]; rows sum to one."""


class Memberships(NamedTuple):
    """Hard, soft and overlapping communities of the same nodes."""

    hard: Array
    """The metacommunity each node belongs to most [N]."""
    soft: Array
    """Share of each node's expected links in each metacommunity, rows summing to one [N, K]."""
    overlapping: Array
    """Whether a node is a member of a metacommunity [N, K]; none, one or several."""


class _Estimator(BaseEstimator):  # type: ignore[misc]
    """What the three estimators share: settings, fitting, saving, looking inside."""

    _task: TaskName = "node"

    def __init__(
        self,
        *,
        preset: str = "default",
        num_communities: int | None = None,
        num_metacommunities: int | None = None,
        hidden_channels: int | None = None,
        config: Config | None = None,
        device: str = "auto",
        random_state: int | np.random.RandomState | None = 0,
        progress: Progress | None = None,
    ) -> None:
        self.preset = preset
        self.num_communities = num_communities
        self.num_metacommunities = num_metacommunities
        self.hidden_channels = hidden_channels
        self.config = config
        self.device = device
        self.random_state = random_state
        self.progress = progress

    def settings(self) -> Config:
        """The settings in force: ``config`` or the preset, with the named ones on top."""
        config = preset(self.preset, self._task) if self.config is None else self.config
        named = ("num_communities", "num_metacommunities", "hidden_channels")
        changes = {name: getattr(self, name) for name in named if getattr(self, name) is not None}
        return config.replace(**changes)

    def memberships(self, data: Any) -> Array | list[Array]:
        """Mean affiliation of every node to every community [N, C]; a list of them for graphs."""
        dataset = self._dataset(data)
        rows = self._explain(dataset).memberships.cpu()
        if TASKS[self._task].single_graph:
            return rows.numpy()
        sizes = [int(graph.num_nodes or 0) for graph in dataset.graphs]
        return [part.numpy() for part in rows.split(sizes)]

    def edge_partition(self, data: Any) -> EdgePartition:
        """How each edge is split; with several graphs, nodes are numbered through them all."""
        found = self._explain(data)
        return EdgePartition(found.edge_index.cpu().numpy(), found.edge_weight.cpu().numpy())

    def transform(self, data: Any) -> Array:
        """Composed representation of every node, or of every graph."""
        return self._explain(data).embeddings.cpu().numpy()

    def save(self, folder: str | Path) -> None:
        """Write the trained model and its settings into a folder."""
        path = Path(folder)
        save_model(path / "model.safetensors", self._model(), self.card_)
        write_text(path / "config.toml", self.card_.config.to_toml())

    @classmethod
    def load(cls, folder: str | Path, device: str = "auto") -> Self:
        """Read a model that :meth:`save`, or ``vepm train``, wrote."""
        model, card = load_model(Path(folder) / "model.safetensors", pick_device(device))
        if card.task != cls._task:
            raise InputError(f"{folder}: this model labels {card.task}s; {cls.__name__} cannot")
        if issubclass(cls, _Classifier) and not card.class_names:
            raise InputError(
                f"{folder}: this model was trained without labels; load it as a CommunityDetector"
            )
        estimator = cls(config=card.config, device=device, random_state=card.seed)
        return estimator._adopt(model, card)

    def _seed(self) -> int:
        """The seed of a fit, as scikit-learn reads ``random_state``."""
        if isinstance(self.random_state, int | np.integer):
            return int(self.random_state)
        drawn = check_random_state(self.random_state).randint(2**32, dtype=np.uint32)
        return int(drawn)

    def _fit(self, dataset: Dataset, train: torch.Tensor, val: torch.Tensor, seed: int) -> Fitted:
        fitted = fit(
            dataset,
            self.settings(),
            train_on=train,
            validate_on=val,
            seed=seed,
            device=self.device,
            progress=self.progress,
        )
        self.history_ = fitted.history
        self.best_epoch_ = fitted.best_epoch
        self._adopt(fitted.model, fitted.card)
        return fitted

    def _adopt(self, model: VEPM, card: ModelCard) -> Self:
        self.model_, self.card_ = model, card
        self.n_features_in_ = card.in_channels
        if card.feature_names is not None:
            self.feature_names_in_ = np.array(card.feature_names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        names = card.class_names
        whole = all(name.isascii() and name.isdigit() for name in names)
        self.classes_ = np.array([int(name) for name in names] if whole else names)
        return self

    def _model(self) -> VEPM:
        if not hasattr(self, "model_"):
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet: call fit first")
        model: VEPM = self.model_
        return model

    def _dataset(self, data: Any) -> Dataset:
        """New data, checked against what the model was trained on."""
        self._model()
        names = self.card_.class_names if isinstance(self, _Classifier) else ()
        dataset = as_dataset(
            data,
            task=self._task,
            class_names=names or None,
            feature_names=self.card_.feature_names,
        )
        return _with_classes(self.card_.prepare(dataset), names)

    def _source(self, data: Any) -> Source:
        nodes = self.card_.config.training.batch_size
        return in_batches(self._dataset(data), self._model().activation.device, nodes)

    def _explain(self, data: Any) -> Explanation:
        return explain(self._model(), self._source(data))


def _with_classes(dataset: Dataset, names: tuple[str, ...]) -> Dataset:
    """The dataset with the class indices of a model that has these classes."""
    if not names or dataset.class_names == names:
        return dataset
    unknown = set(dataset.class_names) - set(names)
    if unknown:
        raise InputError(
            f"{dataset.name}: label '{min(unknown)}' is none of the model's classes "
            f"({', '.join(names[:8])})"
        )
    # The extra last entry is where the -1 of unlabelled positions lands.
    index = torch.tensor([names.index(name) for name in dataset.class_names] + [-1])
    graphs = [graph.clone() for graph in dataset.graphs]
    for graph in graphs:
        graph.y = index[graph.y]
    return replace(dataset, graphs=graphs, class_names=names, num_classes=len(names))


class _Classifier(ClassifierMixin, _Estimator):  # type: ignore[misc]
    def predict_proba(self, data: Any, num_samples: int | None = None) -> Array:
        """Class probabilities, averaged over draws of the communities.

        Args:
            data: What to predict, in any form that :meth:`fit` takes.
            num_samples: Draws to average; 0 takes the posterior mean. By default as trained.
        """
        default = self._card().config.training.num_samples
        draws = default if num_samples is None else num_samples
        if draws < 0:
            raise InputError(f"num_samples must be at least 0, got {draws}")
        found = probabilities(self._model(), self._source(data), draws, seed=self._card().seed)
        return found.cpu().numpy()

    def predict(self, data: Any) -> Array:
        """The most probable label of every node or graph."""
        self._model()
        chosen: Array = self.classes_[self.predict_proba(data).argmax(1)]
        return chosen

    def _card(self) -> ModelCard:
        self._model()
        card: ModelCard = self.card_
        return card


def _require_any(train: torch.Tensor, dataset: Dataset) -> None:
    if train.numel() == 0:
        raise InputError(
            f"{dataset.name}: no labelled {dataset.task} is there to train on; "
            "widen the train mask or leave it out"
        )


class NodeClassifier(_Classifier):
    """Labels the nodes of a graph from a few labelled ones, and shows the communities behind.

    Args:
        preset: Named settings: ``"default"``, ``"tuned"``, ``"paper"`` or ``"released"``.
        num_communities: Number of communities.
        num_metacommunities: Number of parts each edge is split into.
        hidden_channels: Total width of the community-specific GNNs.
        config: Complete settings instead of a preset.
        device: ``"auto"``, ``"cpu"`` or ``"cuda"``.
        random_state: Seed; None draws one for every fit, a NumPy ``RandomState`` gives the next.
        progress: Called after every epoch.

    ``fit`` takes a PyG ``Data``, a NetworkX graph, ``(X, A, y)`` with a SciPy sparse A, or a
    :class:`vepm.data.Dataset`. Labels of -1 are unknown. Without a ``val_mask`` a fifth of the
    training labels is set aside to choose the epoch. Feature columns that have names (NetworkX
    attributes, files, a data frame as X) are matched by name when predicting.

    Example:
        >>> from vepm import NodeClassifier
        >>> from vepm.data import load
        >>> data = load("KarateClub")
        >>> clf = NodeClassifier(random_state=0).fit(data)
        >>> clf.predict_proba(data).shape
        (34, 4)
    """

    _task: TaskName = "node"

    def fit(self, data: Any, y: None = None) -> Self:
        """Learn from the labelled nodes; ``y`` is there for scikit-learn and not used."""
        dataset = as_dataset(data, task="node")
        require_labels(dataset)
        graph = dataset.graphs[0]
        train = graph.train_mask.nonzero().flatten()
        val = graph.val_mask.nonzero().flatten()
        _require_any(train, dataset)
        seed = self._seed()
        if val.numel() == 0:
            train, val = set_aside(train, graph.y, seed)
        self._fit(dataset, train, val, seed)
        return self

    def score(self, data: Any, y: None = None, sample_weight: None = None) -> float:
        """Accuracy on the test mask, or on every labelled node where there is none."""
        dataset = self._dataset(data)
        graph = dataset.graphs[0]
        rows = graph.test_mask if graph.test_mask.any() else graph.y >= 0
        if not rows.any():
            raise InputError("data has no labels to score against")
        predicted = self.predict_proba(dataset).argmax(1)
        return float((predicted == graph.y.numpy())[rows.numpy()].mean())


class GraphClassifier(_Classifier):
    """Labels whole graphs, and shows the communities inside them.

    Args:
        preset: Named settings: ``"default"``, ``"tuned"``, ``"paper"`` or ``"released"``.
        num_communities: Number of communities.
        num_metacommunities: Number of parts each edge is split into.
        hidden_channels: Total width of the community-specific GNNs.
        config: Complete settings instead of a preset.
        device: ``"auto"``, ``"cpu"`` or ``"cuda"``.
        random_state: Seed; None draws one for every fit, a NumPy ``RandomState`` gives the next.
        progress: Called after every epoch.

    ``fit`` takes a list of PyG ``Data``, a PyG dataset, a list of NetworkX graphs or a
    :class:`vepm.data.Dataset`. A fifth of the labelled graphs is set aside to choose the epoch.

    Example:
        >>> from vepm import GraphClassifier
        >>> from vepm.data import load
        >>> digits = load("digits-graphs")
        >>> clf = GraphClassifier(random_state=0).fit(digits.graphs[:400])  # doctest: +SKIP
        >>> clf.score(digits.graphs[400:])  # doctest: +SKIP
    """

    _task: TaskName = "graph"

    def fit(self, data: Any, y: None = None) -> Self:
        """Learn from the labelled graphs; ``y`` is there for scikit-learn and not used."""
        dataset = as_dataset(data, task="graph")
        require_labels(dataset)
        labels = torch.cat([graph.y for graph in dataset.graphs])
        if dataset.splits:
            train, val, _ = (mask.nonzero().flatten() for mask in dataset.splits[0])
        else:
            train, val = (labels >= 0).nonzero().flatten(), torch.empty(0, dtype=torch.long)
        _require_any(train, dataset)
        seed = self._seed()
        if val.numel() == 0:
            train, val = set_aside(train, labels, seed)
        self._fit(dataset, train, val, seed)
        return self

    def score(self, data: Any, y: None = None, sample_weight: None = None) -> float:
        """Accuracy on the labelled graphs given."""
        dataset = self._dataset(data)
        labels = torch.cat([graph.y for graph in dataset.graphs]).numpy()
        if not (labels >= 0).any():
            raise InputError("data has no labels to score against")
        predicted = self.predict_proba(dataset).argmax(1)
        return float((predicted == labels)[labels >= 0].mean())


class CommunityDetector(ClusterMixin, _Estimator):  # type: ignore[misc]
    """Finds overlapping communities from edges and features alone.

    Args:
        preset: Named settings: ``"default"``, ``"tuned"``, ``"paper"`` or ``"released"``.
        num_communities: Number of communities.
        num_metacommunities: Number of groups of communities, which ``communities`` reports.
        hidden_channels: Not used without labels.
        config: Complete settings instead of a preset.
        device: ``"auto"``, ``"cpu"`` or ``"cuda"``.
        random_state: Seed; None draws one for every fit, a NumPy ``RandomState`` gives the next.
        progress: Called after every epoch.

    Example:
        >>> import networkx as nx
        >>> from vepm import CommunityDetector
        >>> club = nx.karate_club_graph()
        >>> found = CommunityDetector(num_communities=2, num_metacommunities=2).fit(club)
        >>> found.communities(club).overlapping.shape
        (34, 2)
    """

    _task: TaskName = "node"

    def fit(self, data: Any, y: None = None) -> Self:
        """Learn communities from the edges; labels, if there are any, are not looked at."""
        # A model that has seen no label has no classes, and must not pass for one that has.
        dataset = replace(as_dataset(data, task="node"), num_classes=0, class_names=())
        nothing = torch.empty(0, dtype=torch.long)
        self._fit(dataset, nothing, nothing, self._seed())
        self.labels_ = self.communities(dataset).hard
        return self

    def predict(self, data: Any) -> Array:
        """The metacommunity each node belongs to most [N]."""
        return self.communities(data).hard

    def communities(self, data: Any) -> Memberships:
        """Hard, soft and overlapping memberships in the metacommunities.

        Hard and soft go by a node's expected links through each metacommunity; a node is a
        member of every metacommunity in which two nodes like it would be joined at least as
        often as two nodes picked at random (:func:`vepm.nn.members`).
        """
        model = self._model()
        found = explain(model, self._source(data))
        heads = model.partitioner.num_metacommunities
        with torch.no_grad():
            activation = model.activation
            links = interactions(found.memberships, activation, heads)
            member = members(found.memberships, activation, heads, found.edge_index)
        return Memberships(
            hard=links.argmax(1).cpu().numpy(),
            soft=(links / links.sum(1, keepdim=True)).cpu().numpy(),
            overlapping=member.cpu().numpy(),
        )
