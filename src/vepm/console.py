"""What commands share: opening inputs, settings from options, bars, tables."""

import contextlib
import json
import logging
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from torch import Tensor

from vepm.data import Dataset, load, read
from vepm.errors import InputError
from vepm.estimators import CommunityDetector
from vepm.files import write_csv
from vepm.protocols import RunResult, labels_of, summarise
from vepm.protocols.evaluation import Progress as RunProgress
from vepm.training import Config, set_aside
from vepm.training import Progress as EpochProgress
from vepm.training import preset as preset_settings

out = Console()
err = Console(stderr=True)

SPLIT_SEED = 0
"""Own graphs are split once and for all, whatever the seed of the run."""


def show_messages() -> None:
    """Send what the package has to say about its input to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger = logging.getLogger("vepm")
    logger.handlers[:] = [handler]
    logger.setLevel(logging.INFO)


def print_error(error: Exception) -> None:
    """What went wrong, on one line."""
    line = " ".join(str(error).split())
    err.print(f"error: {line}", style="red", markup=False, highlight=False, soft_wrap=True)


def open_data(
    name: str, data_dir: Path | None, class_names: tuple[str, ...] | None = None
) -> Dataset:
    """A dataset by name, or a user's own by path."""
    path = Path(name)
    if path.exists() or path.suffix or len(path.parts) > 1:
        return read(path, class_names=class_names)
    return load(name, data_dir)


def settings(dataset: Dataset, preset: str, file: Path | None, pairs: list[str] | None) -> Config:
    """A preset, changed by a TOML file, changed by ``name=value`` pairs."""
    config = preset_settings(preset, dataset.task)
    if file is not None:
        try:
            config = config.updated(tomllib.loads(file.read_text()))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise InputError(f"{file}: not a readable TOML file ({error})") from None
    for pair in pairs or []:
        name, equals, value = pair.partition("=")
        if not equals:
            raise InputError(f"--set {pair}: write it as name=value")
        try:
            parsed = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            parsed = value
        config = config.replace(**{name.strip(): parsed})
    return config


def roles(dataset: Dataset) -> dict[str, Tensor]:
    """Numbers of the nodes or graphs that train, validate and test.

    The dataset's own split is used where it has one; what is missing is drawn from the
    training labels: a fifth to validate and, if there is no test part at all, a fifth to test.
    """
    y = labels_of(dataset)
    if dataset.task == "node":
        graph = dataset.graphs[0]
        masks = (graph.train_mask, graph.val_mask, graph.test_mask)
    elif dataset.splits:
        masks = dataset.splits[0]
    else:
        nothing = torch.zeros_like(y, dtype=torch.bool)
        masks = (y >= 0, nothing, nothing)
    train, val, test = (mask.nonzero().flatten() for mask in masks)
    if test.numel() == 0:
        train, test = set_aside(train, y, SPLIT_SEED)
    if val.numel() == 0:
        train, val = set_aside(train, y, SPLIT_SEED)
    return {"train": train, "val": val, "test": test}


@contextlib.contextmanager
def resumable(folder: Path) -> Iterator[None]:
    """Say how to go on after an interrupt."""
    try:
        yield
    except KeyboardInterrupt:
        err.print(f"\nstopped; give the same command again to go on from {folder}", markup=False)
        raise


@contextlib.contextmanager
def epoch_bar() -> Iterator[EpochProgress | None]:
    """A bar over epochs on a terminal; nothing elsewhere."""
    if not err.is_terminal:
        yield None
        return
    columns = [TextColumn("{task.description:<9}"), BarColumn(), MofNCompleteColumn()]
    with Progress(*columns, TextColumn("{task.fields[note]}"), console=err) as bars:
        tasks: dict[str, Any] = {}

        def show(phase: str, epoch: int, epochs: int, row: dict[str, Any]) -> None:
            if phase not in tasks:
                tasks[phase] = bars.add_task(phase, total=epochs, note="")
            val = row.get("val_accuracy")
            note = f"loss {row['loss']:.3f}" + (f"  validation {val:.3f}" if val else "")
            bars.update(tasks[phase], completed=epoch, note=note)

        yield show


@contextlib.contextmanager
def run_bar(what: str) -> Iterator[RunProgress | None]:
    """A bar over runs on a terminal; nothing elsewhere."""
    if not err.is_terminal:
        yield None
        return
    columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()]
    with Progress(*columns, TimeRemainingColumn(), console=err) as bars:
        task = bars.add_task(what, total=None)

        def show(done: int, total: int, result: RunResult) -> None:
            bars.update(task, completed=done, total=total)

        yield show


def print_run(metrics: dict[str, Any], page: Path) -> None:
    """The headline of a run: its accuracy beside the baselines', and where to look."""
    table = Table("method", "test accuracy", title=f"{metrics['dataset']}, same labels for all")
    rows = {"vepm": metrics["test_accuracy"]}
    rows |= {name: found["test_accuracy"] for name, found in metrics["baselines"].items()}
    for name, value in rows.items():
        table.add_row(name, "-" if value is None else f"{100 * value:.1f} %")
    out.print(table)
    out.print(f"epoch: {metrics['rule']}", highlight=False)
    out.print(f"look:  {page}", highlight=False, soft_wrap=True)


def print_evaluation(results: list[RunResult], rules: Sequence[str], as_json: bool) -> None:
    """Mean, spread and rule of many runs, as a table or as JSON."""
    summaries = [summarise(results, rule) for rule in rules]
    main = summaries[0]
    if as_json:
        fields = ("split", "seed", "val_accuracy", "test_accuracy", "best_epoch", "seconds")
        print(
            json.dumps(
                {
                    "dataset": results[0].dataset,
                    "method": results[0].method,
                    "rule": main.rule,
                    "mean": main.mean,
                    "std": main.std,
                    "standard_error": main.standard_error,
                    "n": main.n,
                    "rules": {summary.rule: vars(summary) for summary in summaries},
                    "runs": [{name: getattr(r, name) for name in fields} for r in results],
                    "settings": results[0].settings,
                }
            )
        )
        return
    seeds = sorted({result.seed for result in results})
    title = (
        f"{results[0].method} on {results[0].dataset}: {main.n} runs, seeds {seeds[0]}-{seeds[-1]}"
    )
    table = Table("rule", "mean", "std", "std. error", "how the epoch was chosen", title=title)
    for summary in summaries:
        numbers = (summary.mean, summary.std, summary.standard_error)
        table.add_row(summary.rule, *(f"{100 * n:.2f}" for n in numbers), summary.description)
    out.print(table)


def item_names(dataset: Dataset) -> list[str]:
    """Ids of the nodes or graphs, numbers where the data name none."""
    if dataset.task == "graph":
        return list(dataset.graph_names or map(str, range(len(dataset.graphs))))
    nodes = dataset.graphs[0].num_nodes or 0
    return list(dataset.node_names[0] if dataset.node_names else map(str, range(nodes)))


def write_communities(folder: Path, dataset: Dataset, detector: CommunityDetector) -> None:
    """Memberships of the nodes and splits of the edges, as CSV."""
    found = detector.communities(dataset)
    names = item_names(dataset)
    parts = range(found.soft.shape[1])
    write_csv(
        folder / "memberships.csv",
        ["id", "community", *(f"strength_{k}" for k in parts), *(f"member_{k}" for k in parts)],
        (
            [name, hard, *(f"{s:.6f}" for s in soft), *(int(m) for m in member)]
            for name, hard, soft, member in zip(names, *found, strict=True)
        ),
    )
    edges = detector.edge_partition(dataset)
    write_csv(
        folder / "edges.csv",
        ["source", "target", *(f"share_{k}" for k in parts)],
        (
            [names[i], names[j], *(f"{s:.6f}" for s in shares)]
            for i, j, shares in zip(*edges.edge_index, edges.share, strict=True)
            if i < j
        ),
    )
