"""Many runs trained at once against one run alone, in one process.

Run it with ``python -m benchmarks.many_runs --data-dir data --output together.json``.
"""

import argparse
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.memory import PeakMemory
from vepm.bench import machine, time_call
from vepm.data import Dataset, load
from vepm.evaluation import gin_folds, public_split
from vepm.files import write_text
from vepm.training import Config, Fitted, Run, fit_many, pick_device, preset

WARMUP = {"pretrain_epochs": 2, "epochs": 2, "encoder_interval": 1}
CASES = ("Cora", "MUTAG")


def runs_of(dataset: Dataset, seeds: int, folds: int) -> list[Run]:
    """Seeds of the public split for a graph of labelled nodes, folds for a set of graphs."""
    if dataset.task == "node":
        split = public_split(dataset)
        return [Run(split.train, split.val, split.test, seed) for seed in range(seeds)]
    return [Run(f.train, f.val, f.test, 0) for f in gin_folds(dataset, num_folds=folds)]


def measure(
    dataset: Dataset, config: Config, runs: Sequence[Run], device: str, alone: int = 3
) -> dict[str, Any]:
    """Seconds of all runs at once over the median of some alone, all after a warm-up."""
    brief = config.replace(**WARMUP)
    fit_many(dataset, brief, runs[:1], device)
    fit_many(dataset, brief, runs, device)
    singles = [_timed(dataset, config, [run], device) for run in runs[:alone]]
    together = _timed(dataset, config, runs, device)
    one = statistics.median(row["seconds"] for row in singles)
    return {
        "dataset": dataset.name,
        "runs": len(runs),
        "alone": singles,
        "together": together,
        "ratio": together["seconds"] / one,
        "settings": config.to_dict(),
    }


def _timed(dataset: Dataset, config: Config, runs: Sequence[Run], device: str) -> dict[str, Any]:
    fitted: list[Fitted] = []
    memory = PeakMemory(device)
    seconds = time_call(
        lambda: fitted.extend(fit_many(dataset, config, runs, device)), device, repeats=1
    )
    return {
        "seconds": seconds[0],
        "peak_bytes": memory.read(),
        "epochs": [len(one.history) for one in fitted],
        "test_accuracy": [_accuracy(one) for one in fitted],
    }


def _accuracy(fitted: Fitted) -> float:
    """Test accuracy of the chosen epoch, or of the last one if there is no validation part."""
    accuracy: float = fitted.best["test_accuracy"]
    return accuracy


def main() -> None:
    """Measure, print a line per dataset and write everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("together.json"))
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--datasets", nargs="+", default=list(CASES))
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--folds", type=int, default=10)
    parser.add_argument("--epochs", type=int, help="epochs of each phase, in place of the preset's")
    parser.add_argument("--alone", type=int, default=3, help="runs timed alone")
    arguments = parser.parse_args()
    device = pick_device(arguments.device).type
    report: dict[str, Any] = {"machine": machine(device), "cases": []}
    for name in arguments.datasets:
        dataset = load(name, arguments.data_dir)
        config = preset("tuned", dataset.task)
        if arguments.epochs:
            config = config.replace(pretrain_epochs=arguments.epochs, epochs=arguments.epochs)
        runs = runs_of(dataset, arguments.seeds, arguments.folds)
        case = measure(dataset, config, runs, device, arguments.alone)
        report["cases"].append(case)
        write_text(arguments.output, json.dumps(report, indent=1))
        alone = statistics.median(row["seconds"] for row in case["alone"])
        print(
            f"{name}: {case['runs']} runs at once {case['together']['seconds']:.1f} s, "
            f"one alone {alone:.1f} s, ratio {case['ratio']:.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
