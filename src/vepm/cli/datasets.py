"""vepm datasets: what can be loaded, and from where."""

from pathlib import Path

from rich.table import Column, Table

from vepm import console
from vepm.cli import options


@options.command()
def datasets(data_dir: Path | None = None, as_json: bool = False) -> None:
    """What can be loaded, and from where."""
    from vepm.data.registry import RECIPES
    from vepm.data.registry import datasets as known

    found = known(data_dir)
    if as_json:
        console.print_json([vars(info) for info in found])
        return
    table = Table(Column("name", no_wrap=True), "task", "here now", "source", "what it is")
    for info in found:
        here = "yes" if info.available else "no"
        table.add_row(info.name, info.task, here, info.source, info.description)
    console.out.print(table)
    console.print_line(
        "Your own: a folder with edges.csv and nodes.csv, or a .graphml, .npz or "
        ".edgelist file.\nGenerated, of any size:"
    )
    for name, (_, settings) in RECIPES.items():
        console.print_line(f"  {name}:NAME=VALUE,... with {', '.join(settings)}")
