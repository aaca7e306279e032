"""Search for better settings, judged on validation alone: one space, one log, one ranking."""

from vepm.search.log import Row, Trial, standings
from vepm.search.space import Space, default_space, read_space, require_optuna
from vepm.search.sweeps import Sweep, run_sweep
from vepm.search.tuning import (
    BEST_FILE,
    SUMMARY_FILE,
    TABLE_FILE,
    TRIALS_FILE,
    Findings,
    Problem,
    tune,
)

__all__ = [
    "BEST_FILE",
    "SUMMARY_FILE",
    "TABLE_FILE",
    "TRIALS_FILE",
    "Findings",
    "Problem",
    "Row",
    "Space",
    "Sweep",
    "Trial",
    "default_space",
    "read_space",
    "require_optuna",
    "run_sweep",
    "standings",
    "tune",
]
