import pytest
import torch

from training.toys import SMALL, roles, run, source_of
from vepm.scale.large import LargeGraph
from vepm.training import prediction, probabilities
from vepm.training.prediction import best_inverse_temperature, calibrate, drawn_scores


def likelihood(draws: torch.Tensor, y: torch.Tensor, sharpness: float) -> float:
    found = torch.softmax(sharpness * draws.double(), dim=-1).mean(0)
    return float(found[torch.arange(len(y)), y].log().sum())


@pytest.mark.parametrize("factor", [0.2, 1.0, 5.0])
def test_scores_of_the_wrong_scale_are_put_right(factor: float) -> None:
    torch.manual_seed(0)
    scores = torch.randn(5000, 4).double()
    y = torch.distributions.Categorical(logits=scores).sample()
    assert best_inverse_temperature(factor * scores[None], y) == pytest.approx(1 / factor, rel=0.1)


def test_no_other_factor_makes_the_labels_likelier() -> None:
    torch.manual_seed(0)
    draws, y = 3 * torch.randn(4, 60, 3), torch.randint(3, (60,))
    best = best_inverse_temperature(draws, y)

    def cost(factor: float) -> float:
        prior = float(torch.tensor(factor).log() ** 2 / 2)
        return prior - likelihood(draws, y, factor)

    assert all(cost(best) <= cost(best * other) + 1e-6 for other in (0.5, 0.9, 1.1, 2.0))


def test_few_labels_move_it_little() -> None:
    scores = torch.tensor([[[2.0, 0.0], [0.0, 2.0]]])
    right, wrong = torch.tensor([0, 1]), torch.tensor([1, 0])
    assert 1 < best_inverse_temperature(scores, right) < 2
    assert 0.3 < best_inverse_temperature(scores, wrong) < 1


@pytest.mark.parametrize("task", ["node", "graph"])
@pytest.mark.parametrize("num_samples", [0, 3])
def test_a_model_is_as_sure_as_its_validation_labels_say(task: str, num_samples: int) -> None:
    model, source = run(task, SMALL[task]).model, source_of(task)
    assert float(model.sharpness) != 1
    model.sharpness.fill_(1)
    rows = roles(task)[1]
    before = probabilities(model, source, num_samples, 5)
    calibrate(model, source, rows, num_samples, 5)
    sharpness = float(model.sharpness)
    assert sharpness != 1
    after = probabilities(model, source, num_samples, 5)
    assert not torch.allclose(before, after)
    assert not isinstance(source, LargeGraph)
    draws = drawn_scores(model, source, num_samples, 5)
    assert len(draws) == max(num_samples, 1)
    torch.testing.assert_close(after, torch.softmax(sharpness * draws, dim=-1).mean(0))
    if num_samples == 0:
        assert torch.equal(before.argmax(1), after.argmax(1))


def test_without_validation_labels_nothing_changes() -> None:
    model, source = run("node", SMALL["node"]).model, source_of("node")
    model.sharpness.fill_(1)
    calibrate(model, source, torch.empty(0, dtype=torch.long), 0, 0)
    assert float(model.sharpness) == 1


def test_it_stays_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prediction, "LARGEST_LOGARITHM", 0.1)
    scores = torch.zeros(1, 100, 2)
    scores[..., 0] = 0.01
    assert best_inverse_temperature(scores, torch.zeros(100, dtype=torch.long)) < 1.11
