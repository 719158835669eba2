"""Where Python tracebacks end: the exception stands in the first line that is not indented, whatever its name is.

Several printers may write tracebacks at once; what stands in front of their lines tells them apart.
"""

from __future__ import annotations

import re
from typing import NamedTuple, TypeAlias

from nccl_inspect.ingest import envelopes
from nccl_inspect.ingest.stated import Inner, Stated

MARK = b"Traceback (most recent call last):"
_OF_RAY = b": ray::"
"""With which Ray names the call that raised: the frames of that call follow, and then the exception."""
_FAR = 64
"""So many lines later at most: others print in between."""
_EXCEPTION = re.compile(rb"(?!SystemExit(?:: 0)?$|GeneratorExit)[A-Za-z_]\w{0,100}(?:\.\w{1,100}){0,20}(?:: .*)?")
_IS_NAMED = re.compile(rb"[\w.]*(?:\.|\b)[A-Z]\w*(?:$|:)|\w+\.\w")
"""A class begins with a capital, or comes with its module: ``socket.timeout``."""


class _Printer(NamedTuple):
    """What tells the printers of tracebacks apart: how many prefixes stand in front, and what they state."""

    depth: int
    label: str | None
    rank: int | None


Open: TypeAlias = dict[_Printer, int]
"""The printers of tracebacks that have not ended, with the last line that may be the next one."""


def begin(line: bytes, number: int, stated: Stated, found: Open) -> None:
    """Remember that a traceback begins, if that is all that stands in a line."""
    inner = Inner(line, stated)
    for depth in range(envelopes.MAX_DEPTH):
        if inner.text.startswith(MARK):
            found[_Printer(depth, inner.stated.label, inner.stated.rank)] = number + _FAR
            return
        layer = envelopes.peel(inner.text)
        if layer is None:
            return
        inner = Inner(layer.text, layer.stated.within(inner.stated))


def ended(line: bytes, number: int, stated: Stated, found: Open) -> Inner | None:
    """The exception that a line tells, if a traceback ends with it; None for all other lines."""
    for printer, last in list(found.items()):
        if number > last:
            del found[printer]
            continue
        inner = _inner(Inner(line, stated), printer.depth)
        if inner is None or (inner.stated.label, inner.stated.rank) != printer[1:]:
            continue
        if not inner.text.strip() or inner.text[:1].isspace():
            found[printer] = number + _FAR
            return None
        del found[printer]
        text = envelopes.without_trailer(inner.text).rstrip()
        if text.startswith(MARK) or _OF_RAY in text:
            found[printer] = number + _FAR
            return None
        is_exception = _EXCEPTION.fullmatch(text) and _IS_NAMED.match(text)
        return Inner(text, inner.stated) if is_exception else None
    return None


def _inner(inner: Inner, depth: int) -> Inner | None:
    """A line without so many prefixes; None where it has not so many."""
    for _ in range(depth):
        layer = envelopes.peel(inner.text)
        if layer is None:
            return None
        inner = Inner(layer.text, layer.stated.within(inner.stated))
    return inner
