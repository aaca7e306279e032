"""What people see of a command: messages, bars, tables, JSON."""

import contextlib
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column, Table

from vepm.escaping import for_json, for_terminal, on_one_line
from vepm.files import FULL

if TYPE_CHECKING:
    from vepm.evaluation import RunResult
    from vepm.training import Progress as EpochProgress

# Names come from users' data: square brackets are no markup.
out = Console(markup=False)
err = Console(stderr=True, markup=False)
PAGE = "report.html"
MEASURES = {"macro_f1": "macro F1", "roc_auc": "ROC AUC", "sampled_accuracy": "accuracy by draws"}
COMMUNITY_MEASURES = {
    "modularity": "modularity", "overlapping_nmi": "overlapping NMI", "omega": "omega", "f1": "F1"
}  # fmt: skip


def show_messages() -> None:
    """Send what the package has to say about its input to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_OneLine("%(message)s"))
    logger = logging.getLogger("vepm")
    logger.handlers[:] = [handler]
    logger.setLevel(logging.INFO)


class _OneLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return on_one_line(super().format(record))


def print_error(error: Exception) -> None:
    """What went wrong, on one line."""
    text = str(error)
    if isinstance(error, MemoryError):
        text = f"not enough memory; {text}" if text else "not enough memory"
    if isinstance(error, OSError) and error.filename:
        text = f"{error.filename}: {error.strerror}"
    if isinstance(error, OSError) and error.errno in FULL:
        text += "; what was written before is whole: make room and give the command again"
    _print(err, f"error: {on_one_line(text)}", "red")


def print_result(
    metrics: Mapping[str, Any], folder: Path, as_json: bool, show: Callable[..., None]
) -> None:
    """What looked wrong with a training, on standard error, and its result."""
    for line in metrics["warnings"]:
        _print(err, f"warning: {on_one_line(line)}", "yellow")
    if as_json:
        print_json(metrics)
    else:
        show(metrics, folder)


def print_note(text: str) -> None:
    """A line for people beside the results, on standard error."""
    _print(err, for_terminal(text))


def print_line(text: str) -> None:
    """A result in words."""
    _print(out, for_terminal(text))


def _print(where: Console, text: str, style: str | None = None) -> None:
    where.print(text, style=style, highlight=False, soft_wrap=True)


def print_json(value: Any) -> None:
    """One line of JSON, whatever the width of the terminal."""
    print(json.dumps(for_json(value)))


@contextlib.contextmanager
def epoch_bar() -> Iterator["EpochProgress | None"]:
    """A bar over epochs on a terminal; nothing elsewhere."""
    if not err.file.isatty():
        yield None
        return
    columns = [TextColumn("{task.description:<9}"), BarColumn(), MofNCompleteColumn()]
    with Progress(*columns, TextColumn("{task.fields[note]}"), console=err) as bars:
        tasks: dict[str, Any] = {}

        def show(phase: str, epoch: int, epochs: int, row: dict[str, Any]) -> None:
            if phase not in tasks:
                tasks[phase] = bars.add_task(phase, total=epochs, note="")
            val = row.get("val_accuracy")
            note = f"loss {row['loss']:.3f}" + ("" if val is None else f"  validation {val:.3f}")
            bars.update(tasks[phase], completed=epoch, note=note)

        yield show


@contextlib.contextmanager
def run_bar(what: str) -> Iterator[Callable[[int, int, object], None] | None]:
    """A bar over runs on a terminal, told how many are done, of how many, and a note.

    None elsewhere, and in all but the first process of torchrun.
    """
    if not err.file.isatty() or os.environ.get("RANK", "0") != "0":
        yield None
        return
    described = TextColumn("{task.description}", markup=False)
    noted = TextColumn("{task.fields[note]}", markup=False)
    columns = (described, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), noted)
    with Progress(*columns, console=err) as bars:
        task = bars.add_task(on_one_line(what), total=None, note="")

        def show(done: int, total: int, last: object) -> None:
            note = on_one_line(last) if isinstance(last, str) else ""
            bars.update(task, completed=done, total=total, note=note)

        yield show


def print_run(metrics: Mapping[str, Any], folder: Path) -> None:
    """The headline of a run: its accuracy beside the baselines', its cost, and where to look."""
    table = Table("method", "test accuracy")
    baselines = {name: found["test_accuracy"] for name, found in metrics["baselines"].items()}
    for name, value in ({"vepm": metrics["test_accuracy"]} | baselines).items():
        table.add_row(name, "-" if value is None else f"{100 * value:.1f} %")
    several = ", the same for all methods" if baselines else ""
    print_line(f"{metrics['dataset']}: {metrics['num_train']} training labels{several}")
    out.print(table)
    for number, part in enumerate(metrics.get("parts", ())):
        print_line(f"community {number}: {part_in_words(part)}")
    seed = metrics["seed"]
    if tried := metrics.get("partitions"):
        kept, *others = (f"{name} {100 * value:.1f} %" for name, value in tried.items())
        print_line(f"kept:  {kept} on validation labels, beside {', '.join(others)}")
    print_line(f"epoch: {metrics['rule']}")
    print_line(f"one run, seed {seed}; vepm evaluate shows how much results vary between seeds")
    print_line(f"cost:  {_cost(metrics)}")
    print_line(f"see:   {folder / PAGE}")


def part_in_words(part: Mapping[str, Any]) -> str:
    """Weight and share of a part of the edges, as metrics.json has it."""
    words = [] if part["relevance"] is None else [f"weight {part['relevance']:.3g}"]
    words.append(f"{100 * part['share']:.0f} % of the edges")
    if part["homophily"] is not None:
        words.append(f"{100 * part['homophily']:.0f} % of them between nodes of one class")
    words += [f"{100 * share:.0f} % {name}" for name, share in part["kinds"].items()]
    return ", ".join(words)


def print_communities(metrics: Mapping[str, Any], folder: Path) -> None:
    """How good communities are, where they were written to, and at what cost."""
    print_line(f"memberships.csv and edges.csv in {folder}")
    print_line(f"cost: {_cost(metrics)}")
    for method, row in metrics["communities"].items():
        found = (f"{name} {row[key]:.2f}" for key, name in COMMUNITY_MEASURES.items() if key in row)
        print_line(f"{method}: {', '.join(found)}")
    print_line(f"see: {folder / PAGE}")


def print_links(metrics: Mapping[str, Any], folder: Path) -> None:
    """How well held-out edges are told from pairs without one, and where predictions are."""
    print_line(
        f"held-out edges: AUC {100 * metrics['auc']:.1f} %, average precision "
        f"{100 * metrics['average_precision']:.1f} %, calibration error "
        f"{100 * metrics['calibration_error']:.1f} %"
    )
    print_line(f"missing.csv and edges.csv in {folder}")
    print_line(f"cost: {_cost(metrics)}")


def _cost(metrics: Mapping[str, Any]) -> str:
    return (
        f"{metrics['seconds']:.1f} s in {metrics['epochs']} epochs, at most "
        f"{metrics['peak_memory_mib']:,.0f} MiB of memory"
    )


def print_evaluation(
    measured: "Sequence[list[RunResult]]",
    rules: Sequence[str],
    as_json: bool,
    class_names: Sequence[str] = (),
) -> None:
    """Mean, spread and rule of the runs of each method, as a table or as JSON.

    The main rule comes first; baselines, on the same splits with the same seeds, are shown by that
    one alone.
    """
    results, *peers = measured
    if as_json:
        baselines = {runs[0].method: _summary(runs, rules[:1]) for runs in peers}
        print_json(_summary(results, rules) | {"baselines": baselines})
        return
    seeds = sorted({result.seed for result in results})
    name = on_one_line(results[0].dataset)
    title = f"{results[0].method} on {name}: {len(results)} runs, seeds {seeds[0]}-{seeds[-1]}"
    numbers = (Column(name, no_wrap=True) for name in ("mean", "std", "std. error"))
    method, rule = Column("method", no_wrap=True), Column("rule", no_wrap=True)
    table = Table(method, rule, *numbers, "how the epoch was chosen", title=title)
    for runs, shown in [(results, rules), *((runs, rules[:1]) for runs in peers)]:
        for found in _summary(runs, shown)["rules"].values():
            cells = (f"{100 * found[key]:.2f}" for key in ("mean", "std", "standard_error"))
            table.add_row(runs[0].method, found["rule"], *cells, found["description"])
    out.print(table)
    _print_measures(measured, class_names)
    every = [result for runs in measured for result in runs]
    print_line(f"cost: {sum(r.seconds for r in every):.1f} s of training in {len(every)} runs")


def _print_measures(measured: "Sequence[list[RunResult]]", class_names: Sequence[str]) -> None:
    """Measures beside accuracy of every method, and of the first by class."""
    from vepm.evaluation import mean_measures

    found = {runs[0].method: mean_measures(runs) for runs in measured}
    last = any(run.val_accuracy is None for run in measured[0])
    when = "the last epoch" if last else "the epoch that validation chose"
    shown = {key: name for key, name in MEASURES.items() if any(key in m for m in found.values())}
    table = Table("method", *shown.values(), title=f"Test part at {when}, mean over runs")
    for method, measures in found.items():
        table.add_row(method, *(_percent(measures.get(key)) for key in shown))
    out.print(table)
    columns = ("precision", "recall", "f1", "support")
    table = Table("class", *columns, title=f"{measured[0][0].method} by class")
    for name, row in zip(class_names, next(iter(found.values()))["per_class"], strict=False):
        scores = (_percent(row[key]) for key in columns[:3])
        table.add_row(on_one_line(name), *scores, str(row["support"]))
    if table.row_count:
        out.print(table)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.2f}"


def _summary(results: "list[RunResult]", rules: Sequence[str]) -> dict[str, Any]:
    """What there is to say about the runs of a method."""
    from vepm.evaluation import mean_measures, summarise

    summaries = [summarise(results, rule) for rule in rules]
    main = summaries[0]
    fields = ("split", "seed", "val_accuracy", "test_accuracy", "best_epoch", "seconds")
    return {
        "dataset": results[0].dataset,
        "method": results[0].method,
        **{name: getattr(main, name) for name in ("rule", "mean", "std", "standard_error", "n")},
        "rules": {summary.rule: vars(summary) for summary in summaries},
        "measures": mean_measures(results),
        "runs": [{name: getattr(r, name) for name in fields} | r.measures for r in results],
        "settings": results[0].settings,
    }
