"""Weibull posteriors of the affiliations: draws, means, and their divergence from a gamma prior."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.distributions import Gamma, Weibull
from torch.distributions.kl import register_kl

EULER_GAMMA = 0.57721566490153286061
# An affiliation of zero would give an observed edge probability zero and an infinite loss.
SMALLEST_AFFILIATION = 1e-6


@register_kl(Weibull, Gamma)
def _kl_weibull_gamma(q: Weibull, p: Gamma) -> Tensor:
    # The mean first: the order decides how gradients are added up, to the last bit.
    mean, shape, scale, alpha, beta = q.mean, q.concentration, q.scale, p.concentration, p.rate
    # Terms of the prior alone are added up first: they are far smaller than the posterior.
    constant = torch.lgamma(alpha) - alpha * torch.log(beta) - EULER_GAMMA - 1
    spread = EULER_GAMMA * alpha / shape + torch.log(shape)
    return spread - alpha * torch.log(scale) + beta * mean + constant


class Posterior(Weibull):
    """A Weibull whose mean, which likelihood and divergence both need, is computed once."""

    @property
    def mean(self) -> Tensor:
        """Mean of every entry."""
        # A mean computed without gradients must not be reused where gradients are needed.
        key = f"_mean_{torch.is_grad_enabled()}"
        if key not in self.__dict__:
            self.__dict__[key] = self.scale * torch.exp(torch.lgamma(1 + 1 / self.concentration))
        mean: Tensor = self.__dict__[key]
        return mean

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """A draw with gradients to shape and scale."""
        # Several times faster on a CPU than a draw from the exponential distribution.
        shape = self._extended_shape(torch.Size(sample_shape))
        uniform = torch.rand(shape, dtype=self.scale.dtype, device=self.scale.device)
        exponential = uniform.neg_().log1p_().neg_()
        return self.scale * exponential.pow(1 / self.concentration)


def draw(posterior: Weibull, sample: bool) -> Tensor:
    r"""Affiliations Z from their posterior: one reparameterised draw, or the mean.

    .. math:: Z = \Lambda \odot (-\log(1 - U))^{1 \oslash K}
    """
    z = posterior.rsample() if sample else posterior.mean
    return z.clamp_min(SMALLEST_AFFILIATION)
