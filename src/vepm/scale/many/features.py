"""Sparse features under ``vmap``."""

import torch
from torch import Tensor

from vepm.kernels.features import Features
from vepm.nn import SparseFeatures
from vepm.scale.many.edges import Dims, apart, beside
from vepm.scale.many.vmap import across


class SharedFeatures(SparseFeatures):
    """Sparse features that all runs read, perhaps with different values.

    Where the values are equal, one product serves the weights of all runs; where dropout has made
    them differ, the matrices form a block-diagonal one.
    """

    _blocks: dict[int, SparseFeatures]

    @classmethod
    def of(cls, x: Features) -> Features:
        """The same features, to be read by many runs."""
        if isinstance(x, Tensor):
            return x
        shared = object.__new__(cls)
        shared.__dict__ |= x.__dict__ | {"_normalised": {}, "_blocks": {}}
        return shared

    def __matmul__(self, weight: Tensor) -> Tensor:
        def rule(runs: int, dims: Dims, values: Tensor, weight: Tensor) -> tuple[Tensor, int]:
            if dims[0] is None:
                return apart(self._plain(values) @ beside(weight, dims[1], 1, runs), 1, runs)
            blocks = self._diagonal(runs).with_values(beside(values, dims[0], 0, runs))
            return apart(blocks @ beside(weight, dims[1], 0, runs), 0, runs)

        return across(rule, self.values, weight)

    def _plain(self, values: Tensor) -> SparseFeatures:
        plain = object.__new__(SparseFeatures)
        plain.__dict__ |= self.__dict__ | {"values": values}
        return plain

    def _diagonal(self, runs: int) -> SparseFeatures:
        """The pattern repeated along the diagonal."""
        if runs not in self._blocks:
            first = self.row_pointer.new_tensor(range(runs)).long()[:, None]
            starts = (self.row_pointer[:-1] + first * self.rows.numel()).flatten()
            pointer = starts.new_tensor([runs * self.rows.numel()])
            columns = (self.columns + first * self.shape[1]).flatten()
            self._blocks[runs] = SparseFeatures(
                torch.cat([starts, pointer]), columns, columns, runs * self.shape[1]
            )
        return self._blocks[runs]
