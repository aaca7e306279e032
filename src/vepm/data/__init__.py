"""Graphs in: benchmarks, bundled sets, generators and users' own, checked on the way in."""

from vepm.data.dataset import Dataset, relabelled, require_labels
from vepm.data.generate import planted_graph, planted_relations, sample_graph
from vepm.data.reading import as_dataset, read
from vepm.data.registry import DatasetInfo, datasets, is_recipe, load

__all__ = [
    "Dataset",
    "DatasetInfo",
    "as_dataset",
    "datasets",
    "is_recipe",
    "load",
    "planted_graph",
    "planted_relations",
    "read",
    "relabelled",
    "require_labels",
    "sample_graph",
]
