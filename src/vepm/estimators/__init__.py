"""VEPM as scikit-learn users expect it: fit, predict, predict_proba, transform."""

from vepm.estimators.base import EdgePartition, Estimator
from vepm.estimators.classifiers import (
    CLASSIFIERS,
    GraphClassifier,
    NodeClassifier,
    load_classifier,
)
from vepm.estimators.communities import CommunityDetector, Memberships
from vepm.estimators.evidence import Links
from vepm.estimators.inputs import unlabelled
from vepm.estimators.links import LinkPredictor

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
