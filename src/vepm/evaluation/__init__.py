"""How a number is measured: protocols, selection rules, and the executor of the runs."""

from vepm.evaluation.executor import HERE, Compute, run_jobs
from vepm.evaluation.methods import Cell, Method, VEPMMethod, evaluate, evaluate_cells, result_of
from vepm.evaluation.results import (
    RULES,
    Curve,
    Rule,
    RunResult,
    Summary,
    choose_epoch,
    mean_measures,
    summarise,
)
from vepm.evaluation.splits import (
    PROTOCOLS,
    Protocol,
    Split,
    capsgnn_folds,
    few_labels,
    gin_folds,
    keep_labels,
    protocol_for,
    protocol_named,
    public_split,
    wikics_splits,
)

__all__ = [
    "HERE",
    "PROTOCOLS",
    "RULES",
    "Cell",
    "Compute",
    "Curve",
    "Method",
    "Protocol",
    "Rule",
    "RunResult",
    "Split",
    "Summary",
    "VEPMMethod",
    "capsgnn_folds",
    "choose_epoch",
    "evaluate",
    "evaluate_cells",
    "few_labels",
    "gin_folds",
    "keep_labels",
    "mean_measures",
    "protocol_for",
    "protocol_named",
    "public_split",
    "result_of",
    "run_jobs",
    "summarise",
    "wikics_splits",
]
