"""Models whose weights or outputs are not finite are neither saved nor loaded."""

from pathlib import Path

import torch
from torch import Tensor

from vepm.errors import InputError
from vepm.nn import VEPM
from vepm.training.prediction import seeded

LARGEST_WEIGHT = 1e30
"""More than a trained model holds, and near the end of single precision."""


def require_usable(path: Path, model: VEPM, in_channels: int) -> None:
    """Refuse a model whose weights are not finite, or lead to numbers that are not.

    Args:
        path: Where it is read from or to be written to.
        model: The model.
        in_channels: Number of features.

    Raises:
        InputError: if the model can predict nothing.
    """
    remedy = "training diverged or the file was tampered with; train with a lower learning rate"
    for name, tensor in model.state_dict().items():
        if not (tensor.abs() <= LARGEST_WEIGHT).all():
            raise InputError(f"{path}: {name} is not finite, or beyond all bounds; {remedy}")
    if not _answer(model, in_channels).isfinite().all():
        raise InputError(f"{path}: the model gives no finite numbers; {remedy}")


@torch.no_grad()
def _answer(model: VEPM, in_channels: int) -> Tensor:
    """What a model says of the smallest graph with an edge."""
    device, training = model.activation.device, model.training
    x = torch.ones(2, in_channels, device=device)
    edge_index = torch.tensor([[1, 0], [0, 1]], device=device)
    with seeded(model):
        found = model.eval()(x, edge_index)
    model.train(training)
    return torch.cat([part.flatten() for part in (found.z, found.edge_weight, found.logits)])
