"""Functions with their own batching rule, called with the tensors of all runs under ``vmap``."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Rule = Callable[..., tuple[Tensor, int]]
"""Given the number of runs, the run axis of each tensor (or None) and the tensors, returns a tensor
and its run axis."""


class _WithRule(torch.autograd.Function):
    """Calls the rule from PyTorch's documented hook, a function's own ``vmap``."""

    @staticmethod
    def forward(rule: Rule, *tensors: Tensor) -> Tensor:
        # All runs have the same tensors. Weights differ, so nothing here needs a gradient.
        out, axis = rule(1, (None,) * len(tensors), *tensors)
        return out.select(axis, 0)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        pass

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], rule: Rule, *tensors: Tensor
    ) -> tuple[Tensor, int]:
        return rule(info.batch_size, in_dims[1:], *tensors)


def publicly_across(rule: Rule, *tensors: Tensor) -> Tensor:
    """:func:`across` by what PyTorch documents."""
    return _WithRule.apply(rule, *tensors)  # type: ignore[no-untyped-call]


def quickly_across(rule: Rule, *tensors: Tensor) -> Tensor:
    """:func:`across` by what PyTorch itself uses, thirty times faster."""
    levels = [_functorch.maybe_get_level(tensor) for tensor in tensors]
    level = max(levels)
    if level < 0:
        return publicly_across(rule, *tensors)
    inside = [found == level for found in levels]
    dims = [
        _functorch.maybe_get_bdim(t) if i else None for t, i in zip(tensors, inside, strict=True)
    ]
    whole = [_functorch.get_unwrapped(t) if i else t for t, i in zip(tensors, inside, strict=True)]
    first = inside.index(True)
    with temporarily_pop_interpreter_stack():
        out, axis = rule(whole[first].size(dims[first]), tuple(dims), *whole)
    return _functorch._add_batch_dim(out, axis, level)


try:
    from torch._C import _functorch
    from torch._functorch.pyfunctorch import temporarily_pop_interpreter_stack
except ImportError:
    across = publicly_across
else:
    across = quickly_across
