"""A model card for every benchmark that has results."""

from goals import VEPM
from headlines import MISSING, table
from results import grid
from vepm.data import datasets
from vepm.training.config import tuned_for

NODES = {"Cora": "Cora", "Citeseer": "CiteSeer", "Pubmed": "PubMed"}
GRAPHS = {
    "MUTAG": "MUTAG",
    "NCI1": "NCI1",
    "IMDB-B": "IMDB-BINARY",
    "IMDB-M": "IMDB-MULTI",
    "PTC": "PTC",
    "PROTEINS": "PROTEINS",
    "RDT-B": "REDDIT-BINARY",
}
RIVALS = {"table-1": ("GCN-64", "GAT"), "table-2": ("GIN",)}


def cards() -> str:
    """One section per benchmark."""
    nodes = [_card("table-1", column, name) for column, name in NODES.items()]
    graphs = [_card("table-2", column, name) for column, name in GRAPHS.items()]
    return "\n\n".join(nodes + graphs)


def _card(experiment: str, column: str, dataset: str) -> str:
    numbers = table(experiment)
    about = {info.name: info.description for info in datasets()}[dataset]
    task = "node" if experiment == "table-1" else "graph"
    rows = {
        "Data": f"{about}; `vepm datasets` says where from",
        "Task": f"{task} classification",
        "Settings": _settings(dataset),
        "Accuracy": _number(numbers, VEPM, column),
        **{row: _number(numbers, row, column) for row in RIVALS[experiment]},
        "Calibration error": _number(table("calibration"), "VEPM, 16 draws", dataset),
        "Epoch chosen by": numbers.get((VEPM, column), {}).get("rule", MISSING),
        "Command": f"`vepm reproduce {experiment} --rows VEPM --datasets {column}`",
        "Not for": "graphs other than this one: the settings were chosen on its validation labels",
    }
    return f"### {dataset}\n\n{grid(['', ''], rows.items())}"


def _settings(dataset: str) -> str:
    found = tuned_for().get((dataset, "learned"))
    if not found:
        return "preset `tuned`"
    changes = ", ".join(f"`{name} = {value}`" for name, value in found.items())
    return f"preset `tuned`, which has on this set {changes}"


def _number(numbers: dict[tuple[str, str], dict[str, str]], row: str, column: str) -> str:
    line = numbers.get((row, column))
    if line is None:
        return MISSING
    return (
        f"{float(line['mean']):.1f} ± {float(line['standard_error']):.1f} per cent, n {line['n']}"
    )
