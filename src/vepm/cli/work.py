"""What the commands that train a model or use one do, once their options are read."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from vepm import console
from vepm.baselines import Baseline
from vepm.cli.folders import (
    CHECKPOINT,
    METRICS,
    RUN,
    check_output,
    command_line,
    how_to_continue,
    run_folder,
)
from vepm.cli.inputs import (
    READ_ALL,
    check_model,
    chosen_baseline,
    given_paths,
    listed,
    open_data,
    own_split,
    roles,
)
from vepm.cli.inputs import settings as settings_from
from vepm.cli.tables import write_communities, write_predictions
from vepm.data import Dataset, ReadOptions, require_labels
from vepm.errors import InputError
from vepm.estimators import CommunityDetector, GraphClassifier, NodeClassifier
from vepm.report import write_report
from vepm.runs import write_run
from vepm.runs.schema import read_json
from vepm.runs.tracking import both, check_log, logging_to
from vepm.scale.ddp import ProcessGroup, process_group
from vepm.training import Config, Fitted, Progress, fit, load_model
from vepm.training.fitting import NONE

CLASSIFIERS: dict[str, type[NodeClassifier | GraphClassifier]] = {
    "node": NodeClassifier,
    "graph": GraphClassifier,
}


@dataclass(frozen=True, eq=False)
class Job:
    """A training that has passed every check."""

    data: Dataset
    parts: Mapping[str, Tensor]
    """Numbers of the nodes or graphs that train, validate and test."""
    config: Config
    seed: int
    device: str
    check_memory: bool = True
    inputs: tuple[Path, ...] = ()
    """The user's own files, which must stay as they are."""

    def fit(
        self, checkpoint: Path, board: Progress | None = None, group: ProcessGroup | None = None
    ) -> Fitted:
        """Train, or continue from the checkpoint, alone or with other processes."""
        with console.epoch_bar() as progress:
            return fit(
                self.data,
                self.config,
                train_on=self.parts["train"],
                validate_on=self.parts["val"],
                seed=self.seed,
                device=self.device,
                progress=both(progress, board),
                checkpoint=checkpoint,
                group=group,
                check_memory=self.check_memory,
            )


def classification(
    name: str,
    data_dir: Path | None,
    preset: str,
    file: Path | None,
    pairs: list[str] | None,
    seed: int,
    device: str,
    options: ReadOptions = READ_ALL,
) -> Job:
    """The training of a classifier, checked."""
    data = open_data(name, data_dir, options)
    require_labels(data)
    parts = roles(data)
    config = settings_from(data, preset, file, pairs)
    check_model(data, config, device)
    inputs = given_paths(name, data_dir, file)
    return Job(data, parts, config, seed, device, inputs=inputs)


def peers(job: Job, names: str) -> list[Baseline]:
    """The baselines to run on the same labels, checked."""
    found = [chosen_baseline(name, job.data, job.device) for name in listed(names)]
    if found:
        own_split(job.data, job.parts)
    return found


def train(
    job: Job, folder: Path, overwrite: bool, peers: list[Baseline], log: str | None
) -> tuple[dict[str, Any], Path] | None:
    """Train and write the run folder; gives its metrics and its page.

    Under torchrun all processes train one model; the first writes, and the others have nothing to
    say.
    """
    check_log(log)
    with process_group(job.device) as group:
        if group.leads:
            return _train_and_write(job, folder, overwrite, peers, log, group)
        with how_to_continue(folder):
            job.fit(folder / CHECKPOINT, group=group)
    return None


def _train_and_write(
    job: Job,
    folder: Path,
    overwrite: bool,
    peers: list[Baseline],
    log: str | None,
    group: ProcessGroup,
) -> tuple[dict[str, Any], Path]:
    with run_folder(folder, overwrite, job.inputs) as checkpoint, logging_to(log, folder) as board:
        fitted = job.fit(checkpoint, board, group)
        known = read_json(folder / METRICS, required=False).get("baselines", {})
        extra = {"baselines": _peer_scores(job, peers, known), "command": command_line()}
        metrics = write_run(folder, job.data, fitted, dict(job.parts), extra)
        page = write_report(folder)
        if board is not None:
            board.add_figures(folder / "figures")
    return metrics, page


def _peer_scores(
    job: Job, peers: list[Baseline], known: Mapping[str, dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Scores of the baselines; those known from before the run was stopped are kept."""
    scores = {}
    for peer in peers:
        if peer.name not in known:
            found = peer(job.data, own_split(job.data, job.parts), job.seed)
            measures = {f"test_{name}": value for name, value in found.measures.items()}
            scores[peer.name] = {"test_accuracy": found.test_accuracy, **measures}
        else:
            scores[peer.name] = known[peer.name]
    return scores


def predict(
    run: Path,
    name: str,
    data_dir: Path | None,
    samples: int | None,
    device: str,
    output: Path,
    options: ReadOptions = READ_ALL,
) -> dict[str, Any]:
    """Write predictions as CSV; gives what there is to say about them."""
    check_output(output, (*given_paths(name, data_dir), *RUN.found(run)))
    _, card = load_model(run / "model.safetensors")
    model = CLASSIFIERS[card.task].load(run, device)
    options = replace(options, class_names=card.class_names, feature_names=card.feature_names)
    data = open_data(name, data_dir, options)
    if data.task != card.task:
        raise InputError(f"{name}: labels {data.task}s, the model in {run} labels {card.task}s")
    probabilities = model.predict_proba(data, samples)
    write_predictions(output, data, card.class_names, probabilities)
    found = Counter(card.class_names[i] for i in probabilities.argmax(1))
    return {
        "output": str(output),
        "task": card.task,
        "n": len(probabilities),
        "predicted": {name: found[name] for name in card.class_names},
        "mean_confidence": float(probabilities.max(1).mean()),
    }


def detection(
    name: str,
    data_dir: Path | None,
    preset: str,
    file: Path | None,
    pairs: list[str] | None,
    seed: int,
    device: str,
    sizes: tuple[int | None, int | None],
    options: ReadOptions = READ_ALL,
) -> Job:
    """The search for communities, checked; sizes are how many, and in how many groups."""
    data = open_data(name, data_dir, options)
    if not data.single_graph:
        raise InputError(
            f"{name}: holds many graphs, and communities are found in one; `vepm train` shows "
            "those inside labelled graphs"
        )
    detector = CommunityDetector(
        config=settings_from(data, preset, file, pairs),
        num_communities=sizes[0],
        num_metacommunities=sizes[1],
    )
    config = detector.settings()
    check_model(_unlabelled(data), config, device)
    parts = dict.fromkeys(("train", "val", "test"), NONE)
    inputs = given_paths(name, data_dir, file)
    return Job(data, parts, config, seed, device, inputs=inputs)


def find_communities(job: Job, folder: Path, overwrite: bool) -> tuple[dict[str, Any], Path]:
    """Train without labels and write the run folder; gives its metrics and its page."""
    with run_folder(folder, overwrite, job.inputs) as checkpoint:
        fitted = replace(job, data=_unlabelled(job.data)).fit(checkpoint)
        extra = {"command": command_line()}
        metrics = write_run(folder, job.data, fitted, dict(job.parts), extra)
        write_communities(folder, job.data, CommunityDetector.load(folder, job.device))
        page = write_report(folder)
    return metrics, page


def _unlabelled(data: Dataset) -> Dataset:
    """A model that has seen no label has no classes, and must not pass for one that has."""
    return replace(data, num_classes=0, class_names=())
