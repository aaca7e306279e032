"""Which nodes train, validate and test."""

import logging

import torch
from torch import Tensor
from torch_geometric.data import Data

from vepm.errors import InputError
from vepm.tasks import MASK_NAMES, UNLABELLED, Masks

logger = logging.getLogger("vepm")

SPLIT_NAMES = ("train", "val", "test")


def clean_masks(data: Data, result: Data, source: str) -> None:
    """Carry the masks of a node task over to its canonical graph, cut down to labelled nodes.

    Without a ``train_mask`` all labelled nodes train; other masks that are absent are all False.
    Of masks [N, R] for R splits, the first column is taken.
    """
    num_nodes = int(result.x.size(0))
    if result.y.numel() != num_nodes:
        return
    labelled = result.y != UNLABELLED
    given = {name: data[name] for name in MASK_NAMES if data.get(name) is not None}
    masks = [
        check_mask(given[name], num_nodes, f"{source}, {name}")[:, 0] & labelled
        if name in given
        else torch.zeros(num_nodes, dtype=torch.bool)
        for name in MASK_NAMES
    ]
    if "train_mask" not in given:
        masks[0] = labelled & ~masks[1] & ~masks[2]
    shared = int((masks[0] & (masks[1] | masks[2])).sum())
    if shared:
        logger.warning(
            "%s: %d training nodes are also held out; scores will flatter", source, shared
        )
    for name, mask in zip(MASK_NAMES, masks, strict=True):
        result[name] = mask


def check_mask(mask: object, num_nodes: int, source: str) -> Tensor:
    """A mask as boolean [N, R], R the number of splits it holds."""
    if not isinstance(mask, Tensor) or mask.dim() not in (1, 2) or mask.size(0) != num_nodes:
        shape = list(mask.shape) if isinstance(mask, Tensor) else type(mask).__name__
        raise InputError(f"{source}: is {shape}; one True or False per node ([{num_nodes}]) needed")
    if mask.dtype != torch.bool and not bool(((mask == 0) | (mask == 1)).all()):
        raise InputError(f"{source}: holds values other than 0 and 1; give a boolean mask")
    if mask.dim() == 2 and mask.size(1) == 0:
        raise InputError(f"{source}: holds no split; give a boolean mask [{num_nodes}]")
    return mask.detach().cpu().bool().reshape(num_nodes, -1)


def several_splits(data: Data, labelled: Tensor, source: str) -> tuple[Masks, ...] | None:
    """The splits of a graph whose masks are [N, R], R > 1; None if it has but one."""
    num_nodes = labelled.numel()
    columns = [
        check_mask(data[name], num_nodes, f"{source}, {name}")
        if data.get(name) is not None
        else torch.zeros(num_nodes, 1, dtype=torch.bool)
        for name in MASK_NAMES
    ]
    count = max(mask.size(1) for mask in columns)
    if count == 1:
        return None
    if any(mask.size(1) not in (1, count) for mask in columns):
        raise InputError(f"{source}: masks hold different numbers of splits; give the same of each")
    train, val, test = (mask.expand(num_nodes, count) & labelled[:, None] for mask in columns)
    return tuple((train[:, i], val[:, i], test[:, i]) for i in range(count))


def masks_from_text(values: list[str], source: str, lines: list[int]) -> Masks:
    """Masks from a column of train/val/test; an empty cell is in none of them."""
    for value, line in zip(values, lines, strict=True):
        if value and value not in SPLIT_NAMES:
            raise InputError(
                f"{source}, row {line}, column split: '{value}' is none of train, val, test; "
                "use one of these or leave the cell empty"
            )
    train, val, test = (torch.tensor([v == name for v in values]) for name in SPLIT_NAMES)
    return train, val, test


def draw_split(y: Tensor, *, per_class: int, num_val: int, seed: int) -> Masks:
    """A random split: so many a class to train on, so many to validate on, the rest to test on."""
    order = torch.randperm(y.numel(), generator=torch.Generator().manual_seed(seed))
    train = torch.zeros(y.numel(), dtype=torch.bool)
    for label in y[y != UNLABELLED].unique().tolist():
        train[order[y[order] == label][:per_class]] = True
    rest = order[~train[order] & (y[order] != UNLABELLED)]
    val, test = torch.zeros_like(train), torch.zeros_like(train)
    val[rest[:num_val]] = True
    test[rest[num_val:]] = True
    return train, val, test
