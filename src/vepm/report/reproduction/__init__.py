"""Tables and figures of the paper from finished runs, ours beside the paper's."""

from vepm.report.reproduction.figures import draw_figures
from vepm.report.reproduction.tables import check_index, terminal_tables, write_index, write_tables
from vepm.report.reproduction.words import footnotes, heading

__all__ = [
    "check_index",
    "draw_figures",
    "footnotes",
    "heading",
    "terminal_tables",
    "write_index",
    "write_tables",
]
