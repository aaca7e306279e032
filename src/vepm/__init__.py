"""Variational edge partition models: supervised learning on graphs that finds communities."""

from vepm.estimators import CommunityDetector, GraphClassifier, NodeClassifier
from vepm.nn import VEPM

__version__ = "0.1.0"

__all__ = ["VEPM", "CommunityDetector", "GraphClassifier", "NodeClassifier", "__version__"]
