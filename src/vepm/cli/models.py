"""Commands that train a model or use one: train, predict, communities."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from vepm import console
from vepm.baselines import baseline
from vepm.cli.options import ConfigFile, DataDir, Device, Preset, Seed, Settings
from vepm.data import require_labels
from vepm.errors import InputError
from vepm.estimators import CommunityDetector, GraphClassifier, NodeClassifier
from vepm.files import only_writer, write_csv
from vepm.protocols import Split
from vepm.report import write_report
from vepm.training import fit, load_model
from vepm.training.fitting import NONE
from vepm.training.runs import write_run


def train(
    dataset: Annotated[
        str, typer.Argument(help="Name of a dataset (see `vepm datasets`) or path to your own.")
    ] = "digits",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Run folder. [default: runs/NAME-SEED]")
    ] = None,
    baselines: Annotated[
        str, typer.Option(help="Comma-separated baselines to run on the same labels.")
    ] = "",
    preset: Preset = "tuned",
    config: ConfigFile = None,
    settings: Settings = None,
    seed: Seed = 0,
    device: Device = "auto",
    data_dir: DataDir = None,
    overwrite: Annotated[bool, typer.Option(help="Replace a finished run.")] = False,
) -> None:
    """Train on a dataset and write a run folder with model, metrics, figures and a page.

    An interrupted run goes on where it stopped when the same command is given again.

    Examples:

        vepm train

        vepm train Cora --data-dir data --set num_metacommunities=4

        vepm train my-graph/ --output runs/mine --baselines gcn,label-propagation
    """
    data = console.open_data(dataset, data_dir)
    require_labels(data)
    split = console.roles(data)
    chosen = console.settings(data, preset, config, settings)
    folder = output or Path("runs") / f"{data.name}-{seed}"
    if (folder / "metrics.json").exists() and not overwrite:
        raise InputError(
            f"{folder}: holds a finished run; choose another folder with --output, or --overwrite"
        )
    with only_writer(folder):
        state = folder / "checkpoint.safetensors"
        if overwrite:
            state.unlink(missing_ok=True)
        with console.resumable(folder), console.epoch_bar() as progress:
            fitted = fit(
                data,
                chosen,
                train_on=split["train"],
                validate_on=split["val"],
                seed=seed,
                device=device,
                progress=progress,
                checkpoint=state,
            )
        parts = Split("own", *split.values())
        peers = {
            name: {"test_accuracy": baseline(name, data.name)(data, parts, seed).test_accuracy}
            for name in filter(None, baselines.split(","))
        }
        extra = {"baselines": peers, "command": shlex.join(["vepm", *sys.argv[1:]])}
        metrics = write_run(folder, data, fitted, split, extra)
        state.unlink(missing_ok=True)
        page = write_report(folder)
    console.print_run(metrics, page)


def predict(
    run: Annotated[Path, typer.Argument(help="Run folder written by `vepm train`.")],
    data: Annotated[str, typer.Argument(metavar="INPUT", help="Dataset name or path.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="CSV to write.")] = Path(
        "predictions.csv"
    ),
    samples: Annotated[
        int | None, typer.Option(min=0, help="Draws of the communities; 0 for their mean.")
    ] = None,
    device: Device = "auto",
    data_dir: DataDir = None,
) -> None:
    """Predict labels with probabilities, as CSV.

    Example:

        vepm predict runs/digits-0 digits -o predictions.csv
    """
    _, card = load_model(run / "model.safetensors")
    dataset = console.open_data(data, data_dir, card.class_names)
    kind = NodeClassifier if card.task == "node" else GraphClassifier
    if dataset.task != card.task:
        raise InputError(f"{data}: labels {dataset.task}s, the model in {run} labels {card.task}s")
    model = kind.load(run, device)
    probabilities = model.predict_proba(dataset, samples)
    ids = console.item_names(dataset)
    names = [*card.class_names]
    write_csv(
        output,
        ["id", "prediction", *(f"p_{name}" for name in names)],
        (
            [item, names[int(row.argmax())], *(f"{p:.6f}" for p in row)]
            for item, row in zip(ids, probabilities, strict=True)
        ),
    )
    console.out.print(f"{len(ids)} predictions in {output}", highlight=False)


def communities(
    data: Annotated[str, typer.Argument(metavar="INPUT", help="Dataset name or path.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder. [default: runs/NAME-communities]")
    ] = None,
    num_communities: Annotated[
        int | None, typer.Option("--communities", "-c", min=1, help="Number of communities.")
    ] = None,
    num_metacommunities: Annotated[
        int | None, typer.Option("--metacommunities", "-k", min=1, help="Parts of each edge.")
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
    dataset = console.open_data(data, data_dir)
    folder = output or Path("runs") / f"{dataset.name}-communities"
    chosen = console.settings(dataset, preset, config, settings)
    detector = CommunityDetector(
        config=chosen,
        num_communities=num_communities,
        num_metacommunities=num_metacommunities or num_communities,
        device=device,
        random_state=seed,
    )
    with only_writer(folder):
        with console.epoch_bar() as progress:
            fitted = fit(dataset, detector.settings(), seed=seed, device=device, progress=progress)
        roles = {"train": NONE, "val": NONE, "test": NONE}
        command = shlex.join(["vepm", *sys.argv[1:]])
        write_run(folder, dataset, fitted, roles, {"command": command})
        console.write_communities(folder, dataset, CommunityDetector.load(folder, device))
        page = write_report(folder)
    console.out.print(f"memberships.csv and edges.csv in {folder}\nlook: {page}", highlight=False)
