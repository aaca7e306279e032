import pytest
import torch
from torch.distributions import Gamma, kl_divergence

from vepm.kernels import elementwise
from vepm.kernels.elementwise import in_strips
from vepm.nn.distributions import Posterior


def matrices(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(rows)
    a, b = torch.rand(2, rows, 2, dtype=torch.double).add(0.5)
    return a.clone().requires_grad_(), b.clone().requires_grad_()


@pytest.mark.parametrize("rows", [0, 1, 3, 7])
def test_values_and_gradients_are_those_of_the_whole(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = matrices(rows)
    whole = torch.pow(a, b)
    monkeypatch.setattr(elementwise, "LONGEST", 5)
    cut = in_strips(torch.pow, a, b)
    assert torch.equal(cut, whole)
    weight = torch.rand_like(whole)
    for found, expected in zip(
        torch.autograd.grad(cut, (a, b), weight),
        torch.autograd.grad(whole, (a, b), weight),
        strict=True,
    ):
        torch.testing.assert_close(found, expected, rtol=1e-14, atol=0)


def test_only_what_needs_a_gradient_gets_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elementwise, "LONGEST", 5)
    a, b = matrices(5)
    in_strips(torch.mul, a, b.detach()).sum().backward()
    torch.testing.assert_close(a.grad, b.detach())
    assert b.grad is None


def test_a_large_posterior_is_what_a_small_one_is(monkeypatch: pytest.MonkeyPatch) -> None:
    scale, shape = matrices(8)
    prior = Gamma(torch.ones((), dtype=torch.double), torch.ones((), dtype=torch.double))
    found = []
    for longest in (1000, 5):
        monkeypatch.setattr(elementwise, "LONGEST", longest)
        posterior = Posterior(scale, shape, validate_args=False)
        torch.manual_seed(0)
        value = posterior.rsample() + posterior.mean + kl_divergence(posterior, prior)
        found.append((value, *torch.autograd.grad(value.sum(), (scale, shape))))
    for cut, whole in zip(*found, strict=True):
        torch.testing.assert_close(cut, whole)


def test_stacked_runs_go_through_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elementwise, "LONGEST", 5)
    a, b = matrices(4)
    stacked = torch.func.vmap(lambda x, y: in_strips(torch.mul, x, y))(a[:, None], b[:, None])
    torch.testing.assert_close(stacked, (a * b)[:, None])
