"""Memory that training frees, kept for its next step.

PyTorch asks the C library for the memory of every tensor on a CPU. GNU's gives a large one back
to the system as soon as it is freed, which hands out the same pages for the next one, cleared
again. On a large graph that takes much of a step's time.
"""

import contextlib
import ctypes
import functools
import threading
from collections.abc import Iterator

# Numbers of the parameters in malloc.h.
TRIM_THRESHOLD, MMAP_THRESHOLD, MMAP_MAX = -1, -3, -4
NEVER = -1
USUAL = {MMAP_MAX: 65536, MMAP_THRESHOLD: 2**25, TRIM_THRESHOLD: 2**26}
"""How the library behaves by itself, once a program has freed tensors of 32 MiB."""

_lock = threading.Lock()
_users = 0


@contextlib.contextmanager
def kept_pages() -> Iterator[None]:
    """Let all of the process keep what it frees until the block ends, then give it back.

    Does nothing where the C library is another one than GNU's. Blocks may overlap, also in
    several threads: the last to end gives the memory back.

    Example:
        >>> with kept_pages():
        ...     total = sum(torch.ones(3).sum() for _ in range(2))
        >>> total
        tensor(6.)
    """
    global _users
    with _lock:
        _users += 1
        if _users == 1:
            _set({MMAP_MAX: 0, TRIM_THRESHOLD: NEVER})
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                _set(USUAL)
                _give_back()


def _set(parameters: dict[int, int]) -> None:
    library = _gnu_library()
    if library is not None:
        for parameter, value in parameters.items():
            library.mallopt(parameter, value)


def _give_back() -> None:
    library = _gnu_library()
    if library is not None:
        library.malloc_trim(ctypes.c_size_t(0))


@functools.cache
def _gnu_library() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL(None)
        # Others have functions of these names that mean something else.
        _ = library.gnu_get_libc_version, library.mallopt, library.malloc_trim
    except (AttributeError, OSError, TypeError):
        return None
    return library
