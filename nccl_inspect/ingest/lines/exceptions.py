"""Exceptions that take several lines: where Python tracebacks end, and what exceptions retell of NCCL's last warning.

The exception is the first line of a traceback that is not indented, whatever its name is. Several printers may write
tracebacks at once; the text before their lines distinguishes them. Where there is no such text, others print in
between: lines that have no name of an exception are theirs.

PyTorch ends its exceptions with ``Last error:`` and the text of NCCL's last warning: on the same line or on the next
one of the same rank, after the same lead (``[rank3]: ``, a time, a worker's name). Since often the exception alone is
passed on, it may be all that is left of the warning.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from nccl_inspect.ingest import envelopes
from nccl_inspect.ingest.envelopes import NOTHING, Inner, Stated
from nccl_inspect.util.patterns import compile_later

TRACEBACK = b"Traceback (most recent call last):"
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
    """Holds what distinguishes the printers of exceptions, and what the text before their lines states."""

    front: int | bytes  # the number of prefixes in it, or the text without its numbers
    label: str | None
    rank: int | None


Open: TypeAlias = dict[_Printer, int]
"""The printers of tracebacks that have not ended, with the last line that may be the next one."""


def end_traceback(line: bytes, number: int, stated: Stated, open_tracebacks: Open) -> Inner | None:
    """Return the exception that a line states, if a traceback ends with it; None for others, which may begin one."""
    for printer, text in _printers(line, stated) if TRACEBACK in line else ():
        if text.startswith(TRACEBACK):
            _wait(printer, number, open_tracebacks)
            break
    while open_tracebacks and number > open_tracebacks[oldest := next(iter(open_tracebacks))]:
        del open_tracebacks[oldest]
    for printer, text in _printers(line, stated) if open_tracebacks else ():
        if printer not in open_tracebacks:
            continue
        is_mixed = printer.label is None and printer.rank is None
        if not text.strip() or text[:1].isspace() or text.startswith(TRACEBACK) or _OF_RAY in text:
            if not is_mixed or text.startswith((_FRAME, TRACEBACK)) or _OF_RAY in text:
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


LAST_ERROR = b"Last error:"
QUOTE = b"Last NCCL warning(error) log entry (may be unrelated) "
"""XLA's mark: the text follows in quotes (xla/service/gpu/nccl_utils.cc)."""
_NEAR = 64  # at most this many lines later: others print in between
_DIGIT = compile_later(rb"\d")


Awaited: TypeAlias = dict[_Printer, tuple[int, int]]
"""The printers that have announced a warning, with the bytes of their lead and the last line that it may be."""


def read_warnings(line: bytes, stated: Stated = NOTHING) -> Iterator[Inner]:
    """Yield what exceptions on a line retell: PyTorch's is empty where it follows on its own line, XLA's has quotes."""
    for mark in (LAST_ERROR, QUOTE):
        lead, is_there, text = line.partition(mark)
        if is_there:
            text = text.partition(b"'")[2].rpartition(b"'")[0] if mark is QUOTE else text
            yield Inner(text.strip(), _read_lead(lead, stated)[1])


def announce(line: bytes, number: int, stated: Stated, awaited: Awaited) -> None:
    """Remember that NCCL's last warning is to come."""
    lead = line[: line.index(LAST_ERROR)]
    awaited[_read_lead(lead, stated)[0]] = len(lead), number + _NEAR


def read_announced_warning(line: bytes, number: int, stated: Stated, awaited: Awaited) -> Iterator[Inner]:
    """Yield what a line says if its printer has announced a warning."""
    for printer, (size, last) in list(awaited.items()):
        own, front = _read_lead(line[:size], stated)
        if number > last:
            del awaited[printer]
        elif own == printer:
            yield Inner(line[size:].strip(), front)


def _read_lead(lead: bytes, stated: Stated) -> tuple[_Printer, Stated]:
    """Return who printed a line that begins so, and what all prefixes in it state together."""
    *_, (_, front) = envelopes.peel_all(lead, stated)
    return _Printer(_DIGIT.sub(b"0", lead), front.label, front.rank), front
