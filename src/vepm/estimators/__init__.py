"""VEPM as scikit-learn users expect it: fit, predict, predict_proba, transform."""

from vepm.estimators.base import EdgePartition, Estimator
from vepm.estimators.classifiers import (
    CLASSIFIERS,
    GraphClassifier,
    NodeClassifier,
    load_classifier,
)
from vepm.estimators.communities import CommunityDetector, Memberships
from vepm.estimators.inputs import unlabelled
from vepm.estimators.links import LinkPredictor
from vepm.estimators.pairs import Links

__all__ = [
    "CLASSIFIERS",
    "CommunityDetector",
    "EdgePartition",
    "Estimator",
    "GraphClassifier",
    "LinkPredictor",
    "Links",
    "Memberships",
    "NodeClassifier",
    "load_classifier",
    "unlabelled",
]
