"""vepm links: which links are missing, and how surprising each edge is."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vepm import console
from vepm.cli import options
from vepm.cli.folders import command_line, run_folder
from vepm.errors import InputError
from vepm.files import write_csv

if TYPE_CHECKING:
    from vepm.data import Dataset
    from vepm.estimators import Links

GIVEN = options.Given(preset="links")
MOST_COMMUNITIES = 3  # communities that are written beside each pair of nodes


@options.command("directed")
def links(
    data: str,
    top: int = 100,
    pairs: Path | None = None,
    model: Path | None = None,
    num_communities: str | None = None,
    given: options.Given = GIVEN,
) -> None:
    """Predict links: the likeliest missing ones and how surprising each edge is, as CSV.

    A tenth of the edges is held out from training, to calibrate probabilities and to measure how
    well they rank. Each pair comes with the communities that it runs through.
    """
    from vepm.cli.jobs import parse_value, prepare
    from vepm.estimators import LinkPredictor
    from vepm.runs import facts, write_metrics

    if model and (num_communities or given.settings or given.config):
        raise InputError(
            "--communities, --set and --config are for training; --model trains nothing"
        )
    count = num_communities and parse_value(num_communities)
    job = prepare(LinkPredictor, data, given, num_communities=count)
    folder = given.output or Path("runs") / f"{job.data.name}-links"
    asked = None if pairs is None else _read_pairs(pairs, job.data)
    with run_folder(folder, given.overwrite, (*job.inputs, model, pairs)) as checkpoint:
        predictor = LinkPredictor.load(model, given.device) if model else job.fit(checkpoint)
        write_links(folder / "missing.csv", predictor.missing_links(job.data, top))
        write_links(folder / "edges.csv", predictor.surprising_edges(job.data))
        if asked is not None:
            write_links(folder / "pairs.csv", predictor.explain_pairs(asked, job.data))
        predictor.save(folder)
        known = facts(job.data, predictor.card_.seed, getattr(predictor, "history_", []))
        own = {"task": "links", **predictor.scores_, "command": command_line()}
        metrics = write_metrics(folder, known | own)
    console.print_result(metrics, folder, given.as_json, print_links)


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
    """Pairs of nodes with their probability, and the communities behind most of it."""
    shown = range(min(MOST_COMMUNITIES, links.share.shape[1]))
    order = (-links.share).argsort(axis=1, kind="stable")[:, : len(shown)]
    headings = (f"{what}_{k + 1}" for k in shown for what in ("community", "share"))
    found = zip(links.nodes, links.probability, links.surprise, order, links.share, strict=True)
    rows = (
        [*nodes, f"{p:.6g}", f"{bits:.4f}", *(cell for k in best for cell in (k, f"{row[k]:.6f}"))]
        for nodes, p, bits, best, row in found
    )
    write_csv(path, ["source", "target", "probability", "surprise", *headings], rows)


def print_links(metrics: Mapping[str, Any], folder: Path) -> None:
    """How well held-out edges are told from pairs without one, and where predictions are."""
    measures = {"auc": "AUC", "average_precision": "average precision"}
    measures["calibration_error"] = "calibration error"
    found = (f"{name} {100 * metrics[key]:.1f} %" for key, name in measures.items())
    console.print_line(f"held-out edges: {', '.join(found)}")
    console.print_line(f"missing.csv and edges.csv in {folder}")
    console.print_line(f"cost: {console.cost(metrics)}")
