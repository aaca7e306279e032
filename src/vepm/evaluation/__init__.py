"""How a number is measured: protocols, selection rules, and the executor of the runs."""

from vepm.evaluation.executor import HERE, Compute, Method, VEPMMethod, evaluate, run_jobs
from vepm.evaluation.results import (
    RULES,
    Curve,
    Rule,
    RunResult,
    Summary,
    choose_epoch,
    mean_measures,
    overview,
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
)

__all__ = [
    "HERE",
    "PROTOCOLS",
    "RULES",
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
    "few_labels",
    "gin_folds",
    "keep_labels",
    "mean_measures",
    "overview",
    "protocol_for",
    "protocol_named",
    "public_split",
    "run_jobs",
    "summarise",
]
