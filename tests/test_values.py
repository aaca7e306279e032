"""What holds for the dataclasses of every module."""

import dataclasses
import importlib
import pkgutil
import re
from collections.abc import Iterator
from typing import Any

import vepm

CHANGED_IN_PLACE = {"Ended", "_Captured", "Course", "TrainingState"}
OF_FUNCTIONS = {"Protocol", "Tuning"}
"""Their types name tensors, which only functions of theirs take."""


def dataclasses_of_all_modules() -> Iterator[Any]:
    for module in pkgutil.walk_packages(vepm.__path__, "vepm."):
        if not module.name.endswith("__main__"):
            for found in vars(importlib.import_module(module.name)).values():
                own = getattr(found, "__module__", "") == module.name
                if own and "__dataclass_params__" in getattr(found, "__dict__", {}):
                    yield found


def test_values_are_frozen_and_those_of_tensors_compared_by_identity() -> None:
    found = list(dataclasses_of_all_modules())
    assert len(found) > 50
    for own in found:
        options = own.__dataclass_params__
        assert options.frozen == (own.__name__ not in CHANGED_IN_PLACE), own
        kinds = [str(field.type) for field in dataclasses.fields(own)]
        held = [kind for kind in kinds if re.search(r"\b(Tensor|Data)\b", kind)]
        if options.frozen and held and own.__name__ not in OF_FUNCTIONS:
            # Tensors have no one truth value, which equality would ask for.
            assert not options.eq, own
