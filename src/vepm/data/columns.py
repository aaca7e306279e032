"""Feature columns are matched by name, so that their order does not matter."""

import logging
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from vepm.data.cleaning import DEGREE_FEATURES
from vepm.data.dataset import Dataset
from vepm.data.sparse import is_sparse
from vepm.errors import InputError

logger = logging.getLogger("vepm")

_MOST_LISTED = 8


def with_columns(dataset: Dataset, names: tuple[str, ...] | None, width: int) -> Dataset:
    """The dataset with the feature columns that a model was trained on, in the model's order.

    Columns are matched by name if the model and the data both have names, and by position
    otherwise; a warning is logged if only one of them does.

    Args:
        dataset: new data for the model.
        names: the model's feature names, if it has any.
        width: the number of features of the model.

    Raises:
        InputError: if columns are missing or unknown.

    Example:
        >>> from vepm.data import load
        >>> from vepm.data.columns import with_columns
        >>> digits = load("digits")
        >>> with_columns(digits, digits.feature_names[::-1], 64).feature_names[0]
        'pixel_7_7'
    """
    if names is not None and names == dataset.feature_names:
        return dataset
    if names is not None and dataset.feature_names is not None:
        graphs = [graph.clone() for graph in dataset.graphs]
        for graph in graphs:
            graph.x = in_order(graph.x, dataset.feature_names, names, dataset.name)
        return replace(dataset, graphs=graphs, feature_names=names)
    if dataset.num_features != width:
        raise InputError(
            f"{dataset.name}: has {dataset.num_features} features, the model was trained on "
            f"{width}; give the same columns in the same order"
        )
    if names != dataset.feature_names:
        nameless = "the model has" if names is None else "the data have"
        logger.warning(
            "%s: %s no column names, so columns are matched by position; make sure that they are "
            "in the order of training",
            dataset.name,
            nameless,
        )
    return replace(dataset, feature_names=names)


def in_order(x: Tensor, names: Sequence[str], wanted: Sequence[str], source: str) -> Tensor:
    """Feature columns put in the wanted order.

    Args:
        x: features [N, F], dense or sparse.
        names: the name of each column.
        wanted: the same names in another order.
        source: what to call the data in messages.

    Raises:
        InputError: if columns are missing or unknown; it names them.
    """
    if tuple(names) == tuple(wanted):
        return x
    place = {name: i for i, name in enumerate(names)}
    missing = [name for name in wanted if name not in place]
    unknown = sorted(place.keys() - set(wanted), key=place.__getitem__)
    if missing or unknown:
        raise InputError(f"{source}: {_mismatch(missing, unknown)}")
    found = x.index_select(1, torch.tensor([place[name] for name in wanted]))
    return found.coalesce() if is_sparse(x) else found


def _mismatch(missing: list[str], unknown: list[str]) -> str:
    """What is wrong with the columns, and what to do about it."""
    if set(DEGREE_FEATURES) <= set(missing):
        return f"the model was trained without features; leave out {_listed(unknown)}"
    if set(DEGREE_FEATURES) <= set(unknown):
        return f"the graph has no features, the model needs {_listed(missing)}; add these columns"
    parts = [f"{_listed(missing)} missing"] if missing else []
    parts += [f"{_listed(unknown)} unknown to the model"] if unknown else []
    return (
        f"feature columns differ from those of training: {' and '.join(parts)}; give the same "
        "columns, in any order"
    )


def _listed(names: list[str]) -> str:
    shown = ", ".join(map(repr, names[:_MOST_LISTED]))
    more = len(names) - _MOST_LISTED
    return f"{shown} and {more} more" if more > 0 else shown
