"""What is labelled: the nodes of one graph, or whole graphs; to add a task, add it to ``TASKS``."""

from dataclasses import dataclass
from typing import Any, Literal

from sklearn.metrics import f1_score, precision_recall_fscore_support, roc_auc_score
from torch import Tensor

from vepm.errors import InputError

TaskName = Literal["node", "graph"]
Masks = tuple[Tensor, Tensor, Tensor]
MASK_NAMES = ("train_mask", "val_mask", "test_mask")
UNLABELLED = -1


@dataclass(frozen=True)
class Task:
    """What a model learns to label, and what follows from that."""

    name: TaskName
    single_graph: bool  # one graph whose nodes are labelled, or any number with a label each
    conv: str  # the graph convolution to use unless another is asked for
    protocols: tuple[str, ...]  # the evaluation protocols that fit, the default first
    search_protocol: str  # the one whose validation part a search chooses settings on

    def measures(self, probabilities: Tensor, y: Tensor) -> dict[str, Any]:
        """How good probabilities [n, classes] of true classes ``y`` [n] are, beside accuracy.

        ``macro_f1``, the mean F1 over the classes that occur; ``roc_auc``, of several classes the
        mean of each against the rest, None if only one occurs; ``per_class`` with ``precision``,
        ``recall``, ``f1`` and ``support``.
        """
        # A model that has diverged knows nothing, which is a result too.
        score, true = probabilities.double().nan_to_num().cpu().numpy(), y.cpu().numpy()
        guess, classes = score.argmax(1), range(score.shape[1])
        each = precision_recall_fscore_support(true, guess, labels=classes, zero_division=0)
        present = set(true.tolist())
        # Of two classes either curve will do: one is the other mirrored.
        shown = present - {0} if len(classes) == 2 else present
        areas = [roc_auc_score(true == c, score[:, c]) for c in shown] if len(present) > 1 else []
        return {
            "macro_f1": float(f1_score(true, guess, average="macro", zero_division=0)),
            "roc_auc": sum(map(float, areas)) / len(areas) if areas else None,
            "per_class": [
                {"precision": float(p), "recall": float(r), "f1": float(f), "support": int(n)}
                for p, r, f, n in zip(*each, strict=True)
            ],
        }


TASKS: dict[str, Task] = {
    "node": Task("node", True, "gcn", ("public", "few-labels"), "public"),
    "graph": Task("graph", False, "gin", ("gin", "capsgnn", "public", "few-labels"), "capsgnn"),
}


def task_named(name: Any) -> Task:
    """The task of this name; an InputError if there is none."""
    if not isinstance(name, str) or name not in TASKS:
        raise InputError(f"task is {name!r}; give one of {', '.join(map(repr, TASKS))}")
    return TASKS[name]
