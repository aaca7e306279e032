"""vepm predict: labels of nodes or graphs by a model that was trained before."""

from pathlib import Path

from vepm import console
from vepm.cli import options
from vepm.cli.folders import RUN, check_output
from vepm.errors import InputError
from vepm.files import STDOUT, write_csv

PREDICTIONS = Path("predictions.csv")
GIVEN = options.Given(PREDICTIONS)


@options.command(*options.SETTINGS, "overwrite", "as_json", "no_memory_check")
def predict(run: Path, data: str, samples: int | None = None, given: options.Given = GIVEN) -> None:
    """Predict labels with probabilities, as CSV."""
    from vepm.cli.jobs import open_data, own_path
    from vepm.estimators import load_classifier

    output = given.output or PREDICTIONS
    check_output(output, (own_path(data, given.data_dir), *RUN.found(run)))
    model = load_classifier(run, given.device)
    task, names = model.card_.task, model.card_.class_names
    known = {"class_names": names, "feature_names": model.card_.feature_names}
    dataset = open_data(data, given, **known)
    if dataset.task != task:
        raise InputError(f"{data}: labels {dataset.task}s, the model in {run} labels {task}s")
    probabilities = model.predict_proba(dataset, samples)
    predicted = [names[i] for i in probabilities.argmax(1)]
    found = zip(dataset.item_names, predicted, probabilities, strict=True)
    rows = ([item, label, *(f"{p:.6f}" for p in row)] for item, label, row in found)
    write_csv(output, ["id", "prediction", *(f"p_{name}" for name in names)], rows)
    if output != STDOUT:
        console.print_line(f"{len(predicted)} predictions in {output}")
