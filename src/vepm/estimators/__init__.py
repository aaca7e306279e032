"""VEPM as scikit-learn users expect it: fit, predict, predict_proba, transform."""

from vepm.estimators.base import EdgePartition
from vepm.estimators.classifiers import GraphClassifier, NodeClassifier
from vepm.estimators.communities import CommunityDetector, Memberships
from vepm.estimators.splitting import NodeSplit

__all__ = [
    "CommunityDetector",
    "EdgePartition",
    "GraphClassifier",
    "Memberships",
    "NodeClassifier",
    "NodeSplit",
]
