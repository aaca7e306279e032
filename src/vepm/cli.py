"""The command line: each command a few lines on top of the package."""

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from vepm import __version__, console
from vepm.baselines import baseline
from vepm.data import datasets, require_labels
from vepm.errors import InputError
from vepm.estimators import CommunityDetector, GraphClassifier, NodeClassifier
from vepm.files import only_writer, write_csv
from vepm.protocols import Method, Split, VEPMMethod, evaluate_in_parallel, splits_for
from vepm.report import write_report
from vepm.training import fit, load_model
from vepm.training.fitting import NONE
from vepm.training.runs import write_run

app = typer.Typer(
    name="vepm",
    help="Variational edge partition models: classify nodes or graphs, and see the overlapping "
    "communities behind the edges.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", help="PyG root of benchmark datasets.", envvar="VEPM_DATA"),
]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Preset = Annotated[str, typer.Option(help="Named settings: tuned, paper or released.")]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", help="TOML with [model] and [training] to start from.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="One setting, as name=value; may be given several times."),
]
Seed = Annotated[int, typer.Option(help="Seed of weights and all draws.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


@app.callback(invoke_without_command=True)
def _start(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    if version:
        console.out.print(f"vepm {__version__}", highlight=False)
        raise typer.Exit
    console.show_messages()


@app.command()
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


@app.command()
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


@app.command()
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


@app.command()
def evaluate(
    dataset: Annotated[str, typer.Argument(help="Dataset name or path.")],
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds.")] = 1,
    first_seed: Annotated[int, typer.Option(help="The first of them.")] = 0,
    protocol: Annotated[
        str,
        typer.Option(help="public, gin or capsgnn. [default: public for nodes, gin for graphs]"),
    ] = "",
    method: Annotated[str, typer.Option(help="vepm or the name of a baseline.")] = "vepm",
    preset: Preset = "tuned",
    config: ConfigFile = None,
    settings: Settings = None,
    jobs: Annotated[int, typer.Option(min=0, help="Runs at a time; 0 for one per core.")] = 0,
    device: Device = "auto",
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Measure accuracy by a protocol: many seeds or folds, mean and spread, and the rule.

    Examples:

        vepm evaluate Cora --seeds 10

        vepm evaluate MUTAG --protocol gin --json
    """
    data = console.open_data(dataset, data_dir)
    splits, rules = splits_for(data, protocol)
    chosen = console.settings(data, preset, config, settings)
    if rules[0] == "gin":
        chosen = chosen.replace(patience=0)
    if method == "vepm":
        runner: Method = VEPMMethod(chosen, device)
    else:
        runner = baseline(method, data.name)
    with console.run_bar(f"{method} on {data.name}") as progress:
        results = evaluate_in_parallel(
            runner, data, splits, range(first_seed, first_seed + seeds), jobs, progress
        )
    console.print_evaluation(results, rules, as_json)


@app.command()
def report(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
) -> None:
    """Write the page of a run again: one self-contained HTML file.

    Example:

        vepm report runs/digits-0
    """
    console.out.print(f"look: {write_report(run)}", highlight=False)


@app.command("datasets")
def list_datasets(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """What can be loaded, and from where."""
    found = datasets(data_dir)
    if as_json:
        print(json.dumps([vars(info) for info in found]))
        return
    table = Table("name", "task", "here now", "source", "what it is")
    for info in found:
        here = "yes" if info.available else "no"
        table.add_row(info.name, info.task, here, info.source, info.description)
    console.out.print(table)
    console.out.print("Your own: a folder with edges.csv and nodes.csv, a .graphml or a .npz file.")


def main() -> None:
    """Run the command line; errors a user can mend take one line and exit code 2."""
    try:
        app()
    except InputError as error:
        console.print_error(error)
        sys.exit(2)
    except OSError as error:
        console.print_error(error)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
