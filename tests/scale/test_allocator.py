import ctypes

import pytest
import torch

from training.toys import SMALL, roles, toy
from vepm.scale import allocator
from vepm.scale.allocator import KEEP, USUAL, keep_freed_memory
from vepm.training import fit

KEPT = [*KEEP.items()]
GIVEN_BACK = [*USUAL.items(), ("trim", 0)]


class Library:
    """Writes down what is asked of the C library."""

    def __init__(self) -> None:
        self.calls: list[tuple[int | str, int]] = []

    def mallopt(self, parameter: int, value: int) -> None:
        self.calls.append((parameter, value))

    def malloc_trim(self, pad: ctypes.c_size_t) -> None:
        self.calls.append(("trim", pad.value))


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    library = Library()
    monkeypatch.setattr(allocator, "_gnu_library", lambda: library)
    return library


def test_memory_is_kept_within_and_given_back_after(library: Library) -> None:
    with keep_freed_memory():
        assert library.calls == KEPT
    assert library.calls == [*KEPT, *GIVEN_BACK]


def test_an_error_gives_it_back_too(library: Library) -> None:
    with pytest.raises(ZeroDivisionError), keep_freed_memory():
        _ = 1 / 0
    assert library.calls == [*KEPT, *GIVEN_BACK]


def test_another_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    assert allocator._gnu_library.__wrapped__() is None


def test_a_system_without_a_c_library_of_its_own_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(name: None) -> None:
        raise TypeError("no name")

    monkeypatch.setattr(ctypes, "CDLL", refuse)
    assert allocator._gnu_library.__wrapped__() is None
    monkeypatch.setattr(allocator, "_gnu_library", lambda: None)
    with keep_freed_memory():
        assert torch.ones(3).sum() == 3


@pytest.mark.skipif(allocator._gnu_library() is None, reason="needs GNU's C library")
def test_a_large_tensor_lies_where_the_last_one_lay() -> None:
    """What is freed lies on the heap, and is there for whoever asks for less."""
    with keep_freed_memory():
        first = torch.empty(2**24)
        place = first.data_ptr()
        del first
        second = torch.empty(2**24 - 2**16)
        assert abs(second.data_ptr() - place) < 2**24


def test_training_keeps_memory_until_it_ends(library: Library) -> None:
    seen: list[bool] = []

    def look(*_: object) -> None:
        seen.append(library.calls == KEPT)

    fit(toy("node"), SMALL["node"], train_on=roles("node")[0], progress=look, device="cpu")
    assert seen
    assert all(seen)
    assert library.calls == [*KEPT, *GIVEN_BACK]
