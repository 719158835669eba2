"""Where Python tracebacks end: the exception is the first line that is not indented, whatever its name is.

Several printers may write tracebacks at once; the text before their lines distinguishes them. Where there is
no such text, others print in between: lines that have no name of an exception are theirs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from nccl_inspect.ingest import envelopes
from nccl_inspect.ingest.envelopes import Inner, Stated
from nccl_inspect.util.patterns import compile_later

MARK = b"Traceback (most recent call last):"
_OF_RAY = b": ray::"
"""With which Ray names the call that raised: the frames of that call follow, and then the exception."""
_FAR = 5_000  # at most this many lines later: others print in between
_FRAME = b'  File "'  # others print lines that are indented, too
_ENDS_NOTHING = compile_later(rb"SystemExit(?:: 0)?|GeneratorExit.*")  # with which programs end in order, or not at all
_EXCEPTION = compile_later(rb"[A-Za-z_]\w{0,100}(?:\.\w{1,100}){0,20}(?:: .*)?")
_IS_NAMED = compile_later(rb"[\w.]*(?:\.|\b)[A-Z]\w*(?:$|:)|\w+\.\w")
"""A class begins with a capital, or comes with its module: ``socket.timeout``."""
_IS_SAFELY_NAMED = compile_later(
    rb"[\w.]+\.[A-Z]\w*(?:$|:)|[\w.]+\.\w*(?:error|timeout)(?:$|:)|(?:\w*Error|Exception)(?:$|:)"
    rb"|\w+(?:Exception|Warning|Exit|Interrupt|Iteration|Fail(?:ed|ure)|Timeout|TimedOut|Expired|Empty|Full|Group"
    rb"|Abort(?:ed)?|Cancell?ed|Stop(?:ped)?|Interrupted|Exceeded|Exhausted|Unavailable|Lost|Died|Killed|NotFound)(?:$|:)"
)
"""Where others may print between the lines of a traceback: ``Loss: 2.31`` looks like a class, too. Only classes of
Python and of the script come without a module, and few of them have another ending."""


class _Printer(NamedTuple):
    """Holds what distinguishes the printers of tracebacks: the number of prefixes, and what they state."""

    depth: int
    label: str | None
    rank: int | None


Open: TypeAlias = dict[_Printer, int]
"""The printers of tracebacks that have not ended, with the last line that may be the next one."""


def end_traceback(line: bytes, number: int, stated: Stated, open_tracebacks: Open) -> Inner | None:
    """Return the exception that a line states, if a traceback ends with it; None for others, which may begin one."""
    for printer, text in _printers(line, stated) if MARK in line else ():
        if text.startswith(MARK):
            _wait(printer, number, open_tracebacks)
            break
    while open_tracebacks and number > open_tracebacks[oldest := next(iter(open_tracebacks))]:
        del open_tracebacks[oldest]
    for printer, text in _printers(line, stated) if open_tracebacks else ():
        if printer not in open_tracebacks:
            continue
        is_mixed = printer.label is None and printer.rank is None
        if not text.strip() or text[:1].isspace() or text.startswith(MARK) or _OF_RAY in text:
            if not is_mixed or text.startswith((_FRAME, MARK)) or _OF_RAY in text:
                _wait(printer, number, open_tracebacks)
            return None
        text = envelopes.without_trailer(text).rstrip()
        is_exception = _EXCEPTION.fullmatch(text) and (_IS_SAFELY_NAMED if is_mixed else _IS_NAMED).match(text)
        if is_exception or not is_mixed:
            del open_tracebacks[printer]
            is_told = is_exception and not _ENDS_NOTHING.fullmatch(text)
            return Inner(text, Stated(label=printer.label, rank=printer.rank)) if is_told else None
    return None


def _wait(printer: _Printer, number: int, open_tracebacks: Open) -> None:
    """Wait for the next line of a printer; those that have waited longest stand first."""
    open_tracebacks.pop(printer, None)
    open_tracebacks[printer] = number + _FAR


def _printers(line: bytes, stated: Stated) -> Iterator[tuple[_Printer, bytes]]:
    """Yield who may have printed a line: by each number of prefixes, with what is left of it."""
    for depth, (text, own) in enumerate(envelopes.peel_all(line, stated)):
        yield _Printer(depth, own.label, own.rank), text
