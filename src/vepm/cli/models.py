"""Commands that train a model or use one: train, predict, communities."""

from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from vepm import console
from vepm.cli.folders import command_line, run_folder
from vepm.cli.inputs import (
    check_model,
    chosen_baseline,
    listed,
    open_data,
    own_split,
    roles,
)
from vepm.cli.inputs import settings as settings_from
from vepm.cli.options import (
    RESULT_PANEL,
    SETTINGS_PANEL,
    AsJson,
    ConfigFile,
    DataDir,
    Device,
    Overwrite,
    Preset,
    Seed,
    Settings,
)
from vepm.cli.tables import write_communities, write_predictions
from vepm.data import require_labels
from vepm.errors import InputError
from vepm.estimators import CommunityDetector, GraphClassifier, NodeClassifier
from vepm.report import write_report
from vepm.training import fit, load_model
from vepm.training.fitting import NONE
from vepm.training.runs import write_run
from vepm.training.tracking import both, check_log, logging_to


def train(
    dataset: Annotated[
        str,
        typer.Argument(
            help="Name of a dataset (see `vepm datasets`), or path to your own: a folder with "
            "edges.csv and nodes.csv, a .graphml or a .npz file."
        ),
    ] = "digits",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Run folder. [default: runs/NAME-SEED]",
            rich_help_panel=RESULT_PANEL,
        ),
    ] = None,
    overwrite: Overwrite = False,
    baselines: Annotated[
        str,
        typer.Option(
            metavar="NAME,NAME",
            help="Baselines to run on the same labels.",
            rich_help_panel=RESULT_PANEL,
        ),
    ] = "",
    log: Annotated[
        str | None,
        typer.Option(
            help="tensorboard: every term and figure, for `tensorboard --logdir`.",
            rich_help_panel=RESULT_PANEL,
        ),
    ] = None,
    as_json: AsJson = False,
    preset: Preset = "tuned",
    config: ConfigFile = None,
    settings: Settings = None,
    seed: Seed = 0,
    device: Device = "auto",
    data_dir: DataDir = None,
) -> None:
    """Train on a dataset and write a run folder with model, metrics, figures and a page.

    An interrupted run goes on where it stopped when the same command is given again.

    Examples:

        vepm train

        vepm train Cora --data-dir data --set num_metacommunities=4

        vepm train my-graph/ --output runs/mine --baselines gcn,label-propagation
    """
    check_log(log)
    data = open_data(dataset, data_dir)
    require_labels(data)
    parts = roles(data)
    chosen = settings_from(data, preset, config, settings)
    check_model(data, chosen, device)
    methods = [chosen_baseline(name, data, device) for name in listed(baselines)]
    peer_runs = {m.name: partial(m, data, own_split(data, parts), seed) for m in methods}
    folder = output or Path("runs") / f"{data.name}-{seed}"
    with run_folder(folder, overwrite) as checkpoint, logging_to(log, folder) as board:
        with console.epoch_bar() as progress:
            fitted = fit(
                data,
                chosen,
                train_on=parts["train"],
                validate_on=parts["val"],
                seed=seed,
                device=device,
                progress=both(progress, board),
                checkpoint=checkpoint,
            )
        peers = {name: {"test_accuracy": run().test_accuracy} for name, run in peer_runs.items()}
        extra = {"baselines": peers, "command": command_line()}
        metrics = write_run(folder, data, fitted, parts, extra)
        checkpoint.unlink(missing_ok=True)
        page = write_report(folder)
        if board is not None:
            board.add_figures(folder / "figures")
    if as_json:
        console.print_json(metrics)
    else:
        console.print_run(metrics, page)


def predict(
    run: Annotated[Path, typer.Argument(help="Run folder written by `vepm train`.")],
    data: Annotated[str, typer.Argument(metavar="INPUT", help="Dataset name or path.")],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="CSV to write.", rich_help_panel=RESULT_PANEL),
    ] = Path("predictions.csv"),
    as_json: AsJson = False,
    samples: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Draws of the communities to average over; 0 for their mean. "
            "[default: as trained]",
            rich_help_panel=SETTINGS_PANEL,
        ),
    ] = None,
    device: Device = "auto",
    data_dir: DataDir = None,
) -> None:
    """Predict labels with probabilities, as CSV.

    Example:

        vepm predict runs/digits-0 digits -o predictions.csv
    """
    _, card = load_model(run / "model.safetensors")
    kind = NodeClassifier if card.task == "node" else GraphClassifier
    model = kind.load(run, device)
    dataset = open_data(data, data_dir, card.class_names)
    if dataset.task != card.task:
        raise InputError(f"{data}: labels {dataset.task}s, the model in {run} labels {card.task}s")
    probabilities = model.predict_proba(dataset, samples)
    write_predictions(output, dataset, card.class_names, probabilities)
    if as_json:
        found = Counter(card.class_names[i] for i in probabilities.argmax(1))
        console.print_json(
            {
                "output": str(output),
                "task": card.task,
                "n": len(probabilities),
                "predicted": {name: found[name] for name in card.class_names},
                "mean_confidence": float(probabilities.max(1).mean()),
            }
        )
    else:
        console.print_line(f"{len(probabilities)} predictions in {output}")


def communities(
    data: Annotated[str, typer.Argument(metavar="INPUT", help="Dataset name or path.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Folder. [default: runs/NAME-communities]",
            rich_help_panel=RESULT_PANEL,
        ),
    ] = None,
    overwrite: Overwrite = False,
    num_communities: Annotated[
        int | None,
        typer.Option(
            "--communities",
            "-c",
            min=1,
            help="Number of communities.",
            rich_help_panel=SETTINGS_PANEL,
        ),
    ] = None,
    num_metacommunities: Annotated[
        int | None,
        typer.Option(
            "--metacommunities",
            "-k",
            min=1,
            help="Parts of each edge. [default: one per community]",
            rich_help_panel=SETTINGS_PANEL,
        ),
    ] = None,
    preset: Preset = "tuned",
    config: ConfigFile = None,
    settings: Settings = None,
    seed: Seed = 0,
    device: Device = "auto",
    data_dir: DataDir = None,
) -> None:
    """Find overlapping communities without labels: memberships and each edge's split, as CSV.

    Example:

        vepm communities KarateClub -c 4 -k 4
    """
    dataset = open_data(data, data_dir)
    if dataset.task != "node":
        raise InputError(
            f"{data}: holds many graphs, and communities are found in one; `vepm train` shows "
            "those inside labelled graphs"
        )
    # A model that has seen no label has no classes, and must not pass for one that has.
    unlabelled = replace(dataset, num_classes=0, class_names=())
    detector = CommunityDetector(
        config=settings_from(dataset, preset, config, settings),
        num_communities=num_communities,
        num_metacommunities=num_metacommunities or num_communities,
    )
    chosen = detector.settings()
    check_model(unlabelled, chosen, device)
    folder = output or Path("runs") / f"{dataset.name}-communities"
    with run_folder(folder, overwrite) as checkpoint:
        with console.epoch_bar() as progress:
            fitted = fit(
                unlabelled,
                chosen,
                seed=seed,
                device=device,
                progress=progress,
                checkpoint=checkpoint,
            )
        nobody = {"train": NONE, "val": NONE, "test": NONE}
        write_run(folder, dataset, fitted, nobody, {"command": command_line()})
        write_communities(folder, dataset, CommunityDetector.load(folder, device))
        checkpoint.unlink(missing_ok=True)
        page = write_report(folder)
    console.print_line(f"memberships.csv and edges.csv in {folder}\nlook: {page}")
