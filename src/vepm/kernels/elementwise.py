"""Elementwise arithmetic on tall matrices, a strip of rows at a time.

Done at once, every intermediate result is as large as the matrix, and the system clears fresh
pages for each of them. Those of a strip are small enough for the C library to use again.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

LONGEST = 2**21
"""Numbers in a strip. Threads meet after every operation on one, so it must not be short either."""

Elementwise = Callable[..., Tensor]


def in_strips(function: Elementwise, *matrices: Tensor) -> Tensor:
    """What an elementwise function of matrices of one shape returns.

    The gradient computes the function again, strip by strip, instead of keeping what it needs.

    Example:
        >>> in_strips(torch.mul, torch.tensor([[2.0]]), torch.tensor([[3.0]]))
        tensor([[6.]])
    """
    first = matrices[0]
    if not worth_strips(first):
        return function(*matrices)
    return _InStrips.apply(function, *matrices)  # type: ignore[no-untyped-call]


def worth_strips(matrix: Tensor) -> bool:
    """Whether a matrix is so large that strips of it are faster."""
    large = matrix.device.type == "cpu" and matrix.numel() > LONGEST
    # Under vmap a tensor is larger than it looks, and all of it goes through at once.
    return large and not torch._C._functorch.is_batchedtensor(matrix)


def rows_of_strip(matrix: Tensor) -> int:
    """How many rows of a matrix make a strip."""
    return max(1, LONGEST * matrix.size(0) // matrix.numel())


class _InStrips(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, function: Elementwise, *matrices: Tensor) -> Tensor:
        ctx.function = function
        ctx.save_for_backward(*matrices)
        out = torch.empty_like(matrices[0], memory_format=torch.contiguous_format)
        rows = rows_of_strip(out)
        for part, *parts in zip(out.split(rows), *(m.split(rows) for m in matrices), strict=True):
            part.copy_(function(*parts))
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        matrices = ctx.saved_tensors
        needed = [i for i, needs in enumerate(ctx.needs_input_grad[1:]) if needs]
        found = {i: torch.empty_like(matrices[i]) for i in needed}
        rows = rows_of_strip(grad)
        for first in range(0, grad.size(0), rows):
            strip = slice(first, first + rows)
            parts = [m[strip].detach().requires_grad_(i in found) for i, m in enumerate(matrices)]
            with torch.enable_grad():
                value = ctx.function(*parts)
            moved = [parts[i] for i in needed]
            for i, part in zip(needed, torch.autograd.grad(value, moved, grad[strip]), strict=True):
                found[i][strip] = part
        return None, *(found.get(i) for i in range(len(matrices)))
