"""vepm train: a classifier of nodes or graphs, with its measures and its page."""

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vepm import console
from vepm.cli import folders, options
from vepm.errors import InputError

if TYPE_CHECKING:
    from vepm.training import Progress

LOGS = ("tensorboard",)
SECONDS_BETWEEN_FLUSHES = 5


@options.command()
def train(
    dataset: str = "digits",
    output: Path | None = None,
    overwrite: bool = False,
    baselines: str = "",
    log: str | None = None,
    as_json: bool = False,
    choice: options.Choice = options.CHOICE,
    reading: options.Reading = options.READING,
    machine: options.Machine = options.MACHINE,
) -> None:
    """Train on a dataset and write a run folder with model, metrics, figures and a page.

    An interrupted run goes on where it stopped when the same command is given again. Under
    torchrun all processes train one model together.
    """
    from vepm.cli.jobs import chosen_baseline, own_split, prepare
    from vepm.report.reading import read_json
    from vepm.scale.ddp import process_group

    job = prepare(None, dataset, choice, reading, machine)
    peers = [chosen_baseline(n, job.data, machine.device) for n in options.listed(baselines)]
    if peers:
        own_split(job.data, job.parts)
    folder = output or Path("runs") / f"{job.data.name}-{choice.seed}"
    ended = contextlib.ExitStack()
    boards = [] if log is None else [checked_log(log, folder, ended)]
    with process_group(machine.device) as group:
        if not group.leads:
            with folders.how_to_continue(lambda: folders.continuation(folder)):
                job.fit(folder / folders.CHECKPOINT, group=group)
            return
        own_folder = folders.run_folder(folder, overwrite, job.inputs)
        with own_folder as checkpoint, ended:
            fitted = job.fit(checkpoint, *boards, group=group)
            # Those known from before the run was stopped are kept.
            known = read_json(folder / folders.METRICS, required=False).get("baselines", {})
            scores = {p.name: known.get(p.name) or job.score(p, choice.seed) for p in peers}
            metrics = job.write(folder, fitted, {"baselines": scores})
    console.print_result(metrics, folder, as_json, console.print_run)


def checked_log(name: str, folder: Path, ended: contextlib.ExitStack) -> "Progress":
    """Writes each number of each epoch as a scalar, with a folder of events for each phase."""
    if name not in LOGS:
        raise InputError(f"there is no log {name!r}; choose from {', '.join(LOGS)}")
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise InputError(
            "logging needs TensorBoard; install it with: pip install 'vepm[tensorboard]'"
        ) from None
    writers: dict[str, SummaryWriter] = {}

    def tell(phase: str, epoch: int, epochs: int, row: dict[str, Any]) -> None:
        step = int(row["epoch"])
        if phase not in writers:
            # A resumed run repeats the epochs after its checkpoint: what was logged of them goes.
            writers[phase] = SummaryWriter(
                str(folder / name / phase), purge_step=step, flush_secs=SECONDS_BETWEEN_FLUSHES
            )
            ended.callback(writers[phase].close)
        for term, value in row.items():
            if term not in ("phase", "epoch"):
                writers[phase].add_scalar(term, value, step)

    return tell
