"""Commands that train a model or use one: train, predict, communities, links."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from vepm import console
from vepm.cli import options
from vepm.errors import InputError
from vepm.files import STDOUT

FOR_COMMUNITIES, FOR_LINKS = options.TrainingChoice("communities"), options.TrainingChoice("links")


def train(
    dataset: Annotated[
        str,
        typer.Argument(
            help="Name of a dataset (see `vepm datasets`), or path to your own: a folder with "
            "edges.csv and nodes.csv, or a .graphml, .gml, .gexf, .npz or .edgelist file."
        ),
    ] = "digits",
    output: Annotated[
        Path | None,
        options.result_option("--output", "-o", help="Run folder. [default: runs/NAME-SEED]"),
    ] = None,
    overwrite: options.Overwrite = False,
    baselines: options.Baselines = "",
    log: Annotated[
        str | None,
        options.result_option(
            help="tensorboard: every term and figure, for `tensorboard --logdir`."
        ),
    ] = None,
    as_json: options.AsJson = False,
    choice: options.TrainingChoice = options.TRAINING,
    reading: options.DirectedReading = options.DIRECTED_READING,
    machine: options.TrainingMachine = options.TRAINING_MACHINE,
) -> None:
    """Train on a dataset and write a run folder with model, metrics, figures and a page.

    An interrupted run goes on where it stopped when the same command is given again. Under
    torchrun all processes train one model together.

    Examples:

        vepm train

        vepm train Cora --data-dir data --set num_metacommunities=4

        vepm train my-graph/ --output runs/mine --baselines gcn,label-propagation

        vepm train planted:nodes=1000000,edges=10000000 --batch-nodes 50000
    """
    from vepm.cli import work

    job = work.prepare(None, dataset, choice, reading, machine)
    peers = work.peers(job, baselines)
    folder = output or Path("runs") / f"{job.data.name}-{choice.seed}"
    metrics = work.train(job, folder, overwrite, peers, log)
    # Of several processes only the first has anything to say.
    if metrics is not None:
        _show(metrics, as_json, lambda: console.print_run(metrics, folder))


def predict(
    run: Annotated[Path, typer.Argument(help="Run folder written by `vepm train`.")],
    data: options.Input,
    output: Annotated[
        Path, options.result_option("--output", "-o", help="CSV to write; - for standard output.")
    ] = Path("predictions.csv"),
    as_json: options.AsJson = False,
    samples: Annotated[
        int | None,
        options.setting_option(
            min=0,
            help="Draws of the communities to average over; 0 for their mean. "
            "[default: as trained]",
        ),
    ] = None,
    reading: options.DirectedReading = options.DIRECTED_READING,
    machine: options.Machine = options.MACHINE,
) -> None:
    """Predict labels with probabilities, as CSV.

    Example:

        vepm predict runs/digits-0 digits -o predictions.csv
    """
    from vepm.cli import work

    if as_json and output == STDOUT:
        raise InputError("--output - prints the predictions; leave out --json or name a file")
    found = work.predict(run, data, samples, output, reading, machine)
    if as_json:
        console.print_json(found)
    elif output != STDOUT:
        console.print_line(f"{found['n']} predictions in {output}")


def communities(
    data: options.Input,
    output: Annotated[
        Path | None,
        options.result_option("--output", "-o", help="Folder. [default: runs/NAME-communities]"),
    ] = None,
    overwrite: options.Overwrite = False,
    as_json: options.AsJson = False,
    truth: Annotated[
        Path | None,
        options.result_option(
            help="Known communities to compare with: one on each line, as ids of its members, or "
            "a CSV with columns id and community. [default: those of the data, if any]"
        ),
    ] = None,
    baselines: Annotated[
        str,
        options.result_option(
            metavar="NAME,NAME",
            help="Methods to compare with: louvain, leiden, label-propagation, bigclam.",
        ),
    ] = "",
    num_communities: options.NumCommunities = None,
    num_metacommunities: Annotated[
        int | None,
        options.setting_option(
            "--metacommunities",
            "-k",
            min=1,
            help="Parts of each edge. [default: one per community]",
        ),
    ] = None,
    starts: Annotated[
        int,
        options.setting_option(
            min=1,
            help="Starts with different seeds, each trained for a sixth of the epochs and the "
            "best of them to the end.",
        ),
    ] = 4,
    choice: options.TrainingChoice = FOR_COMMUNITIES,
    reading: options.DirectedReading = options.DIRECTED_READING,
    machine: options.TrainingMachine = options.TRAINING_MACHINE,
) -> None:
    """Find overlapping communities without labels: memberships and each edge's split, as CSV.

    Communities have the same numbers, from 0, in the CSV files, on the page and in Python.

    Examples:

        vepm communities KarateClub -c 4

        vepm communities my-graph/ --truth circles.txt --baselines louvain,bigclam
    """
    from vepm.cli import work
    from vepm.estimators import CommunityDetector

    job = work.prepare(
        CommunityDetector,
        data,
        choice,
        reading,
        machine,
        num_communities=work.number_or_auto(num_communities),
        num_metacommunities=num_metacommunities,
        n_init=starts,
    )
    known, peers = work.truth_for(job, truth), work.community_baselines(baselines)
    folder = output or Path("runs") / f"{job.data.name}-communities"
    metrics = work.find_communities(job, folder, overwrite, known, peers)
    _show(metrics, as_json, lambda: console.print_communities(metrics, folder))


def links(
    data: options.Input,
    output: Annotated[
        Path | None,
        options.result_option("--output", "-o", help="Folder. [default: runs/NAME-links]"),
    ] = None,
    overwrite: options.Overwrite = False,
    as_json: options.AsJson = False,
    top: Annotated[int, options.result_option(min=1, help="Missing links to write.")] = 100,
    pairs: Annotated[
        Path | None,
        options.result_option(
            help="File with two ids on each line: write how likely these are joined."
        ),
    ] = None,
    model: Annotated[
        Path | None,
        options.setting_option(
            help="Folder that this command wrote: use its model, also for nodes that are new, "
            "and train nothing."
        ),
    ] = None,
    num_communities: options.NumCommunities = None,
    choice: options.TrainingChoice = FOR_LINKS,
    reading: options.Reading = options.READING,
    machine: options.TrainingMachine = options.TRAINING_MACHINE,
) -> None:
    """Predict links: the likeliest missing ones and how surprising each edge is, as CSV.

    A tenth of the edges is held out from training, to calibrate probabilities and to measure how
    well they rank. Each pair comes with the communities that it runs through.

    Examples:

        vepm links KarateClub

        vepm links my-graph/ --pairs candidates.txt

        vepm links grown-graph/ --model runs/my-graph-links
    """
    from vepm.cli import work
    from vepm.estimators import LinkPredictor

    count = work.number_or_auto(num_communities)
    job = work.prepare(LinkPredictor, data, choice, reading, machine, num_communities=count)
    folder = output or Path("runs") / f"{job.data.name}-links"
    metrics = work.find_links(job, folder, overwrite, model, pairs, top)
    _show(metrics, as_json, lambda: console.print_links(metrics, folder))


def _show(metrics: dict[str, Any], as_json: bool, in_words: Callable[[], None]) -> None:
    console.print_warnings(metrics)
    if as_json:
        console.print_json(metrics)
    else:
        in_words()
