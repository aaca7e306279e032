"""Each table and figure of the paper as one TOML file, and the runner behind them.

- :func:`catalogue` reads the experiments.
- :func:`squares` and :func:`select` say what is to be run.
- :func:`run` runs it, each cell once, and continues where it was stopped.
- :func:`gather` turns finished cells into numbers, ours beside the paper's.
"""

from vepm.paper.experiments import (
    FOLDER,
    METRICS,
    Choice,
    Experiment,
    Line,
    Metric,
    Printed,
    catalogue,
    read_experiment,
    slug,
)
from vepm.paper.plan import (
    EVERY_PRESET,
    EVERYTHING,
    PRESET,
    Cell,
    Selection,
    Square,
    Task,
    check_selection,
    resolve,
    select,
    squares,
    task_of,
)
from vepm.paper.results import (
    NO_DATA,
    Results,
    Value,
    gather,
    records,
    with_finished_presets,
)
from vepm.paper.runner import Ended, missing_datasets, open_dataset, perform, run
from vepm.paper.studies import STUDIES

__all__ = [
    "EVERYTHING",
    "EVERY_PRESET",
    "FOLDER",
    "METRICS",
    "NO_DATA",
    "PRESET",
    "STUDIES",
    "Cell",
    "Choice",
    "Ended",
    "Experiment",
    "Line",
    "Metric",
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
    "open_dataset",
    "perform",
    "read_experiment",
    "records",
    "resolve",
    "run",
    "select",
    "slug",
    "squares",
    "task_of",
    "with_finished_presets",
]
