"""WikiCS, with its 20 splits."""

import json
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Data
from torch_geometric.datasets import WikiCS

from vepm.data.assemble import node_dataset, recode
from vepm.data.cleaning import clean
from vepm.data.dataset import Dataset
from vepm.data.masks import several_splits
from vepm.data.raw import RawFiles
from vepm.errors import InputError

WIKICS_FILES = RawFiles("WikiCS", ("data.json",), (f"{WikiCS.url}/data.json",))


def load_wikics(root: Path) -> Dataset:
    """The Wikipedia network as an undirected graph; its own masks are those of the first split."""
    path = WIKICS_FILES.ensure(root) / "data.json"
    raw = _parse(path)
    try:
        data = _to_data(raw)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path}: not the WikiCS layout ({error!r}); fetch it again") from None
    cleaned = clean(data, source=str(path))
    names = recode([cleaned], str(path), None)
    return node_dataset(
        cleaned,
        name="WikiCS",
        source=f"WikiCS, {path.parent}",
        class_names=names,
        splits=several_splits(data, cleaned.y >= 0, str(path)),
    )


def _parse(path: Path) -> dict[str, Any]:
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{path}: not JSON ({error}); fetch it again") from None
    if not isinstance(raw, dict):
        raise InputError(f"{path}: not the WikiCS layout; fetch it again")
    return raw


def _to_data(raw: dict[str, Any]) -> Data:
    links = chain.from_iterable(((i, j) for j in js) for i, js in enumerate(raw["links"]))
    return Data(
        x=torch.tensor(raw["features"], dtype=torch.float),
        edge_index=torch.tensor(list(links), dtype=torch.long).view(-1, 2).t(),
        y=torch.tensor(raw["labels"], dtype=torch.long),
        train_mask=torch.tensor(raw["train_masks"], dtype=torch.bool).t(),
        val_mask=torch.tensor(raw["val_masks"], dtype=torch.bool).t(),
        test_mask=torch.tensor(raw["test_mask"], dtype=torch.bool),
    )
