"""Training: one loop; schemes say which parameters step when."""

from vepm.training.attribution import Attribution, attribute
from vepm.training.batches import GraphBatch, GraphStore, single_graph
from vepm.training.card import ModelCard
from vepm.training.checkpoint import load_model, save_model
from vepm.training.config import Config, ModelConfig, TrainingConfig
from vepm.training.fitting import Fitted, fit, in_batches, pick_device, set_aside, source_of
from vepm.training.loop import train
from vepm.training.prediction import Explanation, Source, explain, probabilities, scores
from vepm.training.presets import PRESETS, preset
from vepm.training.state import Examples, Progress, TrainingState
from vepm.training.together import Run, bundles, fit_together, most_together

__all__ = [
    "PRESETS",
    "Attribution",
    "Config",
    "Examples",
    "Explanation",
    "Fitted",
    "GraphBatch",
    "GraphStore",
    "ModelCard",
    "ModelConfig",
    "Progress",
    "Run",
    "Source",
    "TrainingConfig",
    "TrainingState",
    "attribute",
    "bundles",
    "explain",
    "fit",
    "fit_together",
    "in_batches",
    "load_model",
    "most_together",
    "pick_device",
    "preset",
    "probabilities",
    "save_model",
    "scores",
    "set_aside",
    "single_graph",
    "source_of",
    "train",
]
