"""vepm tune: better settings for one run on one dataset."""

import shlex
from pathlib import Path
from typing import Any

from rich.table import Table

from vepm import console
from vepm.cli import options
from vepm.cli.folders import Kind, clear, command_line, how_to_continue, own_folder
from vepm.files import refuse_special

SEARCH = Kind("search", ("trials.jsonl", "best.toml", "summary.json"))
WARNING = (
    "note: this search has seen the labels of most graphs. It has not seen the test part of "
    "`vepm train`, but `vepm evaluate` also tests on graphs that it has seen"
)


@options.command("batch_nodes", "no_memory_check")
def tune(
    dataset: str,
    trials: int = 20,
    seeds: int = 1,
    timeout: float | None = None,
    space: Path | None = None,
    given: options.Given = options.GIVEN,
) -> None:
    """Search for better settings by validation accuracy; test labels are never looked at.

    Trial 0 is the settings as given, so the best found are never worse on validation. A search
    that was stopped, even killed, continues when the same command is given again. `--seed` is that
    of the search; trainings use seeds 0, 1, ...
    """
    from vepm.cli.jobs import prepare
    from vepm.search.space import SPACES, read_space
    from vepm.search.tuning import Tuning
    from vepm.search.tuning import tune as search

    job = prepare(None, dataset, given)
    config = job.estimator.settings()
    tuning = Tuning(
        dataset=job.data,
        train=job.parts["train"],
        val=job.parts["val"],
        config=config,
        space=read_space(space or SPACES / f"{job.data.task}.toml", config),
        trials=trials,
        seeds=seeds,
        sampler_seed=given.seed,
    )
    folder = given.output or Path("runs") / f"tune-{job.data.name}"
    with own_folder(folder, SEARCH, (*job.inputs, space)), how_to_continue(folder):
        if given.overwrite:
            clear(folder, SEARCH)
        for name in SEARCH.files:
            refuse_special(folder / name)
        with console.run_bar(f"trials on {job.data.name}") as progress:
            how: Any = {"timeout": timeout, "device": given.device, "command": command_line()}
            found = search(tuning, folder, told=progress, **how)
    if given.as_json:
        console.print_json(found)
    else:
        _print_summary(found, folder, dataset)


def _print_summary(summary: dict[str, Any], folder: Path, dataset: str) -> None:
    from vepm.runs import peak_memory
    from vepm.tasks import TASKS

    table = Table("settings", "trial", "validation accuracy", "validation loss")
    for name in ("default", "best"):
        row = summary[name]
        numbers = f"{100 * row['val_accuracy']:.2f} %", f"{row['val_loss']:.4f}"
        table.add_row(name, str(row["trial"]), *numbers)
    console.out.print(table)
    counts = summary["trials"]
    following = shlex.join(["vepm", "train", dataset, "--config", str(folder / "best.toml")])
    for line in (
        f"{100 * summary['improvement']:+.2f} points over the default, on seeds 0 to "
        f"{summary['seeds'][-1]} and {summary['num_val']} {summary['task']}s; the best of many on "
        "the same labels looks better than it is",
        f"rule: {summary['rule']}",
        f"cost: {summary['seconds']:.1f} s in {counts['finished']} trials, {counts['refused']} "
        f"impossible; at most {peak_memory()['peak_memory_mib']:,.0f} MiB of memory",
        *([] if TASKS[summary["task"]].single_graph else [WARNING]),
        f"next: {following}",
    ):
        console.print_line(line)
