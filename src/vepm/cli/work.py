"""What the commands that train a model or use one do, once their options are read."""

import contextlib
import json
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from vepm import console
from vepm.baselines import Baseline
from vepm.baselines.communities import DETECTORS, Bools, require_leiden
from vepm.cli import folders, inputs, outputs
from vepm.cli.options import Machine, Reading, TrainingChoice, TrainingMachine, listed
from vepm.data import Dataset, require_labels
from vepm.errors import InputError, TrainingWarning
from vepm.escaping import for_json
from vepm.estimators import (
    CLASSIFIERS,
    CommunityDetector,
    Estimator,
    LinkPredictor,
    load_classifier,
    unlabelled,
)
from vepm.evaluation.communities import compare, known_communities, modularity, read_cover
from vepm.files import write_text
from vepm.report import write_report
from vepm.runs import write_run
from vepm.runs.metrics import describe_machine, peak_memory
from vepm.runs.schema import read_json
from vepm.scale.ddp import ProcessGroup, process_group
from vepm.training import Fitted, Progress
from vepm.training.fitting import NONE


@dataclass(frozen=True, eq=False)
class Job:
    """A training that has passed every check."""

    data: Dataset
    parts: Mapping[str, Tensor]
    """Indices of the nodes or graphs that train, validate and test."""
    estimator: Estimator
    inputs: tuple[Path, ...] = ()
    """The user's own files, which must stay as they are."""
    check_memory: bool = True

    @property
    def seed(self) -> int:
        """The seed of the training."""
        seed = self.estimator.random_state
        assert isinstance(seed, int)
        return seed

    @contextlib.contextmanager
    def followed(self, *others: Progress) -> Iterator[None]:
        """Show the epochs of a training; the console shows its warnings later."""
        with console.epoch_bar() as bar, warnings.catch_warnings():
            warnings.simplefilter("ignore", TrainingWarning)
            listeners = (*((bar,) if bar else ()), *others)

            def tell(phase: str, epoch: int, epochs: int, row: dict[str, Any]) -> None:
                for listener in listeners:
                    listener(phase, epoch, epochs, row)

            self.estimator.set_params(progress=tell)
            yield

    def fit(self, checkpoint: Path, *others: Progress, group: ProcessGroup | None = None) -> Fitted:
        """Train, or continue from the checkpoint, alone or with other processes."""
        with self.followed(*others):
            return self.estimator.fit_split(
                self.data,
                self.parts["train"],
                self.parts["val"],
                checkpoint=checkpoint,
                group=group,
                check_memory=self.check_memory,
            )


def prepare(
    kind: type[Estimator] | None,
    name: str,
    choice: TrainingChoice,
    reading: Reading,
    machine: TrainingMachine,
    **parameters: Any,
) -> Job:
    """A training that needs no labels or, where no estimator is named, of a classifier, checked."""
    data = inputs.open_data(name, machine.data_dir, reading)
    if kind is None:
        require_labels(data)
        kind, learned, parts = CLASSIFIERS[data.task], data, inputs.roles(data)
    else:
        if not data.single_graph:
            raise InputError(
                f"{data.name}: holds many graphs, and this takes one; `vepm train` shows "
                "communities inside labelled graphs"
            )
        learned, parts = unlabelled(data), dict.fromkeys(("train", "val", "test"), NONE)
    config = inputs.settings(data, choice.preset, choice.config, choice.pairs)
    estimator = kind(config=config, random_state=choice.seed, device=machine.device, **parameters)
    inputs.check_model(learned, estimator.settings(), machine.device)
    paths = inputs.given_paths(name, machine.data_dir, choice.config)
    return Job(data, parts, estimator, paths, not machine.no_memory_check)


def number_or_auto(text: str | None) -> int | str | None:
    """A number of communities as it was given, or ``"auto"``."""
    if text is None or text == "auto":
        return text
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise InputError(f"--communities {text}: give a number of at least 1, or auto")
    return int(text)


def peers(job: Job, names: str) -> list[Baseline]:
    """The baselines to run on the same labels, checked."""
    found = [inputs.chosen_baseline(name, job.data, job.estimator.device) for name in listed(names)]
    if found:
        inputs.own_split(job.data, job.parts)
    return found


def train(
    job: Job, folder: Path, overwrite: bool, peers: list[Baseline], log: str | None
) -> dict[str, Any] | None:
    """Train and write the run folder; gives its metrics.

    Under torchrun all processes train one model; the first writes, and the others give None.
    """
    if log is not None:
        outputs.check_log(log)
    board = None if log is None else outputs.TensorBoardLog(folder / outputs.EVENTS)
    with process_group(job.estimator.device) as group:
        if not group.leads:
            with folders.how_to_continue(lambda: folders.continuation(folder)):
                job.fit(folder / folders.CHECKPOINT, group=group)
            return None
        logging = contextlib.nullcontext() if board is None else contextlib.closing(board)
        with folders.run_folder(folder, overwrite, job.inputs) as checkpoint, logging:
            fitted = job.fit(checkpoint, *(() if board is None else (board,)), group=group)
            # Those known from before the run was stopped are kept.
            known = read_json(folder / folders.METRICS, required=False).get("baselines", {})
            scores = {peer.name: known.get(peer.name) or _score(job, peer) for peer in peers}
            extra = {"baselines": scores, "command": folders.command_line()}
            metrics = write_run(folder, job.data, fitted, dict(job.parts), extra)
            write_report(folder)
            if board is not None:
                board.add_figures(folder / "figures")
    return metrics


def _score(job: Job, peer: Baseline) -> dict[str, Any]:
    found = peer(job.data, inputs.own_split(job.data, job.parts), job.seed)
    measures = {f"test_{name}": value for name, value in found.measures.items()}
    return {"test_accuracy": found.test_accuracy, **measures}


def predict(
    run: Path, name: str, samples: int | None, output: Path, reading: Reading, machine: Machine
) -> dict[str, Any]:
    """Write predictions as CSV; gives what there is to say about them."""
    given = inputs.given_paths(name, machine.data_dir)
    folders.check_output(output, (*given, *folders.RUN.found(run)))
    model = load_classifier(run, machine.device)
    card = model.card_
    known = {"class_names": card.class_names, "feature_names": card.feature_names}
    data = inputs.open_data(name, machine.data_dir, reading, **known)
    if data.task != card.task:
        raise InputError(f"{name}: labels {data.task}s, the model in {run} labels {card.task}s")
    probabilities = model.predict_proba(data, samples)
    outputs.write_predictions(output, data, card.class_names, probabilities)
    found = Counter(card.class_names[i] for i in probabilities.argmax(1))
    return {
        "output": str(output),
        "task": card.task,
        "n": len(probabilities),
        "predicted": {name: found[name] for name in card.class_names},
        "mean_confidence": float(probabilities.max(1).mean()),
    }


def find_communities(
    job: Job, folder: Path, overwrite: bool, truth: Bools | None, peers: list[str]
) -> dict[str, Any]:
    """Train without labels and write the run folder; gives its metrics."""
    detector = job.estimator
    assert isinstance(detector, CommunityDetector)
    with folders.run_folder(folder, overwrite, job.inputs) as checkpoint:
        fitted = replace(job, data=unlabelled(job.data)).fit(checkpoint)
        explained = detector.explain(job.data)
        found = detector.communities_behind(explained)
        tables = {"vepm": found.overlapping} | _peer_communities(job, found.soft.shape[1], peers)
        extra = {
            "communities": {name: _judge(job, table, truth) for name, table in tables.items()},
            "command": folders.command_line(),
        }
        metrics = write_run(folder, job.data, fitted, dict(job.parts), extra, explained)
        outputs.write_communities(folder, job.data, found, explained)
        write_report(folder)
    return metrics


def _peer_communities(job: Job, count: int, peers: list[str]) -> dict[str, Bools]:
    inputs.say_unweighted(job.data, peers)
    graph, seed = job.data.graphs[0], job.seed
    edges = graph.edge_index.numpy()
    return {name: DETECTORS[name](edges, graph.num_nodes, count, seed) for name in peers}


def _judge(job: Job, found: Bools, truth: Bools | None) -> dict[str, float]:
    scores = {} if truth is None else compare(found, truth)
    used = int(found.any(0).sum())
    edges = job.data.graphs[0].edge_index.numpy()
    return {"communities": used, "modularity": modularity(found, edges), **scores}


def truth_for(job: Job, file: Path | None) -> Bools | None:
    """Communities to compare with: those of a file, or else of the data themselves."""
    return known_communities(job.data) if file is None else read_cover(file, job.data.item_names)


def community_baselines(names: str) -> list[str]:
    """Baselines by name, each there to be run."""
    found = listed(names)
    for name in found:
        if name not in DETECTORS:
            raise InputError(f"no baseline '{name}'; there are {', '.join(DETECTORS)}")
    if "leiden" in found:
        require_leiden()
    return found


def find_links(
    job: Job, folder: Path, overwrite: bool, model: Path | None, pairs: Path | None, top: int
) -> dict[str, Any]:
    """Train, or use a model, and write what it says about links; gives the metrics."""
    asked = None if pairs is None else outputs.read_pairs(pairs, job.data)
    given = (*job.inputs, *(path for path in (model, pairs) if path is not None))
    with folders.run_folder(folder, overwrite, given) as checkpoint:
        predictor = _link_predictor(job, model, checkpoint)
        outputs.write_links(folder / "missing.csv", predictor.missing_links(job.data, top))
        outputs.write_links(folder / "edges.csv", predictor.surprising_edges(job.data))
        if asked is not None:
            outputs.write_links(folder / "pairs.csv", predictor.explain_pairs(asked, job.data))
        predictor.save(folder)
        metrics = for_json(_link_metrics(job, predictor))
        write_text(folder / folders.METRICS, json.dumps(metrics, indent=1))
    return metrics


def _link_predictor(job: Job, model: Path | None, checkpoint: Path) -> LinkPredictor:
    if model is not None:
        return LinkPredictor.load(model, job.estimator.device)
    predictor = job.estimator
    assert isinstance(predictor, LinkPredictor)
    with job.followed():
        return predictor.fit(job.data, checkpoint=checkpoint, check_memory=job.check_memory)


def _link_metrics(job: Job, predictor: LinkPredictor) -> dict[str, Any]:
    history = getattr(predictor, "history_", [])
    return {
        "dataset": job.data.name,
        "source": job.data.source,
        "task": "links",
        "seed": predictor.card_.seed,
        **predictor.scores_,
        "epochs": len(history),
        "seconds": sum(row["seconds"] for row in history),
        **peak_memory(),
        "versions": describe_machine(),
        "warnings": [],
        "command": folders.command_line(),
    }
