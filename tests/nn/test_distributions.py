"""The Weibull posterior, its draws and its divergence from the Gamma prior."""

import math
import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.distributions import Gamma, Weibull, kl_divergence

from strategies import quick, uniform
from vepm.nn import draw
from vepm.nn.encoder import SMALLEST_AFFILIATION, Posterior

positive = st.floats(0.05, 20)


def test_divergence_matches_monte_carlo() -> None:
    torch.manual_seed(0)
    axes = [[0.5, 1.0, 2.0, 6.0], [0.05, 0.5, 3.0], [0.3, 1.0, 4.0], [0.2, 1.0, 5.0]]
    grid = torch.cartesian_prod(*(torch.tensor(a, dtype=torch.float64) for a in axes))
    shape, scale, alpha, beta = grid.unbind(1)
    q, p = Weibull(scale, shape), Gamma(alpha, beta)
    draws = 50_000
    z = q.sample(torch.Size([draws]))
    log_ratio = q.log_prob(z) - p.log_prob(z)
    error = log_ratio.std(0) / math.sqrt(draws)
    assert ((kl_divergence(q, p) - log_ratio.mean(0)).abs() < 5 * error + 1e-12).all()


@given(positive, positive, positive, positive)
@quick
def test_divergence_is_not_negative(shape: float, scale: float, alpha: float, beta: float) -> None:
    q = Weibull(torch.tensor(scale).double(), torch.tensor(shape).double())
    p = Gamma(torch.tensor(alpha).double(), torch.tensor(beta).double())
    assert kl_divergence(q, p).item() >= -1e-9


def test_divergence_of_equal_exponentials_is_zero() -> None:
    scale = torch.tensor([0.1, 1.0, 7.0], dtype=torch.float64)
    q, p = Weibull(scale, torch.ones_like(scale)), Gamma(torch.ones_like(scale), 1 / scale)
    torch.testing.assert_close(kl_divergence(q, p), torch.zeros_like(scale))


def test_gradients_of_divergence_match_finite_differences() -> None:
    def divergence(scale: Tensor, shape: Tensor, alpha: Tensor, beta: Tensor) -> Tensor:
        return kl_divergence(Weibull(scale, shape), Gamma(alpha, beta))

    inputs = [uniform(i, 3, 2, low=0.3).requires_grad_() for i in range(4)]
    assert torch.autograd.gradcheck(divergence, inputs)


def test_importing_the_package_is_enough_for_the_divergence() -> None:
    code = (
        "import torch, vepm; from torch.distributions import Gamma, Weibull, kl_divergence;"
        "print(kl_divergence(Weibull(torch.ones(1), torch.ones(1)), Gamma(1.0, 1.0)).item())"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(run.stdout) == pytest.approx(0, abs=1e-6)


def test_draws_have_the_mean_of_the_weibull() -> None:
    torch.manual_seed(0)
    shape = torch.tensor([0.5, 1.0, 2.0, 8.0], dtype=torch.float64).repeat(100_000, 1)
    z = draw(Weibull(torch.full_like(shape, 1.5), shape), sample=True)
    expected = torch.tensor([1.5 * math.gamma(1 + 1 / k) for k in shape[0].tolist()])
    error = z.std(0) / math.sqrt(z.size(0))
    assert ((z.mean(0) - expected).abs() < 5 * error).all()


def test_without_sampling_the_draw_is_the_mean() -> None:
    posterior = Weibull(uniform(0, 4, 3), uniform(1, 4, 3))
    z = draw(posterior, sample=False)
    expected = posterior.scale * torch.exp(torch.lgamma(1 + 1 / posterior.concentration))
    torch.testing.assert_close(z, expected)
    assert draw(posterior, sample=False).equal(z)


@pytest.mark.parametrize("sample", [True, False])
def test_draws_never_fall_below_the_floor(sample: bool) -> None:
    torch.manual_seed(0)
    posterior = Weibull(torch.full((1000, 2), 1e-7), torch.full((1000, 2), 0.5))
    z = draw(posterior, sample)
    assert z.min() == torch.tensor(SMALLEST_AFFILIATION)


@pytest.mark.parametrize("sample", [True, False])
def test_gradients_of_a_draw_match_finite_differences(sample: bool) -> None:
    def at_fixed_seed(scale: Tensor, shape: Tensor) -> Tensor:
        torch.manual_seed(0)
        return draw(Weibull(scale, shape), sample)

    inputs = (uniform(0, 3, 2).requires_grad_(), uniform(1, 3, 2, low=0.5).requires_grad_())
    assert torch.autograd.gradcheck(at_fixed_seed, inputs)


def test_posterior_draws_and_means_are_those_of_a_weibull() -> None:
    scale, shape = uniform(0, 2000, 3), uniform(1, 1, 3, low=0.8).expand(2000, 3)
    ours, plain = Posterior(scale, shape), Weibull(scale, shape)
    torch.testing.assert_close(ours.mean, plain.mean)
    torch.manual_seed(0)
    unit = (ours.rsample((50,)) / scale).pow(shape)
    # Through the inverse transform every draw is a standard exponential.
    assert unit.shape == (50, 2000, 3)
    torch.testing.assert_close(unit.mean(), torch.tensor(1.0).double(), atol=0.01, rtol=0)
    torch.testing.assert_close(unit.std(), torch.tensor(1.0).double(), atol=0.01, rtol=0)


def test_a_mean_without_gradients_does_not_stand_for_one_with_them() -> None:
    scale = uniform(0, 2, 3).requires_grad_()
    posterior = Posterior(scale, uniform(1, 2, 3))
    with torch.no_grad():
        without = posterior.mean
    assert [without.requires_grad, posterior.mean.requires_grad] == [False, True]
    assert posterior.mean is posterior.mean
