"""How a number is measured: splits, folds, seeds and selection rules."""

from vepm.evaluation.evaluation import Cell, Method, evaluate, summarise
from vepm.evaluation.parallel import evaluate_cells, evaluate_in_parallel
from vepm.evaluation.results import Curve, RunResult, choose_epoch
from vepm.evaluation.rules import DESCRIPTIONS, RULES, Rule, Summary
from vepm.evaluation.splits import (
    PROTOCOLS,
    Split,
    capsgnn_folds,
    gin_folds,
    keep_labels,
    labels_of,
    public_split,
    splits_for,
    wikics_splits,
)
from vepm.evaluation.vepm import VEPMMethod

__all__ = [
    "DESCRIPTIONS",
    "PROTOCOLS",
    "RULES",
    "Cell",
    "Curve",
    "Method",
    "Rule",
    "RunResult",
    "Split",
    "Summary",
    "VEPMMethod",
    "capsgnn_folds",
    "choose_epoch",
    "evaluate",
    "evaluate_cells",
    "evaluate_in_parallel",
    "gin_folds",
    "keep_labels",
    "labels_of",
    "public_split",
    "splits_for",
    "summarise",
    "wikics_splits",
]
