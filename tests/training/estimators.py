"""Estimators with small settings, fitted on the toys."""

import functools
from typing import Any

from torch_geometric.data import Data

from training.toys import SMALL, toy
from vepm import GraphClassifier, NodeClassifier

ESTIMATORS = {"node": NodeClassifier, "graph": GraphClassifier}


def node_data(**changes: Any) -> Data:
    data = toy("node").graphs[0].clone()
    del data.memberships
    for name, value in changes.items():
        data[name] = value
    return data


def graph_data() -> list[Data]:
    return [graph.clone() for graph in toy("graph").graphs]


def data_for(task: str) -> Any:
    return node_data() if task == "node" else graph_data()


def estimator(task: str, **options: Any) -> Any:
    return ESTIMATORS[task](config=SMALL[task], device="cpu", **options)


@functools.cache
def fitted(task: str) -> Any:
    return estimator(task).fit(data_for(task))
