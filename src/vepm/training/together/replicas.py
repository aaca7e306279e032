"""Models of one make whose weights lie side by side."""

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from vepm.nn import VEPM
from vepm.training.together.norms import Presence, tell_norms
from vepm.training.together.products import share_products

T = TypeVar("T")


class Replicas:
    """R models as one program: every operation runs for all of them at once.

    Args:
        models: Models of the same settings; they keep the weights they have.
    """

    def __init__(self, models: Sequence[VEPM]) -> None:
        self.parameters, self.buffers = stack_module_state(list(models))
        self.presence = Presence()
        self.model = copy.deepcopy(models[0])
        """Gives every replica its form; its own weights serve nothing."""
        tell_norms(self.model, self.presence)
        share_products(self.model)
        self._caller = _Caller(self.model)

    def __len__(self) -> int:
        return len(next(iter(self.parameters.values())))

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(iter(self.parameters.values())).device

    def predictor_parameters(self) -> list[Tensor]:
        """Stacked parameters of all banks and composers."""
        return self._stacked(self.model.predictor_parameters())

    def encoder_parameters(self) -> list[Tensor]:
        """Stacked parameters of all inference networks."""
        return self._stacked(self.model.encoder_parameters())

    def _stacked(self, parameters: list[nn.Parameter]) -> list[Tensor]:
        names = {id(parameter): name for name, parameter in self.model.named_parameters()}
        return [self.parameters[names[id(parameter)]] for parameter in parameters]

    def each(self, function: Callable[..., T], *stacked: Any) -> T:
        """Call a function with each model and its share of stacked tensors [R, ...].

        Returns:
            What it returns, stacked. Random draws differ from replica to replica.
        """

        def one(parameters: dict[str, Tensor], buffers: dict[str, Tensor], own: Any) -> T:
            weights = {f"model.{name}": t for name, t in (parameters | buffers).items()}
            found: T = functional_call(self._caller, weights, (function, *own))
            return found

        return vmap(one, randomness="different")(self.parameters, self.buffers, stacked)

    def tensors(self) -> dict[str, Tensor]:
        """All that training changes, by name [R, ...]."""
        return {name: t.detach() for name, t in (self.parameters | self.buffers).items()}

    def states(self) -> Iterator[dict[str, Tensor]]:
        """Weights of each replica on its own."""
        for run in range(len(self)):
            yield {name: tensor[run] for name, tensor in self.tensors().items()}


class _Caller(nn.Module):
    """A model that can be given to any function with other weights in place of its own."""

    def __init__(self, model: VEPM) -> None:
        super().__init__()
        self.model = model

    def forward(self, function: Callable[..., T], *arguments: Any) -> T:
        return function(self.model, *arguments)
