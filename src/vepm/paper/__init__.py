"""Each table and figure of the paper as one TOML file, and the runner behind them.

- :func:`catalogue` reads the experiments.
- :func:`squares` and :func:`select` say what is to be run.
- :func:`run` runs it, each cell once, and continues where it was stopped.
- :func:`gather` turns finished cells into numbers, ours beside the paper's.
"""

from vepm.paper.experiments import (
    FOLDER,
    Experiment,
    Metric,
    Printed,
    catalogue,
    read_experiment,
    slug,
)
from vepm.paper.plan import (
    EVERY_PRESET,
    PRESET,
    Selection,
    Square,
    check_selection,
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
from vepm.paper.runner import Ended, open_dataset, run

__all__ = [
    "EVERY_PRESET",
    "FOLDER",
    "NO_DATA",
    "PRESET",
    "Ended",
    "Experiment",
    "Metric",
    "Printed",
    "Results",
    "Selection",
    "Square",
    "Value",
    "catalogue",
    "check_selection",
    "gather",
    "open_dataset",
    "read_experiment",
    "records",
    "run",
    "select",
    "slug",
    "squares",
    "task_of",
    "with_finished_presets",
]
