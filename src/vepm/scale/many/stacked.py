"""Models of the same architecture with stacked weights."""

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from vepm.nn import VEPM
from vepm.scale.many.norms import PaddingMask, mask_norms
from vepm.scale.many.products import share_products

T = TypeVar("T")


class StackedModels:
    """R models as one program: every operation runs for all of them at once.

    Args:
        models: Models of the same settings, whose weights are copied.
    """

    def __init__(self, models: Sequence[VEPM]) -> None:
        self.parameters, self.buffers = stack_module_state(list(models))
        self.padding = PaddingMask()
        self.model = copy.deepcopy(models[0])
        """Called with the weights of every run; its own weights are not used."""
        mask_norms(self.model, self.padding)
        share_products(self.model)
        self._caller = _Caller(self.model)
        self._kept: dict[str, Tensor] = {}
        self._runs: set[int] = set()

    def __len__(self) -> int:
        return len(next(iter(self.parameters.values())))

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(iter(self.parameters.values())).device

    def predictor_parameters(self) -> list[Tensor]:
        """Stacked parameters of all banks and composers."""
        return self._stacked(self.model.predictor_parameters())

    def undecayed_parameters(self) -> list[Tensor]:
        """Stacked parameters of all groupings and relevances."""
        return self._stacked(self.model.undecayed_parameters())

    def encoder_parameters(self) -> list[Tensor]:
        """Stacked parameters of all encoders."""
        return self._stacked(self.model.encoder_parameters())

    def _stacked(self, parameters: list[nn.Parameter]) -> list[Tensor]:
        names = {id(parameter): name for name, parameter in self.model.named_parameters()}
        return [self.parameters[names[id(parameter)]] for parameter in parameters]

    def each(self, function: Callable[..., T], *stacked: Any) -> T:
        """Call a function with each model and its slice of stacked tensors [R, ...].

        Returns:
            The results, stacked. Random draws differ from run to run.
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
        """Weights of each run."""
        for run in range(len(self)):
            yield {name: tensor[run] for name, tensor in self.tensors().items()}

    def keep(self, runs: Sequence[int]) -> None:
        """Remember the present weights of some runs."""
        if not runs:
            return
        tensors = self.tensors()
        self._kept = self._kept or {name: t.clone() for name, t in tensors.items()}
        self._copy(tensors, self._kept, runs)
        self._runs.update(runs)

    def restore(self) -> None:
        """Give every run the weights that were last remembered for it, and forget them."""
        self._copy(self._kept, self.tensors(), sorted(self._runs))
        self._kept, self._runs = {}, set()

    def _copy(
        self, source: dict[str, Tensor], target: dict[str, Tensor], runs: Sequence[int]
    ) -> None:
        chosen = torch.zeros(len(self), dtype=torch.bool)
        chosen[list(runs)] = True
        chosen = chosen.to(self.device)
        for name, tensor in source.items():
            mask = chosen.view(-1, *[1] * (tensor.dim() - 1))
            torch.where(mask, tensor, target[name], out=target[name])


class _Caller(nn.Module):
    """Passes a model to any function, so that functional_call can replace its weights."""

    def __init__(self, model: VEPM) -> None:
        super().__init__()
        self.model = model

    def forward(self, function: Callable[..., T], *arguments: Any) -> T:
        return function(self.model, *arguments)
