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


Awaited: TypeAlias = dict[_Printer, tuple[int, int]]
"""The printers that have announced a warning, with the bytes of their lead and the last line that it may be."""


def read_warnings(line: bytes, stated: Stated = NOTHING) -> Iterator[Inner]:
    """Yield what exceptions on a line retell: PyTorch's is empty where it follows on its own line, XLA's has quotes."""
    for mark in (MARK, QUOTE):
        lead, is_there, text = line.partition(mark)
        if is_there:
            text = text.partition(b"'")[2].rpartition(b"'")[0] if mark is QUOTE else text
            yield Inner(text.strip(), _read_lead(lead, stated)[1])


def announce(line: bytes, number: int, stated: Stated, awaited: Awaited) -> None:
    """Remember that NCCL's last warning is to come."""
    lead = line[: line.index(MARK)]
    awaited[_read_lead(lead, stated)[0]] = len(lead), number + _FAR


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
