"""The command that measures speed and memory."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from vepm import console
from vepm.cli.options import AsJson, DataDir, Device
from vepm.errors import InputError
from vepm.files import write_text

QUICK_EDGES = (4000, 16_000)


def bench(
    quick: Annotated[
        bool, typer.Option("--quick", help="Small graphs and few repeats, within half a minute.")
    ] = False,
    sizes: Annotated[
        str, typer.Option(help="Directed edges of the generated graphs, with commas between.")
    ] = "100000,1000000,10000000",
    repeats: Annotated[int, typer.Option(min=1, help="Rounds of turns at each step.")] = 10,
    threads: Annotated[
        int, typer.Option(min=0, help="Threads of the CPU; 0 for one per core.")
    ] = 0,
    output: Annotated[Path, typer.Option(help="Folder for bench.json and scaling.png.")] = Path(
        "runs/bench"
    ),
    device: Device = "auto",
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Time and memory of a training step beside the literal construction and PyG's GAT.

    Examples:

        vepm bench --quick

        vepm bench --sizes 100000,1000000 --output runs/bench
    """
    from vepm.bench.figure import draw_scaling
    from vepm.bench.runner import Plan, run
    from vepm.bench.table import as_table
    from vepm.training import pick_device

    plan = Plan(
        device=pick_device(device).type,
        datasets=() if quick else ("Cora", "PubMed"),
        edges=QUICK_EDGES if quick else _numbers(sizes),
        repeats=min(repeats, 3) if quick else repeats,
        threads=threads,
        isolate=not quick,
        data_dir=data_dir,
    )

    def keep(report: dict[str, Any]) -> None:
        write_text(output / "bench.json", json.dumps(report, indent=1, default=str))

    with console.err.status("measuring") as status:
        report = run(plan, status.update, keep)
    keep(report)
    draw_scaling(report, output / "scaling.png")
    if as_json:
        print(json.dumps(report, default=str))
        return
    console.out.print(as_table(report))
    console.out.print(f"look: {output}", highlight=False)


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(float(part)) for part in text.split(","))
    except ValueError:
        raise InputError(f"sizes: {text!r} is no list of numbers; give 100000,1000000") from None
