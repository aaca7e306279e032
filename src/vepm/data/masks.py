"""Which nodes or graphs train, validate and test, as data say it, or drawn."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from vepm.data.dataset import Dataset
from vepm.data.labels import encode
from vepm.errors import InputError
from vepm.tasks import MASK_NAMES, UNLABELLED, Masks

logger = logging.getLogger("vepm")


def item_masks(
    given: Mapping[str, object], labelled: Tensor, source: str
) -> tuple[Masks, tuple[Masks, ...] | None]:
    """The masks of the first split, and of all if there are several, among labelled nodes.

    Those given are [N], or [N, R] for R splits. Without a ``train_mask`` all labelled nodes outside
    the other masks are for training.
    """
    columns, count = {}, labelled.numel()
    for name in (name for name in MASK_NAMES if given.get(name) is not None):
        try:
            mask = torch.as_tensor(given[name]).detach().cpu()
            right = mask.dim() in (1, 2) and len(mask) == count and mask.numel() > 0
            right = right and bool(((mask == 0) | (mask == 1)).all())
        except (TypeError, ValueError, RuntimeError):
            right, mask = False, torch.empty(0)
        if not right:
            needed = f"one True or False (1 or 0) per node ([{count}]) is needed"
            raise InputError(f"{source}, {name}: is {list(mask.shape)} {mask.dtype}; {needed}")
        columns[name] = mask.bool().reshape(count, -1)
    widths = {mask.size(1) for mask in columns.values()} | {1}
    if len(widths - {1}) > 1:
        raise InputError(f"{source}: masks hold different numbers of splits; give the same of each")
    known = labelled[:, None].expand(-1, max(widths))
    val, test = (columns.get(name, ~known) & known for name in MASK_NAMES[1:])
    train = columns.get("train_mask", ~(val | test)) & known
    splits = tuple(zip(train.unbind(1), val.unbind(1), test.unbind(1), strict=True))
    shared = int((splits[0][0] & (splits[0][1] | splits[0][2])).sum())
    if shared:
        both = f"{shared} training nodes are also in the validation or test part"
        logger.warning("%s: %s; scores will be too high", source, both)
    return splits[0], splits if len(splits) > 1 else None


def draw_split(y: Tensor, *, per_class: int, num_val: int, seed: int) -> Masks:
    """A random split: this many per class train, this many validate and the rest test."""
    order = torch.randperm(y.numel(), generator=torch.Generator().manual_seed(seed))
    rest, val = y != UNLABELLED, torch.zeros(y.numel(), dtype=torch.bool)
    train = val.clone()
    for label in y[rest].unique().tolist():
        train[order[y[order] == label][:per_class]] = True
    val[order[(rest & ~train)[order]][:num_val]] = True
    return train, val, rest & ~train & ~val


def relabelled(
    dataset: Dataset, y: Any, rows: Tensor | None = None, class_names: Sequence[str] | None = None
) -> Dataset:
    """A dataset with other labels ``y`` than its own, in the order of :attr:`Dataset.labels`.

    If ``rows`` are given, ``y`` are the labels of these alone; then the masks of the dataset do not
    hold, and all of them train. ``class_names`` are the classes of a fitted model.

    Example:
        >>> from vepm.data import load, relabelled
        >>> dataset = relabelled(load("KarateClub"), ["left", "right"], torch.tensor([0, 33]))
        >>> dataset.class_names, dataset.graphs[0].train_mask.sum()
        (('left', 'right'), tensor(2))
    """
    name, labels = dataset.name, torch.full_like(dataset.labels, UNLABELLED)
    chosen = torch.arange(labels.numel()) if rows is None else rows
    labels[chosen], names = encode(y, len(chosen), None, name, class_names)
    given: dict[str, Tensor] = {}
    if rows is None and dataset.masks is not None:
        train, val, test = dataset.masks
        given = {"val_mask": val, "test_mask": test}
        # A train mask that only follows from the labels does so from the new ones too.
        if not torch.equal(train, (dataset.labels != UNLABELLED) & ~(val | test)):
            given["train_mask"] = train
    masks, splits = item_masks(given, labels >= 0, name)
    changed = replace(dataset.with_labels(labels), num_classes=len(names), class_names=names)
    if dataset.single_graph:
        changed.graphs[0].update(dict(zip(MASK_NAMES, masks, strict=True)))
        return replace(changed, splits=splits)
    return replace(changed, splits=(masks,) if given else None)
