"""Each table and figure of the paper as one TOML file, and the runner behind them.

- :func:`catalogue` reads the experiments.
- :func:`squares` and :func:`select` say what is to be run.
- :func:`run` runs it, each cell once, and picks up where it was stopped.
- :func:`gather` turns finished cells into numbers, ours beside the paper's.
"""

from vepm.paper.catalogue import catalogue, read_experiment
from vepm.paper.plan import (
    EVERYTHING,
    Cell,
    Selection,
    Square,
    check_selection,
    select,
    squares,
)
from vepm.paper.results import Results, Value, gather, records
from vepm.paper.runner import Ended, Options, missing_datasets, run
from vepm.paper.specification import Choice, Experiment, Line, Printed
from vepm.paper.studies import STUDIES
from vepm.paper.tasks import Outcome, Task, perform
from vepm.training.ranks import rank_and_world

__all__ = [
    "EVERYTHING",
    "STUDIES",
    "Cell",
    "Choice",
    "Ended",
    "Experiment",
    "Line",
    "Options",
    "Outcome",
    "Printed",
    "Results",
    "Selection",
    "Square",
    "Task",
    "Value",
    "catalogue",
    "check_selection",
    "gather",
    "missing_datasets",
    "perform",
    "rank_and_world",
    "read_experiment",
    "records",
    "run",
    "select",
    "squares",
]
