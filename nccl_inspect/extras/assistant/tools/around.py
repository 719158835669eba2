"""The lines around one line of a log, from the file itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import anyio.from_thread

from nccl_inspect.errors import NcclInspectError
from nccl_inspect.extras.assistant.quotes import Quote, raw
from nccl_inspect.ingest.sources import blocks
from nccl_inspect.ingest.sources.files import File
from nccl_inspect.ingest.sources.streams import BLOCK
from nccl_inspect.util.text import decode

MAX_AROUND = 20
"""Lines before and after."""


def place_of(text: str) -> tuple[str, int]:
    """The source and the number of a line: ``job.log:26``.

    Raises:
        NcclInspectError: it is none.
    """
    source, colon, number = text.strip().rpartition(":")
    if not colon or not source or not number.isdecimal() or not 0 < int(number) < 10**12:
        raise NcclInspectError(f"around '{text[:80]}': not a line", "pass FILE:LINE as in the evidence: job.log:26")
    return source, int(number)


def lines(files: Iterable[File], place: tuple[str, int], about: int) -> list[Quote]:
    """The lines before and after a line, and that line.

    Args:
        files: the files of the job.
        place: the source, or how its path ends, and the number of the line.
        about: lines before and after it.

    Raises:
        NcclInspectError: there is no such source, or it has no such line.
    """
    wanted, number = place
    for source in blocks.find(list(files)):
        if source.name == wanted or source.name.endswith(f"/{wanted}"):
            first, last = max(1, number - about), number + about
            quotes = [raw(source.name, at, text) for at, text in _between(source, first, last)]
            if quotes and quotes[-1].line >= number:
                return quotes
            raise NcclInspectError(f"{wanted}: has no line {number}", "use a line from 'evidence'")
    raise NcclInspectError(f"no file '{wanted}' among the logs", "use a source and line from 'evidence'")


def _between(source: blocks.Source, first: int, last: int) -> Iterator[tuple[int, str]]:
    """Some lines with their numbers; reading stops after them."""
    at, rest = 1, b""
    for block in blocks.raw_blocks(source):
        anyio.from_thread.check_cancelled()
        ends = block.count(b"\n")
        if at + ends < first:  # the part after its last line end is not wanted either
            at += ends
            continue
        *whole, rest = (rest[:BLOCK] + block).split(b"\n")
        for line in whole:
            if first <= at <= last:
                yield at, decode(line)
            at += 1
        if at > last:
            return
    if rest and first <= at <= last:
        yield at, decode(rest)
