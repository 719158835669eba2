"""What launchers and collectors put around a line: prefixes, and envelopes of whole lines.

A new one is an entry in ``prefixes.py`` or ``whole_lines.py``, with samples, or in ``in_parts.py`` if its lines may
continue in the next one of the same stream. Only the last are loaded before a line needs them: a plain log never does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

from nccl_inspect.ingest.envelopes.in_parts import IN_PARTS
from nccl_inspect.ingest.exports.json_records import JsonReader, JsonReaders
from nccl_inspect.ingest.lines.envelope_fields import Inner, Parts, Prefix, Reader, Stated, Whole, worth
from nccl_inspect.util.levels import ANY
from nccl_inspect.util.patterns import compile_later
from nccl_inspect.util.text import decode, encode

_ANSI = compile_later(
    rb"\x1b(?:\[[0-9;?:]*[A-Za-z]|\][^\x07\x1b\n]{0,200}(?:\x07|\x1b\\)|_[^\x07\x1b\n]{0,200}(?:\x07|\x1b\\)|\(B)"
)
_NCCL = compile_later(rb"(?:^|[ \]])NCCL (?:" + ANY + rb"|version)\b")
LOOK = 256
"""Bytes of a block that show whether its lines hold JSON."""
_WRITTEN_ENDS = b"\\n", b"\\n "
"""How lines end whose line end was written in letters."""
_WRITTEN_END = compile_later(rb"\\n ?(?:\n|\Z)")
_NUMBERS = compile_later(rb'("MESSAGE"\s*:\s*)\[(\s*\d{1,3}\s*(?:,\s*\d{1,3}\s*)*+)\]')
"""journald's message in bytes: ``"MESSAGE" : [ 27, 91 ]``."""
MAX_DEPTH = 6
"""Nested envelopes; anything deeper is not a log."""


class _Opening(NamedTuple):
    """Holds how whole-line envelopes open."""

    pattern: re.Pattern[bytes]
    readers: list[Reader]
    others: list[Reader]
    """Asked where no reader knows the line."""


WEB_BLANK = b"\xc2\xa0"
"""A blank that breaks no line: what is copied from a web page may have it instead of each blank."""


def clean_lines(lines: Sequence[bytes], block: bytes) -> Sequence[bytes]:
    """Return the lines without colours, web blanks and line ends in letters, and NCCL's part of what was overwritten.

    Args:
        lines: of a log.
        block: the same lines in one piece: most blocks have neither.
    """
    given = lines
    lines = spelled_out(lines, block)
    if b"\x1b" in block:
        lines = [_ANSI.sub(b"", line) if b"\x1b" in line else line for line in lines]
    if b"\r" in block:
        lines = [_last_part(line) if b"\r" in line else line for line in lines]
    if _has_web_blank(block):
        lines = [line.replace(WEB_BLANK, b" ") for line in lines]
    if b"\\" in block and (lines is not given or _has_written_ends(block)):
        lines = [_without_written_end(line) if line.endswith(_WRITTEN_ENDS) else line for line in lines]
    return lines


def _without_written_end(line: bytes) -> bytes:
    return line.rstrip(b" ").removesuffix(b"\\n").removesuffix(b"\\r")


def needs_cleaning(block: bytes) -> bool:
    """Return whether :func:`clean_lines` would change something."""
    return (
        b"\x1b" in block or b"\r" in block or _has_web_blank(block) or _has_written_ends(block) or _has_numbers(block)
    )


def spelled_out(lines: Sequence[bytes], block: bytes) -> Sequence[bytes]:
    """Return the lines with texts where journald wrote bytes as numbers, as it does for what has an escape in it."""
    if not _has_numbers(block):
        return lines
    return [_NUMBERS.sub(_as_text, line) if b"[" in line else line for line in lines]


def _as_text(match: re.Match[bytes]) -> bytes:
    import json  # few logs have such

    numbers = [int(number) for number in match[2].split(b",")]
    if not all(number < 256 for number in numbers):
        return match[0]
    return match[1] + encode(json.dumps(decode(bytes(numbers)), ensure_ascii=False))


def _has_numbers(block: bytes) -> bool:
    """Return whether the text of a line is written as a list of bytes."""
    return b"{" in block[:LOOK] and block.rfind(b'"MESSAGE"') >= 0 and _NUMBERS.search(block) is not None


def _has_web_blank(block: bytes) -> bool:
    """Return whether there is one: a search for two bytes takes 80 times that for one, and most logs hold neither."""
    return WEB_BLANK[1:] in block and WEB_BLANK in block


def _has_written_ends(block: bytes) -> bool:
    """Return whether a line ends with ``\\n`` in letters before its own end."""
    return b"\\" in block and _WRITTEN_END.search(block) is not None


def has_partials(block: bytes) -> bool:
    """Return whether lines continue in the next one of the same stream."""
    return any(parts.are_in(block) for parts in _parts())


def signs_of_partials() -> list[bytes]:
    """Return what a line holds that continues in the next one, where this alone shows it."""
    return [text for parts in _parts() if not parts.least for text in parts.texts]


def _last_part(line: bytes) -> bytes:
    """Return the line from the last part that holds NCCL's (printed raw memory may follow), else the last part."""
    parts = line.rstrip(b"\r").split(b"\r")
    if b"NCCL " not in line:
        return parts[-1]
    for at in range(len(parts) - 1, -1, -1):
        if _NCCL.search(parts[at]):
            return b"\r".join(parts[at:])
    return parts[-1]


def peel(line: bytes) -> Inner | None:
    """Return the line without its outermost prefix; None when no envelope knows it."""
    best = None
    for pattern in _prefixes().get(line[:1], ()):
        match = pattern.match(line)
        if match and (best is None or match.end() > best.end()):
            best = match
    return Inner(line[best.end() :], _read_groups(best)) if best else None


def rank_of(line: bytes, text: bytes) -> int | None:
    """Return the rank that is stated in front of a text, nearest to it; None where none is.

    Args:
        line: as it stands.
        text: what is left of it.
    """
    rank = None
    while len(line) > len(text) and (layer := peel(line)) is not None:
        rank = rank if layer.stated.rank is None else layer.stated.rank
        line = layer.text
    return rank


def _read_groups(match: re.Match[bytes]) -> Stated:
    fields = {name: decode(value) for name, value in match.groupdict().items() if value}
    rank = fields.get("rank")
    return Stated(
        fields.get("time"),
        fields.get("label"),
        None if rank is None else int(rank),
        fields.get("stream", ""),
        "partial" in fields,
    )


def is_whole(line: bytes) -> bool:
    """Return whether a line opens like a whole-line envelope."""
    return any(opening.match(line) for opening, _, _ in _index_openings().get(line[:1], ()))


def contents(line: bytes) -> list[Inner]:
    """Return the lines in a whole-line envelope, by the one that knows most of them; none without an envelope."""
    best: list[Inner] = []
    for opening, readers, others in _index_openings().get(line[:1], ()):
        if opening.match(line):
            best = max([best, *(read(line) for read in readers)], key=worth)
            for read in others if not best else ():
                best = best or read(line)
    return best


def layers(line: bytes) -> Iterator[bytes]:
    """Yield the line without its outermost prefix, then without the next one, and so on.

    Blanks at the end of a prefix may belong to the line: each number of them is tried.
    """
    for _ in range(MAX_DEPTH):
        layer = peel(line)
        if layer is None:
            return
        front = line[: len(line) - len(layer.text)]
        for blanks in range(len(front) - len(front.rstrip(b" ")) + 1):
            yield b" " * blanks + layer.text
        line = layer.text


def texts(line: bytes) -> Iterator[bytes]:
    """Yield the line, the content of a whole-line envelope, and both without their prefixes."""
    for text in (line, *(inner.text.rstrip(b"\r\n") for inner in contents(line))):
        yield text
        yield from layers(text)


def stream_of(line: bytes) -> Inner | None:
    """Return the line without its prefixes up to the one that names the stream; None when none does."""
    inner = Inner(line)
    for _ in range(MAX_DEPTH):
        layer = peel(inner.text)
        if layer is None:
            return None
        inner = Inner(layer.text, layer.stated.add_outer(inner.stated))
        if inner.stated.stream:
            return inner
    return None


def without_trailer(message: bytes) -> bytes:
    """Return a message without what an envelope puts after it."""
    for sign, trailer in _trailers():
        if sign in message and (match := trailer.search(message)):
            message = message[: match.start()]
    return message


def without_entities(message: bytes) -> bytes:
    """Return a message out of a page of HTML or XML: ``0[0] -&gt; 1[1]``."""
    import html  # few logs are saved pages

    return encode(html.unescape(decode(message)))


@cache
def list_envelopes() -> dict[str, Prefix | Whole]:
    """Return all envelopes by name."""
    from nccl_inspect.ingest.envelopes.prefixes import PREFIXES  # a plain log needs none
    from nccl_inspect.ingest.envelopes.whole_lines import WHOLE_LINES

    return {**PREFIXES, **WHOLE_LINES, **IN_PARTS}


@cache
def _parts() -> tuple[Parts, ...]:
    return tuple(dict.fromkeys(envelope.parts for envelope in IN_PARTS.values() if envelope.parts))


@cache
def _prefixes() -> dict[bytes, list[re.Pattern[bytes]]]:
    by_byte: dict[bytes, list[re.Pattern[bytes]]] = {}
    for prefix in (one for one in list_envelopes().values() if isinstance(one, Prefix)):
        for first in prefix.first:
            by_byte.setdefault(bytes([first]), []).append(prefix.pattern)
    return by_byte


@cache
def _index_openings() -> dict[bytes, list[_Opening]]:
    """Return by the first byte of a line how it may open, and who reads it then."""
    by_byte: dict[bytes, list[Whole]] = {}
    for envelope in (one for one in list_envelopes().values() if isinstance(one, Whole)):
        for first in envelope.first:
            by_byte.setdefault(bytes([first]), []).append(envelope)
    return {first: list(_openings(some)) for first, some in by_byte.items()}


def _openings(envelopes: Iterable[Whole]) -> Iterator[_Opening]:
    by_pattern: dict[re.Pattern[bytes], list[Whole]] = {}
    for envelope in envelopes:
        by_pattern.setdefault(envelope.opening, []).append(envelope)
    for pattern, several in by_pattern.items():
        reads = [envelope.read for envelope in several if not envelope.is_fallback]
        objects = [read for read in reads if isinstance(read, JsonReader)]
        readers: list[Reader] = [JsonReaders(objects)] if objects else []
        readers += [read for read in reads if not isinstance(read, JsonReader)]
        yield _Opening(pattern, readers, [envelope.read for envelope in several if envelope.is_fallback])


@cache
def _trailers() -> list[tuple[bytes, re.Pattern[bytes]]]:
    return [one.trailer for one in list_envelopes().values() if isinstance(one, Prefix) and one.trailer]
