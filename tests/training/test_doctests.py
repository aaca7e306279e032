"""The examples in the documentation say what happens."""

import doctest
import importlib
import pkgutil

import pytest
import torch
from torch_geometric.data import Data

import vepm.training

MODULES = [
    "vepm.errors",
    "vepm.estimators.classifiers",
    "vepm.estimators.communities",
    "vepm.data.labels",
    "vepm.training",
    *(f"vepm.training.{module.name}" for module in pkgutil.iter_modules(vepm.training.__path__)),
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_hold(name: str) -> None:
    module = importlib.import_module(name)
    result = doctest.testmod(module, extraglobs={"torch": torch, "Data": Data})
    assert result.failed == 0


@pytest.mark.parametrize("name", ["vepm.estimators.classifiers", "vepm.training.config"])
def test_main_modules_have_examples(name: str) -> None:
    tests = doctest.DocTestFinder(exclude_empty=True).find(importlib.import_module(name))
    assert any(test.examples for test in tests)
