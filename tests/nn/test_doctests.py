"""The examples in the documentation say what happens."""

import doctest
import importlib
import pkgutil

import pytest
import torch

import vepm.nn
import vepm.objective

MODULES = [
    "vepm.objective",
    *(f"vepm.nn.{module.name}" for module in pkgutil.iter_modules(vepm.nn.__path__)),
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_hold(name: str) -> None:
    module = importlib.import_module(name)
    result = doctest.testmod(module, extraglobs={"torch": torch})
    assert result.failed == 0


@pytest.mark.parametrize(
    "name",
    ["vepm.objective", "vepm.kernels.aggregation", "vepm.nn.partitioner", "vepm.nn.model"],
)
def test_main_modules_have_examples(name: str) -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    tests = finder.find(importlib.import_module(name), extraglobs={"torch": torch})
    assert any(test.examples for test in tests)
