"""The run folder: one schema, written and read in one place."""

from vepm.runs.schema import Metrics, read_metrics
from vepm.runs.writing import write_run

__all__ = ["Metrics", "read_metrics", "write_run"]
