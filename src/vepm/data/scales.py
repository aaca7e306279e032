"""Whether feature columns can be compared."""

import logging

import torch

from vepm.data.dataset import Dataset
from vepm.data.sparse import is_sparse

logger = logging.getLogger("vepm")

LARGEST_RATIO = 10.0


def note_scales(dataset: Dataset) -> None:
    """Tell of feature columns that will count for little beside others.

    Rows are brought to one length before a model sees them, which suits bags of words; in a row of
    an age and a yes or no, the age is all that is left.

    Args:
        dataset: graphs from a user's files.
    """
    if dataset.feature_names is None or is_sparse(dataset.graphs[0].x):
        return
    x = torch.cat([graph.x for graph in dataset.graphs])
    varied = ((x != x[:1]).any(0)).nonzero().flatten()
    mostly_zero = x.count_nonzero() <= x.numel() / 2
    if varied.numel() < 2 or mostly_zero:
        return
    size = x[:, varied].square().mean(0).sqrt()
    ratio = float(size.max() / size.min())
    if ratio > LARGEST_RATIO:
        large, small = (dataset.feature_names[varied[i]] for i in (size.argmax(), size.argmin()))
        logger.warning(
            "%s: feature '%s' is %.0f times as large as '%s', which will count for little; bring "
            "the columns to one scale, such as mean 0 and deviation 1",
            dataset.name,
            large,
            ratio,
            small,
        )
