"""Training: one loop; schemes say which parameters step when."""

from vepm.training.batches import GraphBatch, GraphStore, single_graph
from vepm.training.config import Config, ModelConfig, TrainingConfig
from vepm.training.loop import Examples, TrainingState, train
from vepm.training.prediction import probabilities, scores

__all__ = [
    "Config",
    "Examples",
    "GraphBatch",
    "GraphStore",
    "ModelConfig",
    "TrainingConfig",
    "TrainingState",
    "probabilities",
    "scores",
    "single_graph",
    "train",
]
