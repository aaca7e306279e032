"""vepm communities: overlapping communities, found without labels."""

from pathlib import Path
from typing import TYPE_CHECKING

from vepm import console
from vepm.cli import options
from vepm.cli.folders import run_folder
from vepm.errors import InputError
from vepm.files import write_csv

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from vepm.data import Dataset
    from vepm.estimators import Memberships
    from vepm.evaluation.communities import Bools
    from vepm.training import Explanation

CHOICE = options.Choice("communities")


@options.command()
def communities(
    data: str,
    output: Path | None = None,
    overwrite: bool = False,
    as_json: bool = False,
    truth: Path | None = None,
    baselines: str = "",
    num_communities: str | None = None,
    num_metacommunities: int | None = None,
    starts: int = 4,
    choice: options.Choice = CHOICE,
    reading: options.Reading = options.READING,
    machine: options.Machine = options.MACHINE,
) -> None:
    """Find overlapping communities without labels: memberships and each edge's split, as CSV.

    Communities have the same numbers, from 0, in the CSV files, on the page and in Python.
    """
    from vepm.baselines.communities import DETECTORS
    from vepm.cli.jobs import number_or_auto, prepare, say_unweighted
    from vepm.estimators import CommunityDetector
    from vepm.evaluation.communities import compare, known_communities, modularity, read_cover

    count = number_or_auto(num_communities)
    sizes = {"num_metacommunities": num_metacommunities, "n_init": starts}
    job = prepare(CommunityDetector, data, choice, reading, machine, num_communities=count, **sizes)
    known = read_cover(truth, job.data.item_names) if truth else known_communities(job.data)
    folder = output or Path("runs") / f"{job.data.name}-communities"
    nodes, edges = job.data.graphs[0].num_nodes, job.data.graphs[0].edge_index.numpy()
    peers = _detectors(baselines, nodes, edges.shape[1])

    def judge(found: "Bools | csr_array") -> dict[str, float]:
        scores = {} if known is None else compare(found, known)
        used = int((found.sum(0) > 0).sum())
        return {"communities": used, "modularity": modularity(found, edges), **scores}

    with run_folder(folder, overwrite, job.inputs) as checkpoint:
        fitted = job.fit(checkpoint)
        explained = job.estimator.explain(job.data)
        found = job.estimator.communities_behind(explained)
        say_unweighted(job.data, peers)
        tables: dict[str, Bools | csr_array] = {"vepm": found.overlapping}
        for name in peers:
            tables[name] = DETECTORS[name](edges, nodes, found.soft.shape[1], choice.seed)
        write_communities(folder, job.data, found, explained)
        scores = {name: judge(table) for name, table in tables.items()}
        metrics = job.write(folder, fitted, {"communities": scores}, explained)
    console.print_result(metrics, folder, as_json, console.print_communities)


def _detectors(names: str, num_nodes: int, num_edges: int) -> list[str]:
    """Baselines by name, each there to be run on a graph of this size."""
    from vepm.baselines.communities import DETECTORS, require_leiden, require_nocd

    found = options.listed(names)
    for name in found:
        if name not in DETECTORS:
            raise InputError(f"no baseline '{name}'; there are {', '.join(DETECTORS)}")
    if "leiden" in found:
        require_leiden()
    if "nocd" in found:
        require_nocd(num_nodes, num_edges)
    return found


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
