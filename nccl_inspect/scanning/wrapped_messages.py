"""Lines of a pasted log that were broken at the width of a terminal or a mail, where the grammar proves it.

``ingest/lines/terminal_wraps.py`` finds the width of logs with many broken lines. A few lines out of a chat do not show
one, yet a line whose message nobody knows, and which is a whole message together with the next line, was broken there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from nccl_inspect.grammar.engine import Grammar
from nccl_inspect.ingest import envelopes
from nccl_inspect.ingest.lines import prefix
from nccl_inspect.ingest.lines.torn import Mended
from nccl_inspect.ingest.sources.blocks import Lines
from nccl_inspect.util.patterns import later

MOST = 1 << 16
"""Bytes of a log that is looked through: what people paste is shorter."""
_NARROWEST = 40
_PIECES = 4
"""Of a line, at most."""
_GLUES = (b"", b" ")
"""A terminal breaks inside words and keeps blanks but the one at the edge; a mail breaks at a blank."""
_QUOTE = later(rb"(?:> ?)+")
_OWN = re.compile(rb"NCCL (?:INFO|WARN|ATTN|TRACE) |^\s*$|:\d{1,10}:\d{1,10} \[")
"""Text that marks a line as not continuing the one before."""
_USUAL = b"NCCL INFO "
"""What most such lines hold."""


def rejoined(lines: Lines, grammar: Grammar) -> Lines:
    """The first block of a source with broken lines put together; the same block where there are none.

    Args:
        lines: of a source, from its first one.
        grammar: knows whole messages.
    """
    if lines.mended is not None or len(lines.text) > MOST or prefix.MARK not in lines.text:
        return lines
    given = envelopes.cleaned(lines.lines, lines.text)
    broken = dict(_broken(given, grammar))
    if not broken:
        return lines
    whole, numbers, at = list[bytes](), list[int](), 0
    while at < len(given):
        pieces, line = broken.get(at, (1, given[at]))
        whole.append(line)
        numbers.append(at + 1)
        at += pieces
    return Lines(whole, lines.size, Mended(numbers, len(given)))


def _broken(lines: Sequence[bytes], grammar: Grammar) -> Iterator[tuple[int, tuple[int, bytes]]]:
    """Yield where a broken line begins, how many lines it takes, and what it was."""
    width = max(map(len, lines))
    others = [place for place, line in enumerate(lines[1:]) if _USUAL not in line]
    for place, line in zip(others, map(lines.__getitem__, others), strict=True):
        if prefix.MARK in line and _OWN.search(lines[place + 1]) is None and len(line) >= _NARROWEST:
            parts = prefix.split(line)
            if parts and not _is_known(parts[1], grammar) and (made := _made(lines, place, width, grammar)):
                yield place, made


def _made(lines: Sequence[bytes], place: int, width: int, grammar: Grammar) -> tuple[int, bytes] | None:
    """The number of lines and what they are together; None when that is not a message."""
    quote = _QUOTE.match(lines[place])
    tried = [lines[place]]
    for size, (above, line) in enumerate(zip(lines[place:], lines[place + 1 : place + _PIECES], strict=False), 2):
        rest = _QUOTE.sub(b"", line, count=1) if quote else line
        if _OWN.search(rest) or len(above) + len(rest.split(maxsplit=1)[0]) + 1 < width:
            return None  # the word had had room
        tried = [candidate.rstrip() + glue + rest for candidate in tried for glue in _GLUES]
        for candidate in tried:
            if (parts := prefix.split(candidate)) and _is_known(parts[1], grammar):
                return size, candidate
    return None


def _is_known(rest: bytes, grammar: Grammar) -> bool:
    message = rest.partition(b" ")[2]
    return (grammar.parse(message) or grammar.parse_cut(message)) is not None
