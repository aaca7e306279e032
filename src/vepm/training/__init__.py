"""Training: settings, one loop over one or many runs, checkpoints and prediction."""

from vepm.scale.batches import GraphBatch, GraphStore, single_graph
from vepm.scale.executor import Run, Source
from vepm.training.card import ModelCard
from vepm.training.config import PRESETS, Config, ModelConfig, TrainingConfig, preset
from vepm.training.fitted import Fitted
from vepm.training.fitting import fit, fit_many
from vepm.training.loop import Progress, TrainingState, train
from vepm.training.prediction import Explanation, explain, probabilities, scores
from vepm.training.saving import load_model, save_model
from vepm.training.sources import group_runs, in_batches, most_runs_at_once, pick_device, set_aside

__all__ = [
    "PRESETS",
    "Config",
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
    "explain",
    "fit",
    "fit_many",
    "group_runs",
    "in_batches",
    "load_model",
    "most_runs_at_once",
    "pick_device",
    "preset",
    "probabilities",
    "save_model",
    "scores",
    "set_aside",
    "single_graph",
    "train",
]
