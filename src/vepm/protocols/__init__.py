"""How a number is measured: splits, folds, seeds and selection rules."""

from vepm.protocols.evaluation import Cell, Method, evaluate, summarise
from vepm.protocols.parallel import evaluate_cells, evaluate_in_parallel
from vepm.protocols.results import Curve, RunResult, choose_epoch
from vepm.protocols.rules import DESCRIPTIONS, RULES, Rule, Summary
from vepm.protocols.splits import (
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
from vepm.protocols.vepm import VEPMMethod

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
