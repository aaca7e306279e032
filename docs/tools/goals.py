"""What the project set out to reach, beside what the committed result files say."""

import json
import math
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

from headlines import MISSING
from results import ROOT, grid
from tools.search_log import standings
from tools.sweep import spread
from vepm.evaluation import Summary
from vepm.files import read_toml
from vepm.paper.experiments import METRICS, catalogue
from vepm.paper.plan import squares
from vepm.paper.results import Results, gather
from vepm.paper.runner import Ended
from vepm.report.paper_tables import number
from vepm.training.config import tuned_for

VEPM = "VEPM (this work)"
NODE_BARS = {"Cora": 84.3, "Citeseer": 72.5, "Pubmed": 82.4}
RIVALS = ("GCN", "GCN-64", "GAT", "DisenGCN")
GRAPH_SETS = ("IMDB-B", "IMDB-M", "MUTAG", "PTC", "NCI1", "PROTEINS", "RDT-B")


class Goal(NamedTuple):
    """A line of the table: what was aimed at, what was found, and whether that is enough."""

    aim: str
    found: str
    reached: bool | None


def goals() -> str:
    """Every aim with what was measured."""
    words = {True: "yes", False: "**no**", None: MISSING}
    every = (*_nodes(), *_graph_sets(), *_partitions(), *_few_labels(), *_honesty())
    rows = [[goal.aim, goal.found, words[goal.reached]] for goal in every]
    return grid(["aim", "measured", "reached"], rows)


def sweeps(folder: str) -> str:
    """What each search tried, and the best validation accuracy it found."""
    rows = [_sweep(path.stem, log) for path, log in _searches(folder)]
    return grid(["search", "dataset", "settings", "runs", "to improve on", "best", "where"], rows)


def _searches(folder: str) -> list[tuple[Path, Path]]:
    """What each search draws from, and its log."""
    paths = sorted((ROOT / folder).glob("*.toml"))
    return [(path, log) for path in paths if (log := path.with_suffix(".jsonl")).exists()]


def _read_log(log: Path) -> list[Any]:
    return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]


def partitions(folder: str) -> str:
    """How the settings of each search did by the partition they had, best and on average."""
    rows = [
        _by_partition(path.stem, log)
        for path, log in _searches(folder)
        if "random" in read_toml(path)["space"].get("partition", ())
    ]
    return grid(["search", "learned", "even", "random"], rows)


def tuned() -> str:
    """What the preset changes on each dataset."""
    rows = []
    for (dataset, partition), changes in tuned_for().items():
        words = ", ".join(f"`{name} = {json.dumps(value)}`" for name, value in changes.items())
        rows.append([dataset, partition, words])
    return grid(["dataset", "partition", "changes"], rows)


def _by_partition(name: str, log: Path) -> list[str]:
    _, *rows = _read_log(log)
    words = [name]
    for partition in ("learned", "even", "random"):
        own = [row for row in rows if row["changes"].get("partition") == partition]
        scores = [100 * one.val_accuracy for one in standings(own)]
        error = stdev(scores) / math.sqrt(len(scores))
        words.append(f"{fmean(scores):.1f} ± {error:.1f} of {len(scores)}, best {max(scores):.1f}")
    return words


def _sweep(name: str, log: Path) -> list[str]:
    head, *rows = _read_log(log)
    found = standings(rows)
    base = next((one for one in found if one.number == 0), None)
    best = f"{100 * found[0].val_accuracy:.1f}"
    if not math.isnan(error := spread(found[0])):
        best += f" ± {100 * error:.1f}"
    before = f"{100 * base.val_accuracy:.1f}" if base else "-"
    where = head["machine"].get("gpu") or "CPU"
    datasets = ", ".join(head["sweep"]["datasets"])
    different = str(len({row["number"] for row in rows}))
    return [name, datasets, different, str(len(rows)), before, best, where]


@cache
def _results(name: str) -> Results:
    experiment = catalogue()[name]
    return gather(experiment, squares(experiment, False), ROOT / "results", Ended(), False)


def _summary(name: str, row: str, column: str, rule: str | None = None) -> Summary | None:
    value = _results(name).at(row, column)
    if value is None or not value.summaries:
        return None
    return next((s for s in value.summaries if rule in (None, s.rule)), None)


def _paper(name: str, column: str) -> float:
    value = _results(name).at(VEPM, column)
    assert value is not None
    return float(value.printed.value or 0)


def _percent(summary: Summary | None) -> str:
    if summary is None:
        return MISSING
    return f"{100 * summary.mean:.1f} ± {100 * summary.standard_error:.1f} (n {summary.n})"


def _above(ours: Summary | None, theirs: Summary | None) -> bool | None:
    """Whether ours is above by more than a standard error of the difference."""
    if ours is None or theirs is None:
        return None
    error = (ours.standard_error**2 + theirs.standard_error**2) ** 0.5
    return ours.mean - theirs.mean > error


def _all(answers: list[bool | None]) -> bool | None:
    return False if False in answers else None if None in answers else True


def _nodes() -> Iterator[Goal]:
    for column, bar in NODE_BARS.items():
        ours = _summary("table-1", VEPM, column)
        reached = None if ours is None else round(100 * ours.mean, 1) >= bar
        yield Goal(f"{column}, 20 seeds: at least {bar}", _percent(ours), reached)
        rivals = {row: _summary("table-1", row, column) for row in RIVALS}
        found = ", ".join(f"{row} {_percent(rival)}" for row, rival in rivals.items())
        beaten = _all([_above(ours, rival) for rival in rivals.values()])
        yield Goal(f"{column}: above {', '.join(RIVALS)} by more than a s.e.", found, beaten)


def _graph_sets() -> Iterator[Goal]:
    for column in GRAPH_SETS:
        ours, gin = (_summary("table-2", row, column, "gin") for row in (VEPM, "GIN"))
        most, bar = _summary("table-2", VEPM, column, "fold-max"), _paper("table-2", column)
        reached = None if ours is None else round(100 * ours.mean, 1) >= bar
        found = f"{_percent(ours)}; by `fold-max` {_percent(most)}"
        yield Goal(f"{column}, rule `gin`: at least {bar}", found, reached)
        higher = None if ours is None or gin is None else ours.mean > gin.mean
        found = f"{_percent(ours)}; GIN {_percent(gin)}"
        yield Goal(f"{column}, rule `gin`: above our GIN", found, higher)
    for column in ("IMDB-B", "IMDB-M", "MUTAG", "NCI1", "PROTEINS"):
        ours, bar = _summary("table-3", VEPM, column, "capsgnn"), _paper("table-3", column)
        reached = None if ours is None else round(100 * ours.mean, 1) >= bar
        yield Goal(f"{column}, rule `capsgnn`: at least {bar}", _percent(ours), reached)


def _partitions() -> Iterator[Goal]:
    for column in ("IMDB-B", "IMDB-M", "MUTAG", "PTC", "PROTEINS"):
        found = [
            _summary("table-4", row, column)
            for row in ("VEPM", "VEPM (even partition)", "VEPM (random partition)")
        ]
        learned, even, random = found
        words = ", ".join(
            f"{how} {_percent(s)}"
            for how, s in zip(("learned", "even", "random"), found, strict=True)
        )
        reached = _all([_above(learned, even), _above(even, random)])
        yield Goal(f"{column}: learned above even above random", words, reached)
    rows = {row: _summary("partition-nodes", row, "Cora") for row in ("learned", "even", "random")}
    words = ", ".join(f"{row} {_percent(summary)}" for row, summary in rows.items())
    above = _above(rows["learned"], rows["random"])
    yield Goal("Cora: learned above random", words, above)
    below = _above(rows["even"], rows["learned"])
    yield Goal("Cora: learned not below even", words, None if below is None else not below)


def _few_labels() -> Iterator[Goal]:
    rates = [column.name for column in catalogue()["figure-2"].columns]
    for dataset, rivals in {
        "Cora": ("GCN", "GAT", "DisenGCN"),
        "MUTAG": ("GIN", "FactorGCN"),
    }.items():
        leads: dict[str, list[float | None]] = {}
        for rival in rivals:
            pairs = [
                [_summary("figure-2", f"{dataset}, {row}", rate) for row in ("VEPM", rival)]
                for rate in rates
            ]
            leads[rival] = [None if None in pair else _lead(*pair) for pair in pairs]
        known = [lead for row in leads.values() for lead in row]
        answers = [None if lead is None else lead > 0 for lead in known]
        words = "; ".join(f"over {rival} {_leads(row)}" for rival, row in leads.items())
        yield Goal(
            f"{dataset}: leads at every keep rate ({', '.join(rates)})", words, _all(answers)
        )
        first, last = leads[rivals[0]][0], leads[rivals[0]][-1]
        wider = None if first is None or last is None else first > max(last, 0)
        aim = f"{dataset}: there is a lead over {rivals[0]}, larger at the lowest rate"
        yield Goal(aim, _leads([first, last]), wider)


def _lead(ours: Any, theirs: Any) -> float:
    return float(100 * (ours.mean - theirs.mean))


def _leads(row: list[float | None]) -> str:
    return ", ".join("?" if lead is None else f"{lead:+.1f}" for lead in row)


def _honesty() -> Iterator[Goal]:
    before, after = (_summary("nmi", f"after {w}", "Cora") for w in ("pretraining", "finetuning"))
    words = [
        MISSING if s is None else number(s, METRICS["nmi_pretrained"]) for s in (before, after)
    ]
    aim = "NMI on Cora after pretraining above 0.32"
    yield Goal(aim, words[0], None if before is None else before.mean > 0.32)
    higher = None if before is None or after is None else after.mean > before.mean
    yield Goal("NMI on Cora higher after finetuning", f"{words[0]}, then {words[1]}", higher)
    for column in ("Cora", "CiteSeer", "PubMed"):
        drawn, mean, gcn, fitted = (
            _summary("calibration", row, column)
            for row in ("VEPM, 16 draws", "VEPM, posterior mean", "GCN", "GCN, fitted")
        )
        words = [_percent(summary) for summary in (drawn, mean, gcn, fitted)]
        others = (mean, gcn, fitted)
        lower = _all([None if drawn is None or s is None else drawn.mean < s.mean for s in others])
        found = f"draws {words[0]}, mean {words[1]}, GCN {words[2]}, fitted {words[3]}"
        aim = f"{column}: calibration error of draws below the mean's and GCN's, fitted or not"
        yield Goal(aim, found, lower)
