"""How a number is measured: splits, folds, seeds and selection rules."""

from vepm.protocols.evaluation import Method, evaluate, summarise
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
    wikics_splits,
)

__all__ = [
    "DESCRIPTIONS",
    "PROTOCOLS",
    "RULES",
    "Curve",
    "Method",
    "Rule",
    "RunResult",
    "Split",
    "Summary",
    "capsgnn_folds",
    "choose_epoch",
    "evaluate",
    "gin_folds",
    "keep_labels",
    "labels_of",
    "public_split",
    "summarise",
    "wikics_splits",
]
