"""vepm bench: time and memory of a training step beside PyG's GCN and GAT."""

import json
from pathlib import Path
from typing import Any

from rich.table import Table

from vepm import console
from vepm.cli import options
from vepm.errors import InputError
from vepm.files import write_text

BENCHMARKS = ("Cora", "PubMed")
SIZES = "100000,1000000,10000000"
QUICK_SIZES = "4000,16000"
FEWEST_EDGES = 4000


@options.command()
def bench(
    names: list[str] | None = None,
    quick: bool = False,
    sizes: str | None = None,
    repeats: int = 10,
    threads: int = 0,
    output: Path = Path("runs/bench"),
    device: str = "auto",
    data_dir: Path | None = None,
    as_json: bool = False,
) -> None:
    """Time and memory of a training step beside PyG's GCN and GAT."""
    from vepm.bench import Plan, run
    from vepm.data import datasets
    from vepm.training import pick_device

    at_hand = {info.name for info in datasets(data_dir) if info.available}
    usual = () if names or quick else tuple(name for name in BENCHMARKS if name in at_hand)
    generated = QUICK_SIZES if quick else "" if names else SIZES
    plan = Plan(
        device=pick_device(device).type,
        datasets=names or usual,
        edges=_numbers(generated if sizes is None else sizes),
        repeats=min(repeats, 3) if quick else repeats,
        threads=threads,
        data_dir=data_dir,
    )
    with console.err.status("measuring") as status:
        for report in run(plan):
            write_text(output / "bench.json", json.dumps(report, indent=1))
            for last in report["rows"][-1:]:
                status.update(f"measuring; done: {last['graph']}, {last['step']}, {last['method']}")
    if as_json:
        print(json.dumps(report))
        return
    console.out.print(as_table(report))
    console.out.print(f"see: {output}", highlight=False)


def _numbers(text: str) -> tuple[int, ...]:
    try:
        found = tuple(int(float(part)) for part in text.split(",")) if text else ()
    except ValueError:
        raise InputError(f"sizes: {text!r} is not a list of numbers; give 100000,1000000") from None
    if small := [number for number in found if number < FEWEST_EDGES]:
        raise InputError(f"sizes: {small[0]} edges are too few; give {FEWEST_EDGES} or more")
    return found


def as_table(report: dict[str, Any]) -> Table:
    """Every method with its ratio to ours; above one, ours is faster or smaller."""
    table = Table(title=report["machine"]["device"])
    for name in ("graph", "edges", "step", "method", "ms", "over ours", "peak MiB", "over ours"):
        table.add_column(name, justify="left" if name in ("graph", "step", "method") else "right")
    against = {(r["graph"], r["step"], r["against"]): r for r in report["ratios"]}
    for row in report["rows"]:
        place = (row["graph"], f"{row['edges']:,}", row["step"], row["method"])
        if "error" in row:
            table.add_row(*place, row["error"])
            continue
        ratio = against.get((row["graph"], row["step"], row["method"]), {})
        time, memory = (f"{1 / ratio[k]:.2f}x" if ratio.get(k) else "" for k in ("time", "memory"))
        peak = f"{row['peak_bytes'] / 2**20:,.0f}"
        table.add_row(*place, f"{1e3 * row['median']:,.1f}", time, peak, memory)
    return table
