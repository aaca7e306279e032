"""What VEPM's communities look like before and after they meet the labels."""

import warnings

import numpy as np
import torch
from sklearn.metrics import confusion_matrix
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from torch import Tensor

from vepm.nn import interactions
from vepm.paper.characteristics import characteristics
from vepm.paper.setting import Finding, Setting, finetune
from vepm.training import Explanation, Fitted, explain, fit
from vepm.training.metrics import agreement

QUICK_NODES = 400


def communities(setting: Setting) -> Finding:
    """Communities after pretraining and after finetuning, and how far they agree.

    The arrays hold everything the paper's figures are drawn from.
    """
    # The same seed leads pretraining to the same communities in both.
    pretrained = fit(setting.dataset, setting.config, seed=setting.seed, device=setting.device)
    fitted, result = finetune(setting)
    before, after = _explained(pretrained), _explained(fitted)
    arrays = {
        "pretrained_z": before.memberships,
        "pretrained_activation": _activation(pretrained),
        "z": after.memberships,
        "activation": _activation(fitted),
        "edge_index": after.edge_index,
        "edge_weight": after.edge_weight,
        "community_embeddings": after.community_embeddings,
        "y": _node_labels(setting),
        "batch": _graph_of_node(setting),
    }
    numbers = _compare(setting, arrays) if setting.dataset.task == "node" else {}
    return Finding(numbers, {k: v.cpu().contiguous() for k, v in arrays.items()}, result)


def confusion(setting: Setting) -> Finding:
    """What an SVM makes of each community's embeddings alone, by cross-validation."""
    found = communities(setting)
    y = found.arrays["y"].numpy()
    rows = np.flatnonzero(y >= 0)
    if setting.quick:
        rows = rows[:QUICK_NODES]
    folds = StratifiedKFold(2 if setting.quick else 10, shuffle=True, random_state=setting.seed)
    classes = list(range(setting.dataset.num_classes))
    matrices = []
    for k in range(setting.parts):
        embeddings = found.arrays["community_embeddings"][:, k].numpy()[rows]
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The least populated class")
            svm = make_pipeline(StandardScaler(), SVC())
            guess = cross_val_predict(svm, embeddings, y[rows], cv=folds)
        matrices.append(confusion_matrix(y[rows], guess, labels=classes))
    stacked = torch.from_numpy(np.stack(matrices))
    right = stacked.diagonal(dim1=1, dim2=2).sum() / stacked.sum()
    return Finding({"svm_accuracy": float(right)}, {"confusion": stacked}, found.result)


def _explained(fitted: Fitted) -> Explanation:
    return explain(fitted.model, fitted.source)


def _activation(fitted: Fitted) -> Tensor:
    return fitted.model.activation.detach()


def _node_labels(setting: Setting) -> Tensor:
    """Labels of the nodes; a node of a labelled graph has the graph's."""
    graphs = setting.dataset.graphs
    return torch.cat([graph.y.expand(graph.x.size(0)) for graph in graphs])


def _graph_of_node(setting: Setting) -> Tensor:
    sizes = torch.tensor([graph.x.size(0) for graph in setting.dataset.graphs])
    return torch.arange(len(sizes)).repeat_interleave(sizes)


def _compare(setting: Setting, arrays: dict[str, Tensor]) -> dict[str, float]:
    before = interactions(arrays["pretrained_z"], arrays["pretrained_activation"], setting.parts)
    after = interactions(arrays["z"], arrays["activation"], setting.parts)
    first, last = before.argmax(1).cpu(), after.argmax(1).cpu()
    y = arrays["y"]
    known = y >= 0
    found = characteristics(setting, z=arrays["z"].cpu(), activation=arrays["activation"].cpu())
    return found.numbers | {
        "nmi_pretrained": agreement(first[known], y[known]),
        "nmi_finetuned": agreement(last[known], y[known]),
        "task_dependence": 1 - agreement(first, last),
    }
