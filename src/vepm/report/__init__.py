"""Results to figures and to one self-contained HTML page; never trains."""

from vepm.report import figures
from vepm.report.page import write_comparison, write_report
from vepm.report.reading import read_run
from vepm.report.run import Run

__all__ = ["Run", "figures", "read_run", "write_comparison", "write_report"]
