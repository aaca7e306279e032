"""The examples in the documentation say what happens."""

import doctest
import importlib
import pkgutil

import pytest

import vepm.search

OWN = [f"vepm.search.{module.name}" for module in pkgutil.iter_modules(vepm.search.__path__)]
MODULES = [*OWN, "tools.sweep"]


@pytest.mark.parametrize("name", MODULES)
def test_examples_hold(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0
