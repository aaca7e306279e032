"""vepm report: the page of a run, or of several side by side."""

from pathlib import Path

from vepm import console
from vepm.cli import options
from vepm.cli.folders import RUN, check_output, only_writer
from vepm.errors import InputError


@options.command()
def report(runs: list[Path], output: Path | None = None) -> None:
    """Write the page of a run again, or one page that compares several runs."""
    from vepm.report import write_comparison, write_report

    for run in runs:
        if not run.is_dir():
            raise InputError(f"{run}: no such run folder; `vepm train` writes one")
    if len(runs) > 1:
        output = output or Path("comparison.html")
        check_output(output, (path for run in runs for path in RUN.found(run)))
        page = write_comparison(runs, output)
    elif output is not None:
        raise InputError("--output is for the page of several runs; that of one is in its folder")
    else:
        with only_writer(runs[0]):
            page = write_report(runs[0])
    console.print_line(f"see: {page}")
