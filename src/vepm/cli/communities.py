"""vepm communities: overlapping communities, found without labels."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vepm import console
from vepm.cli import options
from vepm.cli.folders import run_folder
from vepm.files import write_csv

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from vepm.data import Dataset
    from vepm.estimators import Memberships
    from vepm.evaluation.communities import Bools
    from vepm.training import Explanation

GIVEN = options.Given(preset="communities")
MEASURES = {
    "modularity": "modularity", "overlapping_nmi": "overlapping NMI", "omega": "omega", "f1": "F1"
}  # fmt: skip


@options.command()
def communities(
    data: str,
    truth: Path | None = None,
    baselines: str = "",
    num_communities: str | None = None,
    num_metacommunities: int | None = None,
    starts: int = 4,
    given: options.Given = GIVEN,
) -> None:
    """Find overlapping communities without labels: memberships and each edge's split, as CSV.

    Communities have the same numbers, from 0, in the CSV files, on the page and in Python.
    """
    from vepm.baselines.communities import DETECTORS, require
    from vepm.cli.jobs import parse_value, prepare, say_unweighted
    from vepm.estimators import CommunityDetector
    from vepm.evaluation.communities import compare, known_communities, modularity, read_cover

    sizes = {
        "num_communities": num_communities and parse_value(num_communities),
        "num_metacommunities": num_metacommunities,
        "n_init": starts,
    }
    job = prepare(CommunityDetector, data, given, **sizes)
    known = read_cover(truth, job.data.item_names) if truth else known_communities(job.data)
    folder = given.output or Path("runs") / f"{job.data.name}-communities"
    nodes, edges = job.data.graphs[0].num_nodes, job.data.graphs[0].edge_index.numpy()
    peers = options.listed(baselines)
    for name in peers:
        require(name, nodes, edges.shape[1])

    def judge(found: "Bools | csr_array") -> dict[str, float]:
        scores = {} if known is None else compare(found, known)
        used = int((found.sum(0) > 0).sum())
        return {"communities": used, "modularity": modularity(found, edges), **scores}

    with run_folder(folder, given.overwrite, job.inputs) as checkpoint:
        fitted = job.fit(checkpoint)
        explained = job.estimator.explain(job.data)
        found = job.estimator.communities_behind(explained)
        say_unweighted(job.data, peers)
        tables: dict[str, Bools | csr_array] = {"vepm": found.overlapping}
        for name in peers:
            tables[name] = DETECTORS[name](edges, nodes, found.soft.shape[1], given.seed)
        write_communities(folder, job.data, found, explained)
        scores = {name: judge(table) for name, table in tables.items()}
        metrics = job.write(folder, fitted, {"communities": scores}, explained)
    console.print_result(metrics, folder, given.as_json, print_communities)


def print_communities(metrics: Mapping[str, Any], folder: Path) -> None:
    """How good communities are, where they were written to, and at what cost."""
    console.print_line(f"memberships.csv and edges.csv in {folder}")
    console.print_line(f"cost: {console.cost(metrics)}")
    for method, row in metrics["communities"].items():
        found = (f"{name} {row[key]:.2f}" for key, name in MEASURES.items() if key in row)
        console.print_line(f"{method}: {', '.join(found)}")
    console.print_line(f"see: {folder / 'report.html'}")


def write_communities(
    folder: Path, dataset: "Dataset", found: "Memberships", explained: "Explanation"
) -> None:
    """Memberships of the nodes and splits of the edges, as CSV."""
    names = dataset.item_names
    parts = range(found.soft.shape[1])
    write_csv(
        folder / "memberships.csv",
        ["id", "community", *(f"strength_{k}" for k in parts), *(f"member_{k}" for k in parts)],
        (
            [name, hard, *(f"{s:.6f}" for s in soft), *(int(m) for m in member)]
            for name, hard, soft, member in zip(names, *found, strict=True)
        ),
    )
    ends, shares = explained.edge_index.tolist(), explained.edge_weight.cpu().numpy()
    write_csv(
        folder / "edges.csv",
        ["source", "target", *(f"share_{k}" for k in parts)],
        (
            [names[i], names[j], *(f"{s:.6f}" for s in row)]
            for i, j, row in zip(*ends, shares, strict=True)
            if i < j
        ),
    )
