"""Labels of nodes and of graphs."""

from operator import index
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import ClassifierMixin
from sklearn.utils import column_or_1d
from torch import Tensor

from vepm.data import Dataset, require_labels
from vepm.errors import InputError
from vepm.estimators.base import Estimator, RandomState, Rows, read_model
from vepm.estimators.inputs import Array, ClassWeight
from vepm.schema import check_value
from vepm.tasks import TaskName
from vepm.training import Config, Progress, probabilities
from vepm.training.config import FIELDS


class _Classifier(ClassifierMixin, Estimator):  # type: ignore[misc]
    _needs_classes = True

    def __init__(
        self,
        *,
        preset: str = "default",
        num_communities: int | str | None = None,
        num_metacommunities: int | None = None,
        config: Config | None = None,
        class_weight: ClassWeight = None,
        device: str = "auto",
        random_state: RandomState = 0,
        progress: Progress | None = None,
        **settings: Any,
    ) -> None:
        self._assign(locals())

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn from labels.

        Args:
            X: The data, in any form named above.
            y: A label for each node or graph of X, -1 where unknown; by default those that come
                with the data. Masks of the data say which of them train.
        """
        y = None if y is None else column_or_1d(y, warn=True)
        dataset, _ = self._labelled(X, y)
        require_labels(dataset)
        masks = dataset.masks
        train = dataset.labels >= 0 if masks is None else masks[0]
        if not train.any():
            found = f"{dataset.name}: there is no labelled {dataset.task} to train on"
            raise InputError(f"{found}; widen the train mask or leave it out")
        val = None if masks is None or not masks[1].any() else torch.where(masks[1])[0]
        self.fit_split(dataset, torch.where(train)[0], val)
        if y is not None and any(isinstance(label, str) for label in y):
            # Text stays text, even where it could be read as integers.
            self.classes_ = np.array(self.card_.class_names)
        return self

    def predict_proba(self, X: Any, num_samples: int | None = None) -> Array:
        """Class probabilities, averaged over samples of the communities.

        Args:
            X: What to predict, in any form that :meth:`fit` takes.
            num_samples: Samples to average; 0 takes the posterior mean. By default as trained.
        """
        return self._probabilities(*self._items(X), num_samples)

    def predict(self, X: Any) -> Array:
        """The most probable label of every node or graph."""
        likeliest = self.predict_proba(X).argmax(1)
        return self.classes_[likeliest]

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Accuracy by the labels y, or those that come with the data, optionally weighted.

        Nodes that trained or validated the model do not count; of the others, those in the test
        mask do, or all labelled ones if there is none. Nodes of a bound graph count as given.
        """
        self._model()
        names = self.card_.class_names
        known = {"feature_names": self.card_.feature_names or ()}
        known |= {} if y is not None else {"class_names": names}
        dataset, rows = self._labelled(X, y, **known)
        prepared = self.card_.prepare(dataset)
        strange = set(dataset.class_names) - set(names)
        if y is None and strange:
            found = f"{dataset.name}: label '{min(strange)}' is none of the model's classes"
            raise InputError(f"{found} ({', '.join(names[:8])})")
        counted = rows.numpy() if isinstance(rows, Tensor) else self._counted(dataset)
        if sample_weight is not None and self.graph is None:
            sample_weight = np.asarray(sample_weight)[counted]
        # Unlabelled ones, -1, are the last entry, of weight 0.
        truth = np.array([*dataset.class_names, ""], dtype=object)[dataset.labels[counted].numpy()]
        weight = (truth != "") * (1.0 if sample_weight is None else np.asarray(sample_weight))
        predicted = self._probabilities(prepared, counted).argmax(1)
        right = np.array(names, dtype=object)[predicted] == truth
        return float(np.average(right, weights=weight))

    def _labelled(self, X: Any, y: Any, **known: Any) -> tuple[Dataset, Rows]:
        if self.graph is not None and y is None:
            raise InputError("the labels of the nodes in X are needed as y")
        return self._read(X, y, **known)

    def _counted(self, dataset: Dataset) -> Array:
        """The labelled nodes or graphs that a score is about."""
        masks, labelled = dataset.masks, dataset.labels >= 0
        if not labelled.any():
            raise InputError("data has no labels to score against")
        counted = (masks[2] if masks is not None and masks[2].any() else labelled).clone()
        if self.card_.used:
            counted[self.card_.used.within(dataset)] = False
        if not counted.any():
            remedy = "hold some out with a test mask, or use cross_val_score"
            raise InputError(f"{dataset.name}: every labelled node was used to fit; {remedy}")
        return torch.where(counted)[0].numpy()

    def _probabilities(
        self, dataset: Dataset, rows: Rows | Array, num_samples: int | None = None
    ) -> Array:
        count = self.card_.config.training.num_samples if num_samples is None else num_samples
        check_value(FIELDS["num_samples"], index(count), "predict_proba")
        found = probabilities(self.model_, self._source(dataset), count, self.card_.seed)
        return found[rows].cpu().numpy()


class NodeClassifier(_Classifier):
    """Labels the nodes of a graph from a few labelled ones, and shows the communities behind.

    Args:
        graph: The graph whose nodes are given as X from then on; see below.
        preset: Named settings: ``"default"``, ``"tuned"``, ``"paper"`` or ``"released"``.
        num_communities: Number of communities; ``"auto"`` starts with 32 and empties those that
            links can do without.
        num_metacommunities: Number of parts each edge is split into.
        config: Complete settings instead of a preset.
        class_weight: Weight of each class in the loss and where the epoch is chosen: a dict by
            label, ``"balanced"`` to give every class the same weight in all, or None. Only their
            ratios count.
        device: ``"auto"``, ``"cpu"`` or ``"cuda"``.
        random_state: Seed; None draws one for every fit, a NumPy ``RandomState`` gives the next.
        progress: Called after every epoch.
        settings: Any other setting of :class:`vepm.training.Config` by name, such as ``dropout``;
            ``set_params`` and ``GridSearchCV`` take them too.

    ``fit`` takes a PyG ``Data``, a NetworkX graph, ``(X, A)`` or ``(X, A, y)`` with a SciPy
    sparse A, or a :class:`vepm.data.Dataset`. Labels of -1 are unknown. Without a ``val_mask`` a
    fifth of the training labels is set aside to choose the epoch. Feature columns that have names
    (NetworkX attributes, files, a data frame as X) are matched by name when predicting.

    With ``graph`` in any of these forms, X are indices of its nodes [n], and scikit-learn can
    split them: ``fit(nodes, y)`` sees the whole graph but only these labels, ``predict(nodes)``
    labels these nodes. Masks of the graph are not used.

    Example:
        >>> from vepm import NodeClassifier
        >>> from vepm.data import load
        >>> data = load("KarateClub")
        >>> clf = NodeClassifier(random_state=0).fit(data)
        >>> clf.predict_proba(data).shape
        (34, 4)
        >>> from sklearn.model_selection import cross_val_score
        >>> clf = NodeClassifier(graph=data, pretrain_epochs=20, epochs=20)
        >>> cross_val_score(clf, range(34), data.labels, cv=3).shape
        (3,)
    """

    _task: TaskName = "node"

    def __init__(
        self,
        *,
        graph: Any = None,
        preset: str = "default",
        num_communities: int | str | None = None,
        num_metacommunities: int | None = None,
        config: Config | None = None,
        class_weight: ClassWeight = None,
        device: str = "auto",
        random_state: RandomState = 0,
        progress: Progress | None = None,
        **settings: Any,
    ) -> None:
        self._assign(locals())


class GraphClassifier(_Classifier):
    """Labels whole graphs, and shows the communities inside them.

    The parameters are those of :class:`NodeClassifier` without ``graph``.

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


CLASSIFIERS: dict[str, type[NodeClassifier | GraphClassifier]] = {
    "node": NodeClassifier,
    "graph": GraphClassifier,
}
"""By what they label."""


def load_classifier(folder: str | Path, device: str = "auto") -> NodeClassifier | GraphClassifier:
    """Read a classifier of either kind that its ``save``, or ``vepm train``, wrote."""
    model, card = read_model(folder, device)
    return CLASSIFIERS[card.task]._loaded(model, card, folder, device)
