"""The lines of a source as a reader of logs wants them: one for each record of an export, and the oldest first.

Lines that are not consecutive in the source are numbered in the order of reading, and state where they
are (:attr:`~nccl_inspect.ingest.lines.torn.Mended.stands`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from nccl_inspect.errors import NoInputError
from nccl_inspect.ingest.lines import terminal_wraps
from nccl_inspect.ingest.lines.torn import Mended, Numbered
from nccl_inspect.ingest.sources.blocks import Lines, Source, blocks, cut, raw_blocks
from nccl_inspect.ingest.sources.streams import HEAD, Pieces, peek

_LOOK = 4096
MAX_TURNED = 64 << 20
"""Bytes of a source that is read from its end: all of it must be in memory."""
_TOO_LARGE = f"its newest line comes first, and it is too large to be turned round (more than {MAX_TURNED >> 20} MB)"
_SORT = "export it with the oldest line first: gcloud --order=asc, logcli --forward, Logs Insights | sort @timestamp"
_COLUMNS = frozenset(
    b"message @message textpayload jsonpayload.message logmessage logentry content _raw line log body msg".split()
)
"""Names of columns with log lines, in small letters: one of them is in the first line of a table."""


class Reader(Protocol):
    """Takes bytes as they come and gives lines."""

    lines: int
    """Line ends seen."""

    def feed(self, data: bytes, /) -> Iterator[Numbered]:
        """Return the lines that are whole by now."""

    def finish(self) -> Iterator[Numbered]:
        """Return the lines that are left at the end of the source."""


def pieces_of(source: Source, turned: bool = False) -> Iterator[Lines | NoInputError]:
    """Yield the lines of a source, then the error that ended it if there was one.

    Args:
        source: to read.
        turned: whether its last line is the oldest one, so that it is read from its end.
    """
    try:
        if source.is_cut:
            yield from blocks(source)
            return
        head, data = peek(raw_blocks(source), tells)
        reader = reader_of(head[:HEAD], turned)
        lines = read(reader, data) if reader else cut(data)
        yield from _from_the_end(lines, source.name, reader is not None) if turned else lines
    except NoInputError as error:
        yield error


def reader_of(head: bytes, turned: bool = False) -> Reader | None:
    """Return what reads a source that begins so; None where its lines are read as they stand."""
    if not may_be_export(head):
        return terminal_wraps.reader(head)
    from nccl_inspect.ingest.exports import json_documents  # few logs are exports

    return json_documents.table_reader(head, turned) or json_documents.reader(head, turned)


def tells(head: bytes) -> bool:
    """Return whether these first bytes show if the source is an export."""
    return len(head) >= HEAD or (head != b"" and not may_be_export(head))


def may_be_export(head: bytes) -> bool:
    """Return whether a source begins like a JSON document or a table; most logs only cost a look at the first line."""
    text = head[:_LOOK].lstrip()
    then = text[1:].lstrip()[:1]
    if text[:1] == b"[":
        return then in (b"", b"[", b"{", b'"')
    if text[:1] == b"{":
        return then in (b"", b'"')
    if text[:1] == b'"' and b"\\n" in text:
        return True  # a log in one string
    names = text.partition(b"\n")[0].lower()
    return any(name.strip(b'"\r') in _COLUMNS for mark in (b",", b";", b"\t") for name in names.split(mark))


def read(reader: Reader, data: Pieces) -> Iterator[Lines]:
    """Yield the lines that a reader gives, with their numbers in the order of reading."""
    total = 0
    problem = None
    try:
        for piece in data:
            entries = list(reader.feed(piece))
            yield number_lines(entries, total, len(piece), reader.lines)
            total += len(entries)
    except NoInputError as error:
        problem = error
    yield number_lines(list(reader.finish()), total, 0, reader.lines)
    if problem:
        raise problem


def number_lines(entries: list[Numbered], before: int, size: int, lines: int) -> Lines:
    """Return the lines of a block with their numbers in the order of reading."""
    numbers = range(before + 1, before + len(entries) + 1)
    return Lines(
        (entry.line for entry in entries), size, Mended(numbers, lines, stands=[entry.number for entry in entries])
    )


def _from_the_end(lines: Iterable[Lines], name: str, is_export: bool) -> Iterator[Lines]:
    """Yield the lines in the opposite order.

    Raises:
        NoInputError: there are too many.
    """
    gathered: list[tuple[Lines, Sequence[int]]] = []
    size = total = read = 0
    for block in lines:
        gathered.append((block, _stands(block, total)))
        total = block.mended.lines if block.mended else total + len(block)
        size += block.size
        if size > MAX_TURNED:
            raise NoInputError(f"{name}: {_TOO_LARGE}", _SORT if is_export else f"tac {name} | nccl-inspect summarize")
    while gathered:
        block, stands = gathered.pop()
        numbers = range(read + 1, read + len(block) + 1)
        yield Lines(reversed(block.lines), block.size, Mended(numbers, total, stands=stands[::-1]))
        read += len(block)


def _stands(block: Lines, before: int) -> Sequence[int]:
    """Return the numbers of a block's lines in the source."""
    if block.mended is None:
        return range(before + 1, before + len(block) + 1)
    return block.mended.numbers if block.mended.stands is None else block.mended.stands
