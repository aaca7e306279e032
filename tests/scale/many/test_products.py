"""Linear maps of all replicas at once are those of each."""

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from strategies import quick, seeds, uniform
from vepm.nn.convolution import CommunityLinear
from vepm.scale.many import layers
from vepm.scale.many.layers import (
    SharedCommunityLinear,
    SharedLinear,
    product,
    product_over_rows,
)

RUNS, ROWS = 3, 11
INPUTS = {
    "one head": ((1, 4, 5), (ROWS, 1, 4)),
    "many heads": ((2, 4, 5), (ROWS, 2, 4)),
    "the same for all heads": ((2, 4, 5), (ROWS, 4)),
}


@pytest.fixture(params=[1, 4])
def pieces(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """As if on a GPU."""
    monkeypatch.setattr(layers, "chunk_count", lambda x, y: request.param)
    count: int = request.param
    return count


@quick
@given(st.integers(1, 20), st.integers(1, 20), seeds)
def test_sums_over_pieces_are_sums(rows: int, pieces: int, seed: int) -> None:
    x, y = uniform(seed, 2, rows, 3), uniform(seed + 1, 2, rows, 4)
    found = product_over_rows(x, y, min(pieces, rows))
    torch.testing.assert_close(found, x.transpose(1, 2) @ y)


def test_gradients_are_those_of_differences(pieces: int) -> None:
    x, weight = uniform(0, 2, ROWS, 3).requires_grad_(), uniform(1, 2, 3, 4).requires_grad_()
    assert torch.autograd.gradcheck(product, (x, weight))


@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.parametrize("shared", [False, True])
def test_maps_of_communities(name: str, shared: bool, pieces: int) -> None:
    (heads, width, out), shape = INPUTS[name]
    maps = [CommunityLinear(width, out, heads).double() for _ in range(RUNS)]
    x = uniform(5, *shape) if shared else uniform(5, RUNS, *shape)
    _check(maps, SharedCommunityLinear(CommunityLinear(width, out, heads).double()), x, shared)


@pytest.mark.parametrize("shared", [False, True])
def test_plain_maps(shared: bool, pieces: int) -> None:
    maps = [nn.Linear(4, 5).double() for _ in range(RUNS)]
    x = uniform(5, ROWS, 4) if shared else uniform(5, RUNS, ROWS, 4)
    _check(maps, SharedLinear(nn.Linear(4, 5).double()), x, shared)


def _check(maps: Sequence[nn.Module], together: nn.Module, x: Tensor, shared: bool) -> None:
    """Outputs and gradients of maps one by one and at once."""
    x.requires_grad_()
    weights, _ = stack_module_state(list(maps))
    outputs = torch.stack([one(x if shared else x[r]) for r, one in enumerate(maps)])
    weigh = uniform(9, *outputs.shape)
    each = list(zip(*(one.parameters() for one in maps), strict=True))
    expected = torch.autograd.grad((weigh * outputs).sum(), [x, *(p for ps in each for p in ps)])

    def call(own: dict[str, Tensor], x: Tensor) -> Tensor:
        found: Tensor = functional_call(together, own, (x,))
        return found

    found = vmap(call, in_dims=(0, None if shared else 0))(weights, x)
    torch.testing.assert_close(found, outputs)
    gradients = torch.autograd.grad((weigh * found).sum(), [x, *weights.values()])
    torch.testing.assert_close(gradients[0], expected[0])
    for i, gradient in enumerate(gradients[1:]):
        own = expected[1 + RUNS * i : 1 + RUNS * (i + 1)]
        torch.testing.assert_close(gradient, torch.stack(own))
