"""Memory: no search for cyclic garbage where there is none, and some to unwind with when it runs out."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")
_RESERVE = 8 << 20  # bytes; of such a block the system gives no memory before it is written to
_reserve: list[bytes] = []
"""The block that is given back, made once: the library of C fills each further one with zeros, which takes 2 ms."""


@contextmanager
def pause_collector(for_good: bool = False) -> Iterator[None]:
    """Look for no cyclic garbage while this is entered, or for good: reading makes none, and looking takes long."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was and not for_good:
            gc.enable()


def keep_reserve(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Return the function with memory set aside that is given back when no more is to be had.

    Python needs a few bytes to leave a ``with`` block by an error, and tries for ever to get them. An extension in C
    that gets none may return without saying why, which Python calls a system error.
    """

    @wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        if not _reserve:
            _reserve.append(bytes(_RESERVE))
        try:
            return function(*args, **kwargs)
        except (MemoryError, SystemError):
            _reserve.clear()
            raise MemoryError from None

    return call
