"""Reads pickles that hold plain values only: dictionaries, lists, tuples, text, numbers, bytes.

A pickle is a program; one from a stranger may run anything. This reader looks up no name at all but the two by which
PyTorch's own pickler marks typed lists, and both give the list that they are given.
"""

from __future__ import annotations

import io
import pickle
from typing import Any, NoReturn

MAX_BYTES = 256 << 20
"""The largest pickle that is read; a dump of 20,000 calls with their stacks has about 20 MB."""
_LIST_MARKS = frozenset(
    f"build_{kind}list" for kind in ("int", "tensor", "double", "bool")
)  # torch/jit/_pickle.py; PyTorch writes lists of one type so


class PlainPickleError(ValueError):
    """The data is no pickle of plain values."""


def loads(data: bytes) -> Any:
    """The value of a pickle.

    Args:
        data: the whole pickle.

    Raises:
        PlainPickleError: it is damaged, too large, or asks for more than plain values.
    """
    if len(data) > MAX_BYTES:
        raise PlainPickleError(f"larger than {MAX_BYTES >> 20} MB")
    try:
        return _Reader(io.BytesIO(data), encoding="utf-8", errors="replace").load()
    except PlainPickleError:
        raise
    except (MemoryError, OverflowError, RecursionError):
        raise PlainPickleError("its contents are larger than the file") from None
    except Exception as error:  # a damaged pickle may raise anything: EOFError, IndexError, KeyError, TypeError, …
        raise PlainPickleError(f"damaged: {type(error).__name__}") from None


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module == "torch.jit._pickle" and name in _LIST_MARKS:
            return list
        raise PlainPickleError(f"it asks for {module[:60]}.{name[:60]}, which a dump of plain values never does")

    def persistent_load(self, _pid: Any) -> NoReturn:
        raise PlainPickleError("it refers to objects outside of itself")

    def get_extension(self, _code: int) -> NoReturn:
        raise PlainPickleError("it uses registered extensions")
