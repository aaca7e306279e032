"""vepm links: which links are missing, and how surprising each edge is."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vepm import console
from vepm.cli import options
from vepm.cli.folders import METRICS, command_line, run_folder
from vepm.errors import InputError
from vepm.escaping import for_json
from vepm.files import write_csv, write_text

if TYPE_CHECKING:
    from vepm.data import Dataset
    from vepm.estimators import LinkPredictor, Links

CHOICE = options.Choice("links")
MOST_COMMUNITIES = 3  # communities that are written beside each pair of nodes


@options.command("directed")
def links(
    data: str,
    output: Path | None = None,
    overwrite: bool = False,
    as_json: bool = False,
    top: int = 100,
    pairs: Path | None = None,
    model: Path | None = None,
    num_communities: str | None = None,
    choice: options.Choice = CHOICE,
    reading: options.Reading = options.READING,
    machine: options.Machine = options.MACHINE,
) -> None:
    """Predict links: the likeliest missing ones and how surprising each edge is, as CSV.

    A tenth of the edges is held out from training, to calibrate probabilities and to measure how
    well they rank. Each pair comes with the communities that it runs through.
    """
    from vepm.cli.jobs import number_or_auto, prepare
    from vepm.estimators import LinkPredictor

    count = number_or_auto(num_communities)
    job = prepare(LinkPredictor, data, choice, reading, machine, num_communities=count)
    folder = output or Path("runs") / f"{job.data.name}-links"
    asked = None if pairs is None else _read_pairs(pairs, job.data)
    with run_folder(folder, overwrite, (*job.inputs, model, pairs)) as checkpoint:
        if model is not None:
            predictor = LinkPredictor.load(model, machine.device)
        else:
            with job.followed():
                predictor = job.estimator.fit(
                    job.data, checkpoint=checkpoint, check_memory=job.check_memory
                )
        write_links(folder / "missing.csv", predictor.missing_links(job.data, top))
        write_links(folder / "edges.csv", predictor.surprising_edges(job.data))
        if asked is not None:
            write_links(folder / "pairs.csv", predictor.explain_pairs(asked, job.data))
        predictor.save(folder)
        metrics = for_json(_metrics(job.data, predictor))
        write_text(folder / METRICS, json.dumps(metrics, indent=1))
    console.print_result(metrics, folder, as_json, console.print_links)


def _read_pairs(path: Path, dataset: "Dataset") -> list[tuple[Any, Any]]:
    """Pairs of nodes that a graph has, one on each line: ids, or indices where it has no ids."""
    from vepm.data.tables import read_edge_list

    table, names = read_edge_list(path), set(dataset.item_names)
    pairs = list(zip(table.columns["source"], table.columns["target"], strict=True))
    for line, pair in zip(table.lines, pairs, strict=True):
        for name in pair:
            if name not in names:
                raise InputError(f"{path}, line {line}: the graph has no node '{name}'")
    return pairs if dataset.node_names else [(int(i), int(j)) for i, j in pairs]


def write_links(path: Path, links: "Links") -> None:
    """Pairs of nodes with their probability, and the communities that most of it runs through."""
    shown = range(min(MOST_COMMUNITIES, links.share.shape[1]))
    order = (-links.share).argsort(axis=1, kind="stable")[:, : len(shown)]
    headings = (f"{what}_{k + 1}" for k in shown for what in ("community", "share"))
    found = zip(links.nodes, links.probability, links.surprise, order, links.share, strict=True)
    rows = (
        [*nodes, f"{p:.6g}", f"{bits:.4f}", *(cell for k in best for cell in (k, f"{row[k]:.6f}"))]
        for nodes, p, bits, best, row in found
    )
    write_csv(path, ["source", "target", "probability", "surprise", *headings], rows)


def _metrics(dataset: "Dataset", predictor: "LinkPredictor") -> dict[str, Any]:
    from vepm.runs.metrics import describe_machine, peak_memory

    history = getattr(predictor, "history_", [])
    return {
        "dataset": dataset.name,
        "source": dataset.source,
        "task": "links",
        "seed": predictor.card_.seed,
        **predictor.scores_,
        "epochs": len(history),
        "seconds": sum(row["seconds"] for row in history),
        **peak_memory(),
        "versions": describe_machine(),
        "warnings": [],
        "command": command_line(),
    }
