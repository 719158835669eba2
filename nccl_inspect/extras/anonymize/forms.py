"""The text of a log beside the lines in it: in exports in JSON a line is a piece of the text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from nccl_inspect.ingest import envelopes
from nccl_inspect.ingest.exports import record_lines
from nccl_inspect.ingest.exports.record_lines import Reader
from nccl_inspect.ingest.lines.torn import Mended
from nccl_inspect.ingest.sources import blocks
from nccl_inspect.ingest.sources.blocks import Lines, Source
from nccl_inspect.ingest.sources.streams import BLOCK, HEAD, Pieces, peeked

_BETWEEN = re.compile(rb"(\r?\n|(?<=[}\]]),|(?<!\\)(?:\\\\)*(?:\\r)?\\n)")
"""What ends every name and message: line ends, in letters too, and the commas between objects and lists."""
_MOST = 8 * BLOCK
"""Bytes without such a place; more are cut anywhere."""


class Part(NamedTuple):
    """A part of a log."""

    pieces: list[bytes]
    """The text, cut so that each piece holds at most one line."""
    end: bytes
    """What comes after each piece."""
    lines: Lines
    """The lines in it, as every other command reads them."""


def parts(source: Source) -> Iterator[Part]:
    """A source part by part.

    Raises:
        NoInputError: it cannot be read, or not to its end; what came before that was given.
    """
    head, data = peeked(blocks.raw_blocks(source), record_lines.tells)
    reader = record_lines.reader_of(head[:HEAD])
    if reader is None or not record_lines.may_be_export(head):
        for lines in blocks.cut(data) if reader is None else record_lines.read(reader, data):
            yield Part([*envelopes.spelled_out(lines.lines, lines.text)], b"\n", lines)
    else:
        yield from _of_export(reader, data)


def _of_export(reader: Reader, data: Pieces) -> Iterator[Part]:
    rest, total = b"", 0
    for piece in data:
        *pieces, rest = _BETWEEN.split(rest + piece)
        if len(rest) > _MOST:
            pieces, rest = [*pieces, rest], b""
        lines = [entry.line for entry in reader.feed(piece)]
        yield Part(pieces, b"", _lines(lines, total, len(piece)))
        total += len(lines)
    yield Part([rest], b"", _lines([entry.line for entry in reader.finish()], total, 0))


def _lines(lines: list[bytes], before: int, size: int) -> Lines:
    numbers = range(before + 1, before + len(lines) + 1)
    return Lines(lines, size, Mended(numbers, before + len(lines)))
