"""What holds for the dataclasses and the constants of every module."""

import dataclasses
import importlib
import pkgutil
import re
from collections.abc import Iterator
from typing import Any

import vepm

CHANGED_IN_PLACE = {"Ended", "_Step", "Course", "TrainingState"}
OF_FUNCTIONS = {"Protocol", "Tuning"}
"""Their types name tensors, which only functions of theirs take."""


def names_of_all_modules() -> Iterator[tuple[str, str, Any]]:
    for module in pkgutil.walk_packages(vepm.__path__, "vepm."):
        if not module.name.endswith("__main__"):
            for name, found in vars(importlib.import_module(module.name)).items():
                yield module.name, name, found


def dataclasses_of_all_modules() -> Iterator[Any]:
    for module, _, found in names_of_all_modules():
        own = getattr(found, "__module__", "") == module
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


def test_what_is_done_in_chunks_is_neither_done_piecemeal_nor_at_once() -> None:
    found = {
        f"{module}.{name}": value
        for module, name, value in names_of_all_modules()
        if re.search(r"(_|^)(AT_ONCE|STRIP|BLOCK)$", name)
    }
    assert len(found) > 8
    # Python takes longer to begin a chunk than to work on some numbers; a few millions of rows of
    # usual width fill the memory of a small machine.
    assert {name: value for name, value in found.items() if not 64 <= value <= 2**22} == {}
