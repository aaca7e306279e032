"""Search for better settings, judged on validation alone."""

from vepm.search.problem import Problem
from vepm.search.records import Record, best_of
from vepm.search.results import Findings
from vepm.search.search import tune
from vepm.search.space import Setting, Space, default_space, read_space

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
