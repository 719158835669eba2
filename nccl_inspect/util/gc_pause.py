"""Keeps Python from looking for cyclic garbage where there is none."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def pause_collector(for_good: bool = False) -> Iterator[None]:
    """Look for no cyclic garbage while this is entered: reading makes none, and looking takes up to half of it.

    Args:
        for_good: whether the process ends soon after, so that nothing is to look any more.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was and not for_good:
            gc.enable()
