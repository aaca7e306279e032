"""vepm predict: labels of nodes or graphs by a model that was trained before."""

from collections import Counter
from pathlib import Path

from vepm import console
from vepm.cli import options
from vepm.cli.folders import RUN, check_output
from vepm.errors import InputError
from vepm.files import STDOUT, write_csv


@options.command("no_memory_check")
def predict(
    run: Path,
    data: str,
    output: Path = Path("predictions.csv"),
    as_json: bool = False,
    samples: int | None = None,
    reading: options.Reading = options.READING,
    machine: options.Machine = options.MACHINE,
) -> None:
    """Predict labels with probabilities, as CSV."""
    from vepm.cli.jobs import open_data, own_path
    from vepm.estimators import load_classifier

    if as_json and output == STDOUT:
        raise InputError("--output - prints the predictions; leave out --json or name a file")
    check_output(output, (own_path(data, machine.data_dir), *RUN.found(run)))
    model = load_classifier(run, machine.device)
    task, names = model.card_.task, model.card_.class_names
    known = {"class_names": names, "feature_names": model.card_.feature_names}
    dataset = open_data(data, machine.data_dir, reading, **known)
    if dataset.task != task:
        raise InputError(f"{data}: labels {dataset.task}s, the model in {run} labels {task}s")
    probabilities = model.predict_proba(dataset, samples)
    predicted = [names[i] for i in probabilities.argmax(1)]
    found = zip(dataset.item_names, predicted, probabilities, strict=True)
    rows = ([item, label, *(f"{p:.6f}" for p in row)] for item, label, row in found)
    write_csv(output, ["id", "prediction", *(f"p_{name}" for name in names)], rows)
    counts = Counter(predicted)
    if as_json:
        summary = {
            "output": str(output),
            "task": task,
            "n": len(predicted),
            "predicted": {name: counts[name] for name in names},
            "mean_confidence": float(probabilities.max(1).mean()),
        }
        console.print_json(summary)
    elif output != STDOUT:
        console.print_line(f"{len(predicted)} predictions in {output}")
