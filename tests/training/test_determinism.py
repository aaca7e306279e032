"""Same seed, same bits; nobody else's random numbers are disturbed."""

import pytest
import torch

from training.toys import SCHEMES, SMALL, TASKS, predictions, rng_untouched, run, same_run, weights
from vepm.training import explain, probabilities, scores


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("task", TASKS)
def test_same_seed_gives_the_same_bits(task: str, scheme: str) -> None:
    config = SMALL[task].replace(scheme=scheme, encoder_interval=2, passes=2, batch_size=4)
    first = run(task, config, seed=3)
    torch.manual_seed(99)
    torch.rand(5)
    second = run(task, config, seed=3)
    assert same_run(first, second)
    assert torch.equal(predictions(first), predictions(second))


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("task", TASKS)
def test_another_seed_gives_another_model(task: str, scheme: str) -> None:
    config = SMALL[task].replace(scheme=scheme)
    first, second = weights(run(task, config, seed=3)), weights(run(task, config, seed=4))
    matrices = [name for name, value in first.items() if value.dim() > 1]
    assert matrices
    assert not any(torch.equal(first[name], second[name]) for name in matrices)


@pytest.mark.parametrize("inputs", ["both", "random"])
@pytest.mark.parametrize("task", TASKS)
def test_training_and_predicting_leave_the_callers_random_numbers_alone(
    task: str, inputs: str
) -> None:
    with rng_untouched():
        fitted = run(task, SMALL[task].replace(inputs=inputs, likelihood="subsampled"))
        scores(fitted.model, fitted.source)
        probabilities(fitted.model, fitted.source, 0)
        probabilities(fitted.model, fitted.source, 3)
        explain(fitted.model, fitted.source)


@pytest.mark.parametrize("task", TASKS)
def test_random_features_still_predict_the_same_twice(task: str) -> None:
    fitted = run(task, SMALL[task].replace(inputs="random"))
    first, second = (scores(fitted.model, fitted.source) for _ in range(2))
    assert torch.equal(first, second)
    assert torch.equal(
        explain(fitted.model, fitted.source).embeddings,
        explain(fitted.model, fitted.source).embeddings,
    )


@pytest.mark.parametrize("task", TASKS)
def test_seed_of_a_prediction_decides_its_draws(task: str) -> None:
    fitted = run(task)
    first, again, other = (
        probabilities(fitted.model, fitted.source, 2, seed=seed) for seed in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_steps_of_an_interrupted_run_never_reuse_random_numbers() -> None:
    fitted = run("node", SMALL["node"].replace(encoder_learning_rate=1e-12, learning_rate=1e-12))
    tasks = [row["task"] for row in fitted.history if row["phase"] == "finetune"]
    assert len(set(tasks)) == len(tasks)
