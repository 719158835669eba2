"""What exceptions retell: PyTorch ends its own with ``Last error:`` and the text of NCCL's last warning.

The text is on the same line or on the next one of the same rank, after the same lead (``[rank3]: ``, a time, a
worker's name); other ranks may print in between. Since often the exception alone is passed on, it may be all that is
left of the warning.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from nccl_inspect.ingest import envelopes
from nccl_inspect.ingest.envelopes import NOTHING, Inner, Stated
from nccl_inspect.util.patterns import compile_later

MARK = b"Last error:"
QUOTE = b"Last NCCL warning(error) log entry (may be unrelated) "
"""XLA's mark: the text follows in quotes (xla/service/gpu/nccl_utils.cc)."""
_FAR = 64  # at most this many lines later: others print in between
_DIGIT = compile_later(rb"\d")


class _Printer(NamedTuple):
    """Holds what distinguishes the printers of exceptions: the text in front without numbers, and what that states."""

    lead: bytes
    label: str | None
    rank: int | None


class _Announced(NamedTuple):
    size: int  # bytes of the lead
    last: int  # the last line that may be what NCCL said last


Awaited: TypeAlias = dict[_Printer, _Announced]


def read_warnings(line: bytes, stated: Stated = NOTHING) -> Iterator[Inner]:
    """Yield what exceptions on a line retell: PyTorch's is empty where it follows on its own line, XLA's has quotes."""
    for mark in (MARK, QUOTE):
        lead, is_there, text = line.partition(mark)
        if is_there:
            text = text.partition(b"'")[2].rpartition(b"'")[0] if mark is QUOTE else text
            yield Inner(text.strip(), _state_front(lead, stated))


def announce(line: bytes, number: int, stated: Stated, awaited: Awaited) -> None:
    """Remember that NCCL's last warning is to come."""
    lead = line[: line.index(MARK)]
    awaited[_printer(lead, _state_front(lead, stated))] = _Announced(len(lead), number + _FAR)


def read_announced_warning(line: bytes, number: int, stated: Stated, awaited: Awaited) -> Iterator[Inner]:
    """Yield what a line says if its printer has announced a warning."""
    for printer, announced in list(awaited.items()):
        lead = line[: announced.size]
        if number > announced.last:
            del awaited[printer]
        elif _printer(lead, own := _state_front(lead, stated)) == printer:
            yield Inner(line[announced.size :].strip(), own)


def _state_front(lead: bytes, stated: Stated) -> Stated:
    """Return what all prefixes of a line state together."""
    *_, inner = envelopes.peel_all(lead, stated)
    return inner.stated


def _printer(lead: bytes, stated: Stated) -> _Printer:
    return _Printer(_DIGIT.sub(b"0", lead), stated.label, stated.rank)
