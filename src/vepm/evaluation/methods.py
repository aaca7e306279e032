"""What is measured, VEPM and every baseline alike, and running it over splits and seeds."""

import functools
import itertools
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from vepm import training
from vepm.data import Dataset
from vepm.data.edges import canonical_kinds
from vepm.evaluation.executor import HERE, Compute, run_jobs
from vepm.evaluation.results import RunResult
from vepm.evaluation.splits import Split
from vepm.runs.metrics import accuracy, agreement_with_kinds
from vepm.tasks import TASKS
from vepm.training import Config, Fitted, Run

COLUMNS = ("val_accuracy", "val_loss", "test_accuracy", "loss")

Cell = tuple[Split, int]
"""A split and a seed."""
Method = Callable[[Dataset, Split, int], RunResult]
"""Anything that can be measured: it trains on ``split.train`` with a seed, and scores, but never
learns from, ``split.test``."""
Progress = Callable[[int, int, RunResult], None]


@dataclass(frozen=True)
class VEPMMethod:
    """Train VEPM with given settings; accuracies are those of the posterior mean."""

    config: Config
    device: str = "auto"

    def __call__(self, dataset: Dataset, split: Split, seed: int) -> RunResult:
        """Train on ``split.train``, choose on ``split.val``, watch ``split.test``."""
        return self.train_batch(dataset, [(split, seed)])[0]

    def batches(self, dataset: Dataset, cells: Sequence[Cell], most: int) -> list[list[int]]:
        """Indices of the runs of each batch; ``most`` of 0 takes as many as pays."""
        most = most or training.most_runs_at_once(dataset, self.config, self.device)
        return training.group_runs(dataset, self.config, _runs(cells), most)

    def train_batch(self, dataset: Dataset, cells: Sequence[Cell]) -> list[RunResult]:
        """Train the runs of one batch; each takes an equal share of the time."""
        started, runs = time.perf_counter(), _runs(cells)
        fitted = training.fit_many(dataset, self.config, runs, self.device, calibrated=False)
        seconds = (time.perf_counter() - started) / len(cells)
        pairs = zip(cells, fitted, strict=True)
        return [result_of(one, dataset, split, seconds) for (split, _), one in pairs]


def _runs(cells: Sequence[Cell]) -> list[Run]:
    return [Run(split.train, split.val, split.test, seed) for split, seed in cells]


def result_of(fitted: Fitted, dataset: Dataset, split: Split, seconds: float) -> RunResult:
    """The result of a training of VEPM on a split.

    Its measures are those of the test part at the posterior mean, its accuracy by draws, and how
    well the parts of the edges match their kinds, where the data know them and the model does not.
    """
    card, y = fitted.card, dataset.labels[split.test]
    found = training.probabilities(fitted.model, fitted.source).cpu()[split.test]
    measures = TASKS[dataset.task].measures(found, y)
    if samples := card.config.training.num_samples:
        drawn = training.probabilities(fitted.model, fitted.source, samples, card.seed)
        measures["sampled_accuracy"] = accuracy(drawn.cpu()[split.test], y)
    if dataset.kind_names and card.config.model.partition == "learned":
        parts, graph = training.explain(fitted.model, fitted.source), dataset.graphs[0]
        # The split has both directions of every edge, a directed graph perhaps one.
        kinds = canonical_kinds(parts.edge_index.cpu(), graph.edge_index, graph.edge_kind)
        found_kinds = agreement_with_kinds(parts.edge_weight.cpu(), kinds)
        measures["parts_by_kind"] = found_kinds.mutual_information
        measures["kind_ranking"] = found_kinds.ranking
    curve = {n: [row[n] for row in fitted.finetuned if n in row] for n in COLUMNS}
    curve["train_loss"] = curve.pop("loss")
    named = ("vepm", dataset.name, split.name, card.seed)
    return RunResult.from_curve(*named, curve, seconds, card.config.to_dict(), measures)


def evaluate(
    method: Method,
    dataset: Dataset,
    splits: Iterable[Split],
    seeds: Iterable[int] = (0,),
    progress: Progress | None = None,
    compute: Compute = HERE,
) -> list[RunResult]:
    """Run a method on every split with every seed.

    Runs in worker processes give the same results as runs one after the other on as many
    threads; runs trained as one batch draw other random numbers of the same distribution.

    Args:
        method: what to measure.
        dataset: what to measure it on.
        splits: for example those of :func:`gin_folds`; outermost in the results.
        seeds: of the method; the splits stay the same.
        progress: called after each run with how many are done, how many there are, and the result.
        compute: how many at a time; by default one after the other in this process.

    Example:
        >>> from vepm.baselines import baseline
        >>> from vepm.data import planted_graph
        >>> from vepm.evaluation import evaluate, public_split, summarise
        >>> dataset = planted_graph(200, 2, seed=0)
        >>> results = evaluate(baseline("gcn"), dataset, [public_split(dataset)], seeds=range(3))
        >>> summarise(results, "validation").n
        3
    """
    cells = list(itertools.product(splits, seeds))
    return evaluate_cells(method, dataset, cells, progress, compute)


def evaluate_cells(
    method: Method,
    dataset: Dataset,
    cells: Sequence[Cell],
    progress: Progress | None = None,
    compute: Compute = HERE,
) -> list[RunResult]:
    """:func:`evaluate` for given pairs of a split and a seed."""
    batches = [[i] for i in range(len(cells))]
    if isinstance(method, VEPMMethod):
        batches = method.batches(dataset, cells, compute.runs_at_once)
    done = 0

    def keep(_: int, results: list[RunResult]) -> list[RunResult]:
        nonlocal done
        for result in results:
            done += 1
            if progress is not None:
                progress(done, len(cells), result)
        return results

    work = functools.partial(_run_batch, method, dataset)
    kept = run_jobs(work, [[cells[i] for i in batch] for batch in batches], compute, keep)
    order = [i for batch in batches for i in batch]
    found = dict(zip(order, itertools.chain(*kept), strict=True))
    return [found[i] for i in range(len(cells))]


def _run_batch(method: Method, dataset: Dataset, cells: Sequence[Cell]) -> list[RunResult]:
    if isinstance(method, VEPMMethod):
        return method.train_batch(dataset, cells)
    return [method(dataset, split, seed) for split, seed in cells]
