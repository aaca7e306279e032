"""Search for better settings, judged on validation alone."""

from vepm.tuning.problem import Problem
from vepm.tuning.records import Record, best_of
from vepm.tuning.results import Findings
from vepm.tuning.search import tune
from vepm.tuning.space import Setting, Space, default_space, read_space

__all__ = [
    "Findings",
    "Problem",
    "Record",
    "Setting",
    "Space",
    "best_of",
    "default_space",
    "read_space",
    "tune",
]
