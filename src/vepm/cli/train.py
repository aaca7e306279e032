"""vepm train: a classifier of nodes or graphs, with its measures and its page."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.table import Table

from vepm import console
from vepm.cli import folders, options


@options.command()
def train(
    dataset: str = "digits", baselines: str = "", given: options.Given = options.GIVEN
) -> None:
    """Train on a dataset and write a run folder with model, metrics, figures and a page.

    An interrupted run goes on where it stopped when the same command is given again. Under
    torchrun all processes train one model together.
    """
    from vepm.cli.jobs import chosen_baseline, own_split, prepare
    from vepm.report.reading import read_json
    from vepm.scale.ddp import process_group

    job = prepare(None, dataset, given)
    peers = [chosen_baseline(n, job.data, given.device) for n in options.listed(baselines)]
    if peers:
        own_split(job.data, job.parts)
    folder = given.output or Path("runs") / f"{job.data.name}-{given.seed}"
    with process_group(given.device) as group:
        if not group.leads:
            with folders.how_to_continue(folder):
                job.fit(folder / folders.CHECKPOINT, group)
            return
        with folders.run_folder(folder, given.overwrite, job.inputs) as checkpoint:
            fitted = job.fit(checkpoint, group)
            # Baselines known from before the run was stopped are kept.
            found = read_json(folder / folders.METRICS, required=False) if peers else {}
            known = found.get("baselines", {})
            scores = {p.name: known.get(p.name) or job.score(p, given.seed) for p in peers}
            metrics = job.write(folder, fitted, {"baselines": scores})
    console.print_result(metrics, folder, given.as_json, print_run)


def print_run(metrics: Mapping[str, Any], folder: Path) -> None:
    """The headline of a run: accuracy, also of the baselines, cost, and where to look."""
    table = Table("method", "test accuracy")
    baselines = {name: found["test_accuracy"] for name, found in metrics["baselines"].items()}
    for name, value in ({"vepm": metrics["test_accuracy"]} | baselines).items():
        table.add_row(name, "-" if value is None else f"{100 * value:.1f} %")
    several = ", the same for all methods" if baselines else ""
    console.print_line(f"{metrics['dataset']}: {metrics['num_train']} training labels{several}")
    console.out.print(table)
    for number, part in enumerate(metrics.get("parts", ())):
        console.print_line(f"community {number}: {part_in_words(part)}")
    if tried := metrics.get("partitions"):
        kept, *others = (f"{name} {100 * value:.1f} %" for name, value in tried.items())
        console.print_line(f"kept:  {kept} on validation labels, beside {', '.join(others)}")
    for line in (
        f"epoch: {metrics['rule']}",
        f"one run, seed {metrics['seed']}; vepm evaluate shows how much results vary between seeds",
        f"cost:  {console.cost(metrics)}",
        f"see:   {folder / 'report.html'}",
    ):
        console.print_line(line)


def part_in_words(part: Mapping[str, Any]) -> str:
    """Weight and share of a part of the edges, as metrics.json has it."""
    words = [] if part["relevance"] is None else [f"weight {part['relevance']:.3g}"]
    words.append(f"{100 * part['share']:.0f} % of the edges")
    if part["homophily"] is not None:
        words.append(f"{100 * part['homophily']:.0f} % of them between nodes of one class")
    words += [f"{100 * share:.0f} % {name}" for name, share in part["kinds"].items()]
    return ", ".join(words)
