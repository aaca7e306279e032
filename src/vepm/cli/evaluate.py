"""vepm evaluate: accuracy by a protocol, over many seeds or folds."""

from typing import TYPE_CHECKING

from vepm import console
from vepm.cli import options
from vepm.errors import InputError

if TYPE_CHECKING:
    from vepm.data import Dataset
    from vepm.evaluation import Split

DEFAULT_SPLITS = 10


@options.command("seed", "batch_nodes", "no_memory_check")
def evaluate(
    dataset: str,
    protocol: str = "",
    seeds: int = 1,
    first_seed: int = 0,
    folds: int = 10,
    labels_per_class: int | None = None,
    splits: int | None = None,
    baselines: str = "",
    method: str = "vepm",
    choice: options.Choice = options.CHOICE,
    as_json: bool = False,
    jobs: int = 0,
    runs_at_once: int = 0,
    reading: options.Reading = options.READING,
    machine: options.Machine = options.MACHINE,
) -> None:
    """Measure accuracy by a protocol: many seeds or folds, mean and spread, and the rule.

    Under torchrun the runs are divided among the processes.
    """
    from vepm.cli.jobs import check_model, chosen_baseline, open_data, settings
    from vepm.data import require_labels
    from vepm.evaluation import Compute, Method, VEPMMethod
    from vepm.evaluation import evaluate as run_all

    data = open_data(dataset, machine.data_dir, reading)
    require_labels(data)
    parts, rules = _splits(data, protocol, labels_per_class, splits, folds)
    chosen = settings(data, choice.preset, choice.config, choice.settings)
    if rules[0] == "gin":
        # One epoch is chosen for all folds, so all must run equally long.
        chosen = chosen.replace(patience=0)
    if method != "vepm" and (choice.settings or choice.config):
        raise InputError("--set and --config are for vepm; baselines keep their published settings")
    compute = Compute(machine.device, jobs, runs_at_once, shared=True)
    runners: dict[str, Method] = {}
    for name in (method, *options.listed(baselines)):
        if name == "vepm":
            check_model(data, chosen, compute.own_device)
            runners[name] = VEPMMethod(chosen, compute.own_device)
        else:
            runners[name] = chosen_baseline(name, data, compute.own_device)
    every_seed = range(first_seed, first_seed + seeds)
    measured = []
    for name, runner in runners.items():
        with console.run_bar(f"{name} on {data.name}") as progress:
            measured.append(run_all(runner, data, parts, every_seed, progress, compute))
    if compute.leads:
        console.print_evaluation(measured, rules, as_json, data.class_names)


def _splits(
    data: "Dataset", name: str, labels_per_class: int | None, splits: int | None, folds: int
) -> "tuple[list[Split], tuple[str, ...]]":
    """Splits and selection rules of the protocol that is asked for, the main rule first.

    A graph without a published test part is split as for training. Where nothing validates,
    nothing is selected and the last epoch counts.
    """
    from vepm.cli.jobs import own_split, roles
    from vepm.evaluation import protocol_for

    if labels_per_class is not None:
        if name not in ("", "few-labels"):
            raise InputError(f"--labels-per-class is for few-labels, not for protocol {name}")
        name = f"few-labels-{labels_per_class}"
    if name.startswith("few-labels"):
        folds = splits or DEFAULT_SPLITS
    elif splits is not None:
        raise InputError("--splits counts random splits; give --labels-per-class too, or --folds")
    protocol = protocol_for(data.task, name)
    published = data.splits or not data.single_graph or data.graphs[0].test_mask.any()
    if protocol.name == "public" and not published:
        found = [own_split(data, roles(data))]
    else:
        found = protocol(data, num_folds=folds)
    if "validation" in protocol.rules and not all(split.val.numel() for split in found):
        return found, ("last",)
    return found, protocol.rules
