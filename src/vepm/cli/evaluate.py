"""vepm evaluate: accuracy by a protocol, over many seeds or folds."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.table import Column, Table

from vepm import console
from vepm.cli import options
from vepm.errors import InputError
from vepm.escaping import on_one_line

if TYPE_CHECKING:
    from vepm.evaluation import RunResult

MEASURES = {"macro_f1": "macro F1", "roc_auc": "ROC AUC", "sampled_accuracy": "accuracy by draws"}


@options.command("output", "overwrite", "seed", "batch_nodes", "no_memory_check")
def evaluate(
    dataset: str,
    protocol: str = "",
    seeds: int = 1,
    first_seed: int = 0,
    folds: int | None = None,
    labels_per_class: int | None = None,
    splits: int | None = None,
    baselines: str = "",
    method: str = "vepm",
    jobs: int = 0,
    runs_at_once: int = 0,
    given: options.Given = options.GIVEN,
) -> None:
    """Measure accuracy by a protocol: many seeds or folds, mean and spread, and the rule.

    Under torchrun the runs are divided among the processes.
    """
    from vepm.cli.jobs import check_model, chosen_baseline, open_data, scored_splits, settings
    from vepm.data import require_labels
    from vepm.evaluation import Compute, Method, VEPMMethod
    from vepm.evaluation import evaluate as run_all

    data = open_data(dataset, given)
    require_labels(data)
    parts, rules = scored_splits(data, protocol, labels_per_class, splits, folds)
    chosen = settings(data, given)
    if rules[0] == "gin":
        # One epoch is chosen for all folds, so all must run equally long.
        chosen = chosen.replace(patience=0)
    if method != "vepm" and (
        given.settings or given.config or given.preset != options.GIVEN.preset
    ):
        wrong = "--preset, --set and --config are for vepm"
        raise InputError(f"{wrong}; baselines keep their published settings")
    compute = Compute(given.device, jobs, runs_at_once, shared=True)
    own: Method = VEPMMethod(chosen, compute.own_device)
    runners = {
        name: own if name == "vepm" else chosen_baseline(name, data, compute.own_device)
        for name in (method, *options.listed(baselines))
    }
    if "vepm" in runners:
        check_model(data, chosen, compute.own_device)
    every_seed = range(first_seed, first_seed + seeds)
    measured = []
    for name, runner in runners.items():
        with console.run_bar(f"{name} on {data.name}") as progress:
            measured.append(run_all(runner, data, parts, every_seed, progress, compute))
    if compute.leads:
        print_evaluation(measured, rules, given.as_json)


def print_evaluation(
    measured: "Sequence[list[RunResult]]", rules: Sequence[str], as_json: bool
) -> None:
    """Mean, spread and rule of each method's runs; baselines are shown by the first rule alone."""
    from vepm.evaluation import overview

    first, *peers = measured
    ours, *others = overview(first, rules), *(overview(runs, rules[:1]) for runs in peers)
    if as_json:
        console.print_json(ours | {"baselines": {found["method"]: found for found in others}})
        return
    summaries, seeds = [ours, *others], [result.seed for result in first]
    name = f"{ours['method']} on {on_one_line(ours['dataset'])}"
    fixed = (Column(n, no_wrap=True) for n in ("method", "rule", "mean", "std", "std. error"))
    title = f"{name}: {len(first)} runs, seeds {min(seeds)}-{max(seeds)}"
    table = Table(*fixed, "how the epoch was chosen", title=title)
    for found in summaries:
        for rule in found["rules"].values():
            # Of one run nothing is known about the spread.
            spread = (rule["std"], rule["standard_error"]) if rule["n"] > 1 else (None, None)
            numbers = map(_percent, (rule["mean"], *spread))
            table.add_row(found["method"], rule["rule"], *numbers, rule["description"])
    console.out.print(table)
    last = any(run.val_accuracy is None for run in first)
    when = "the last epoch" if last else "the epoch that validation chose"
    known = [key for key in MEASURES if any(key in found["measures"] for found in summaries)]
    title = f"Test part at {when}, mean over runs"
    table = Table("method", *(MEASURES[key] for key in known), title=title)
    for found in summaries:
        table.add_row(found["method"], *(_percent(found["measures"].get(key)) for key in known))
    console.out.print(table)
    seconds = [result.seconds for runs in measured for result in runs]
    console.print_line(f"cost: {sum(seconds):.1f} s of training in {len(seconds)} runs")


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.2f}"
