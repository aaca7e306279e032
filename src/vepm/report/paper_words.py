"""How a number of ours and one of the paper's are put into words."""

from collections import Counter

from vepm.evaluation import Summary
from vepm.paper.experiments import Metric, Printed
from vepm.paper.results import NO_DATA, Results, Value

QUICK = (
    "QUICK: a few epochs on part of the data, to show that everything runs. "
    "The numbers mean nothing."
)
MARKS = "▲ ▼: above or below the paper's by more than our standard error."
SPREAD = "±: standard error of the mean (paper: as printed); sd: standard deviation; n: runs."


def heading(results: Results) -> str:
    """The title, stamped where the numbers mean nothing."""
    return results.experiment.title + (" [QUICK]" if results.quick else "")


def ours(value: Value) -> str:
    """Our mean, its standard error and the mark, or why there is none."""
    main = value.main
    if main is None:
        return f"n/a ({value.reason})" if value.reason == NO_DATA else value.reason
    text = number(main, value.metric)
    if value.verdict:
        text = f"{value.verdict} ({text})"
    partial = f" [{main.n} of {value.planned} runs]" if main.n < value.planned else ""
    return f"{text} {value.mark}".rstrip() + partial


def number(summary: Summary, metric: Metric) -> str:
    """A mean with its standard error, if there is one."""
    mean = metric.text(summary.mean)
    return mean if summary.n < 2 else f"{mean} ± {metric.text(summary.standard_error)}"


def spread(value: Value) -> str:
    """Standard deviation and number of runs."""
    main = value.main
    if main is None or value.metric.exact:
        return ""
    return f"n {main.n}" if main.n < 2 else f"sd {value.metric.text(main.std)}, n {main.n}"


def theirs(printed: Printed, exact: bool = False) -> str:
    """The paper's number as it prints it; whole where it is a count."""
    if not isinstance(printed.value, float):
        return printed.value or "-"
    written = str(printed.value)
    if exact or printed.value >= 100:
        written = written.removesuffix(".0")
    return written if printed.spread is None else f"{written} ± {printed.spread}"


def footnotes(results: Results) -> list[str]:
    """What a reader of the numbers must know: rules, runs, spread, marks and notes."""
    lines = [QUICK] if results.quick else []
    measured = [value for value in results.values if value.main is not None]
    for rule, description in _rules(measured).items():
        lines.append(f"Rule {rule}: {description}.")
    lines += _runs([value for value in measured if not value.metric.exact])
    if any(not value.metric.exact for value in measured):
        lines.append(SPREAD)
    if any(isinstance(value.printed.value, float) for value in measured):
        lines.append(MARKS)
    if any(value.verdict for value in measured):
        lines.append("≠: our number does not bear out the paper's YES or NO.")
    if any(value.quoted for value in results.values):
        lines.append("quoted: the paper's word; not rerun here.")
    for kind in dict.fromkeys(value.pretraining for value in measured if value.pretraining):
        seen = "all graphs, without labels" if kind == "transductive" else "training graphs only"
        lines.append(f"VEPM's pretraining was {kind}: it saw {seen}.")
    return [*lines, *_commits(measured), *results.experiment.notes]


def _rules(measured: list[Value]) -> dict[str, str]:
    mains = [value.main for value in measured if value.main is not None]
    return {main.rule: main.description for main in mains if main.epochs}


def _runs(measured: list[Value]) -> list[str]:
    kinds = {(v.splits, v.seeds) for v in measured}
    counts = [f"{_count(splits, 'split')} x {_count(seeds, 'seed')}" for splits, seeds in kinds]
    return [f"Runs per number: {', '.join(sorted(counts))}."] if counts else []


def _commits(measured: list[Value]) -> list[str]:
    """What code the runs are of."""
    total: Counter[str | None] = Counter()
    for value in measured:
        total.update(value.commits)
    named = [f"{(name or 'unknown')[:12]} ({_count(n, 'run')})" for name, n in total.most_common()]
    return [f"Commits: {', '.join(named)}."] if named else []


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")
