"""Weights put by for replicas that others would train past."""

from collections.abc import Sequence

import torch
from torch import Tensor

from vepm.training.together.replicas import Replicas


class Keeper:
    """Holds weights of some replicas until the others have finished too.

    Args:
        replicas: Whose weights.
    """

    def __init__(self, replicas: Replicas) -> None:
        self.replicas = replicas
        self._kept: dict[str, Tensor] = {}
        self._runs: set[int] = set()

    def keep(self, runs: Sequence[int]) -> None:
        """Put by the weights that these replicas have now."""
        if not runs:
            return
        tensors = self.replicas.tensors()
        self._kept = self._kept or {name: t.clone() for name, t in tensors.items()}
        self._copy(tensors, self._kept, runs)
        self._runs.update(runs)

    def put_back(self) -> None:
        """Give every replica what was last put by for it, and forget it."""
        self._copy(self._kept, self.replicas.tensors(), sorted(self._runs))
        self._kept, self._runs = {}, set()

    def _copy(
        self, source: dict[str, Tensor], target: dict[str, Tensor], runs: Sequence[int]
    ) -> None:
        chosen = torch.zeros(len(self.replicas), dtype=torch.bool)
        chosen[list(runs)] = True
        chosen = chosen.to(self.replicas.device)
        for name, tensor in source.items():
            mask = chosen.view(-1, *[1] * (tensor.dim() - 1))
            torch.where(mask, tensor, target[name], out=target[name])
