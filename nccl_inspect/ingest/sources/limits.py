"""How much packed data may stand for: a few kilobytes can hold terabytes, which nobody wants to wait for."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from nccl_inspect.errors import NcclInspectError
from nccl_inspect.ingest.sources.streams import Pieces, StreamError
from nccl_inspect.util.patterns import compile_later

VARIABLE = "NCCLINSPECT_MAX_UNPACKED"
"""The environment variable that sets the limit, such as ``200G``; the option ``--max-unpacked`` is the same."""
_DEFAULT = 64 << 30
_FREE = 2 << 30
_RATIO = 2000
"""Logs pack to a twentieth, a flood of one line to a thousandth."""
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE = compile_later(r"([0-9]{1,15})([KMGT]?)(?:i?B)?", re.IGNORECASE)


_GIVEN: ContextVar[str | None] = ContextVar("limit", default=None)


def given() -> str | None:
    """Return the limit that somebody set; None for the usual one."""
    return _GIVEN.get() or os.environ.get(VARIABLE) or None


@contextmanager
def as_given(limit: str | None) -> Iterator[None]:
    """Hold to the limit of another process while it is entered."""
    before = _GIVEN.set(limit)
    try:
        yield
    finally:
        _GIVEN.reset(before)


def size(text: str) -> int:
    """Bytes as people write them: ``500M``, ``2G``.

    Raises:
        NcclInspectError: it is not a size.
    """
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise NcclInspectError(f"invalid size '{text}' for --max-unpacked", "write 500M, 200G or 2T")
    return int(match[1]) * _UNITS[match[2].upper()]


class Allowance:
    """Holds what one input may unpack to, all members of an archive together.

    Args:
        free: unpacked bytes that are read however few packed ones they came from.
        ratio: beyond them, unpacked bytes for one packed one.
    """

    def __init__(self, free: int = _FREE, ratio: int = _RATIO) -> None:
        wanted = given()
        self._most = size(wanted) if wanted else _DEFAULT
        self._free, self._ratio = free, None if wanted else ratio
        self._packed = self._given = 0

    def take(self, packed: int) -> None:
        """Count packed bytes that were read."""
        self._packed += packed

    def give(self, unpacked: int) -> None:
        """Count the bytes that came of them.

        Raises:
            StreamError: they are too many.
        """
        self._given += unpacked
        if self._given > self._most:
            raise self._error(f"it decompresses to more than {_words(self._most)}")
        if self._ratio and self._given > max(self._free, self._ratio * self._packed):
            raise self._error(f"it decompresses to more than {self._ratio:,} times its size, unlike any log")

    def count_pieces(self, data: Pieces) -> Pieces:
        """Yield unpacked data, within the allowance."""
        for piece in data:
            yield piece
            self.give(len(piece))

    def _error(self, what: str) -> StreamError:
        more = max(2 * self._most, _DEFAULT)
        return StreamError(f"{what}; reading stopped there", f"use --max-unpacked {_words(more)} to read on")


def _words(number: int) -> str:
    unit = next((unit for unit in "TGMK" if number >= _UNITS[unit] and number % _UNITS[unit] == 0), "")
    return f"{number // _UNITS[unit]}{unit}"
