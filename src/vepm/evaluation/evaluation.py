"""Running a method over splits and seeds."""

from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import Protocol, runtime_checkable

from vepm.data.dataset import Dataset
from vepm.errors import InputError
from vepm.evaluation.results import Curve, RunResult
from vepm.evaluation.rules import RULES, Summary, joined
from vepm.evaluation.splits import Split


class Method(Protocol):
    """Anything that can be measured: VEPM and every baseline alike."""

    def __call__(self, dataset: Dataset, split: Split, seed: int) -> RunResult:
        """Train on ``split.train``; score, and never look at, ``split.test``."""
        ...


Cell = tuple[Split, int]
"""A split and a seed."""


@runtime_checkable
class Stackable(Method, Protocol):
    """A method that can train several runs as one program."""

    def bundles(self, dataset: Dataset, cells: Sequence[Cell], most: int) -> list[list[int]]:
        """Numbers of the runs to train together, at most so many; 0 for as many as pays."""
        ...

    def together(self, dataset: Dataset, cells: Sequence[Cell]) -> list[RunResult]:
        """Train the runs of one bundle."""
        ...


Progress = Callable[[int, int, RunResult], None]


def evaluate(
    method: Method,
    dataset: Dataset,
    splits: Iterable[Split],
    seeds: Iterable[int] = (0,),
    progress: Progress | None = None,
) -> list[RunResult]:
    """Run a method on every split with every seed.

    Args:
        method: what to measure.
        dataset: what to measure it on.
        splits: for example those of :func:`gin_folds`.
        seeds: of the method; the splits stay the same.
        progress: called after each run with how many are done, how many there are, and the result.

    Returns:
        The results, splits outermost.

    Example:
        >>> from vepm.baselines import baseline
        >>> from vepm.data import planted_graph
        >>> from vepm.evaluation import evaluate, public_split, summarise
        >>> dataset = planted_graph(200, 2, seed=0)
        >>> results = evaluate(baseline("gcn"), dataset, [public_split(dataset)], seeds=range(3))
        >>> summarise(results, "validation").n
        3
    """
    cells = list(product(splits, seeds))
    results: list[RunResult] = []
    for split, seed in cells:
        results.append(method(dataset, split, seed))
        if progress is not None:
            progress(len(results), len(cells), results[-1])
    return results


def summarise(results: Sequence[RunResult], rule: str) -> Summary:
    """The mean and spread of runs by a rule of :data:`RULES`; every run is one value.

    A rule that chooses for all folds at once does so for each seed: a number from several seeds
    tells of the same protocol as one from a single seed, only more precisely.

    Args:
        results: runs of one method on one dataset.
        rule: name of the selection rule.

    Raises:
        InputError: if there is no such rule, or the runs lack what it needs.
    """
    if rule not in RULES:
        raise InputError(f"no selection rule '{rule}'; there are {', '.join(RULES)}")
    if not results:
        raise InputError("no runs to summarise")
    by_seed: dict[int, list[Curve]] = {}
    for result in results:
        by_seed.setdefault(result.seed, []).append(result.curve)
    return joined([RULES[rule](curves) for curves in by_seed.values()])
