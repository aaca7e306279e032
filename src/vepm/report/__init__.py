"""Results to figures and to one self-contained HTML page; never trains.

- :func:`read_run` reads a run folder.
- :func:`write_report` writes its page and its figures.
- :func:`write_comparison` writes one page about several runs.
- :mod:`vepm.report.figures` draws each figure from plain arrays.
"""

from vepm.report import figures
from vepm.report.compare import write_comparison
from vepm.report.page import write_report
from vepm.report.reading import read_run
from vepm.report.run import Run

__all__ = ["Run", "figures", "read_run", "write_comparison", "write_report"]
