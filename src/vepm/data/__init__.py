"""Graphs in: benchmarks, bundled defaults and users' own, validated at the door."""

from vepm.data.cleaning import clean
from vepm.data.convert import as_dataset
from vepm.data.dataset import Dataset, require_labels
from vepm.data.files import read
from vepm.data.generate import planted_graph, sample_graph
from vepm.data.registry import DatasetInfo, datasets, is_recipe, load

__all__ = [
    "Dataset",
    "DatasetInfo",
    "as_dataset",
    "clean",
    "datasets",
    "is_recipe",
    "load",
    "planted_graph",
    "read",
    "require_labels",
    "sample_graph",
]
