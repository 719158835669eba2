"""What launchers and collectors put around a line: prefixes, and envelopes of whole lines.

A new one is an entry in ``envelopes.txt``, with samples. The file is read when a line needs it: a plain log never does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from nccl_inspect.util.levels import ANY
from nccl_inspect.util.patterns import compile_later
from nccl_inspect.util.text import decode, encode, has_line_of

ISO = rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: ?Z|[+-]\d\d:?\d\d)?"
"""A date and time by ISO 8601 or nearly so, as envelopes print them."""
DAY = rb"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d"  # a day and time as syslog prints them
PART = 1 << 14  # bytes at which container runtimes cut a line


class Stated(NamedTuple):
    """Holds what a launcher or collector says of a line."""

    time: str | None = None
    label: str | None = None
    """Pod, container or worker: what it calls the printer; with the node, ``train@node-1``, where it names that."""
    rank: int | None = None
    stream: str = ""
    partial: bool = False  # the line continues in the next one of the same stream

    def add_outer(self, outer: Stated) -> Stated:
        """Return this and what an envelope around it states; the inner one was nearer to the printer."""
        if outer is NOTHING:
            return self
        labels = [label for label in (outer.label, self.label) if label]
        return Stated(
            self.time or outer.time,
            " ".join(dict.fromkeys(labels)) or None,
            outer.rank if self.rank is None else self.rank,
            self.stream or outer.stream,
            self.partial,
        )


NOTHING = Stated()


def join_node(label: str | None, node: str | None) -> str | None:
    """Return the name of a printer with that of its node, which is never taken for a pod."""
    return f"{label}@{node}" if label and node else label or node or None


class Inner(NamedTuple):
    """The line in an envelope."""

    text: bytes
    stated: Stated = NOTHING


class Envelope(NamedTuple):
    """Something put in front of a line, or with a reader around it: an entry of ``envelopes.txt``."""

    first: bytes  # the bytes with which it may begin; one byte excludes other envelopes
    pattern: re.Pattern[bytes]
    reader: str
    trailer: tuple[bytes, re.Pattern[bytes]] | None
    """What is put after a message: a text that each holds, and the pattern."""
    entry: str

    def read(self, line: bytes) -> list[Inner]:
        """Return the lines in a whole-line envelope; none when the line is of another kind."""
        match = self.pattern.match(line)
        if match is None:
            return []
        from nccl_inspect.ingest.envelopes import readers  # a plain log needs none

        read = getattr(readers, f"read_{self.reader}")
        if not match.re.groups:
            return list(read(line))
        outer = _state(match)
        return [Inner(text, stated.add_outer(outer)) for text, stated in read(line[match.end() :])]


_ANSI = compile_later(
    rb"\x1b(?:\[[0-9;?:]*[A-Za-z]|\][^\x07\x1b\n]{0,200}(?:\x07|\x1b\\)|_[^\x07\x1b\n]{0,200}(?:\x07|\x1b\\)|\(B)"
)
_NCCL = compile_later(rb"(?:^|[ \]])NCCL (?:" + ANY + rb"|version)\b")
LOOK = 256  # bytes of a block that show whether its lines hold JSON
_WRITTEN_ENDS = b"\\n", b"\\n "  # how lines end whose line end was written in letters
_WRITTEN_END = compile_later(rb"\\n ?(?:\n|\Z)")
_NUMBERS = compile_later(rb'("MESSAGE"\s*:\s*)\[(\s*\d{1,3}\s*(?:,\s*\d{1,3}\s*)*+)\]')
"""journald's message in bytes: ``"MESSAGE" : [ 27, 91 ]``."""
MAX_DEPTH = 6  # nested envelopes; anything deeper is not a log
WEB_BLANK = b"\xc2\xa0"  # a blank that breaks no line: what is copied from a web page may have it instead of each blank
_CRI = b" stdout P", b" stderr P"
"""What container runtimes print in front of a line that continues in the next one of its stream."""
_LOGTAG = b'"logtag":"P"', b'"logtag": "P"', b'"logtag" : "P"'  # the same, as collectors pass it on in JSON
SIGNS_OF_PARTIALS = (*_CRI, *_LOGTAG)  # what a line holds that continues in the next one, where this alone shows it


def clean_lines(lines: Sequence[bytes], block: bytes) -> Sequence[bytes]:
    """Return the lines without colours, web blanks, line ends in letters, and of what was overwritten NCCL's part."""
    given = lines
    lines = spelled_out(lines, block)
    if b"\x1b" in block:
        lines = [_ANSI.sub(b"", line) if b"\x1b" in line else line for line in lines]
    if b"\r" in block:
        lines = [_take_last_part(line) if b"\r" in line else line for line in lines]
    if _has_web_blank(block):
        lines = [line.replace(WEB_BLANK, b" ") for line in lines]
    if b"\\" in block and (lines is not given or _has_written_ends(block)):
        lines = [
            line.rstrip(b" ").removesuffix(b"\\n").removesuffix(b"\\r") if line.endswith(_WRITTEN_ENDS) else line
            for line in lines
        ]
    return lines


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
    """Return whether lines continue in the next one of the same stream; searched from the end in half the time."""
    if block.rfind(b" std") >= 0 and any(block.rfind(sign) >= 0 for sign in _CRI):
        return True
    if b"{" not in block[:LOOK]:
        return False
    if block.rfind(b'"logtag"') >= 0 and any(block.rfind(sign) >= 0 for sign in _LOGTAG):
        return True
    return has_line_of(block, PART) and block.rfind(b'"stream"') >= 0


def _take_last_part(line: bytes) -> bytes:
    """Return the line from the last part that holds NCCL's (printed raw memory may follow), else the last part.

    A time or a pod that a collector put in front of the first part is about the last one, too: a progress bar was
    overwritten, which may look like another envelope itself.
    """
    parts = line.rstrip(b"\r").split(b"\r")
    nccl = [at for at, part in enumerate(parts) if _NCCL.search(part)] if b"NCCL " in line else []
    if len(parts) == 1 or (nccl and nccl[-1] == 0):
        return b"\r".join(parts)
    bar = parts[0]
    while (layer := peel(bar)) and layer.stated.rank is None and (layer.stated.label is None or bar[:5] == b"[pod/"):
        bar = layer.text
    return parts[0][: len(parts[0]) - len(bar)] + (b"\r".join(parts[nccl[-1] :]) if nccl else parts[-1])


def peel(line: bytes) -> Inner | None:
    """Return the line without its outermost prefix; None when no envelope knows it."""
    best = None
    for prefix in _list_beginning_with(line[:1], False):
        match = prefix.pattern.match(line)
        if match and (best is None or match.end() > best.end()):
            best = match
    return None if best is None else Inner(line[best.end() :], _state(best))


def _state(match: re.Match[bytes]) -> Stated:
    fields = {name: decode(value) for name, value in match.groupdict().items() if value}
    return Stated(
        fields.get("time"),
        join_node(fields.get("label"), fields.get("node")),
        int(fields["rank"]) if "rank" in fields else None,
        fields.get("stream", ""),
        "partial" in fields,
    )


def peel_all(line: bytes, stated: Stated = NOTHING) -> Iterator[Inner]:
    """Yield a line, then without one prefix after the other, each time with what all that were taken off state."""
    inner = Inner(line, stated)
    yield inner
    for _ in range(MAX_DEPTH):
        layer = peel(inner.text)
        if layer is None:
            return
        inner = Inner(layer.text, layer.stated.add_outer(inner.stated))
        yield inner


def rank_of(line: bytes, text: bytes) -> int | None:
    """Return the rank that is stated in front of a text, nearest to it; None where none is."""
    rank = None
    while len(line) > len(text) and (layer := peel(line)) is not None:
        rank = rank if layer.stated.rank is None else layer.stated.rank
        line = layer.text
    return rank


def is_whole(line: bytes) -> bool:
    """Return whether a line opens like a whole-line envelope."""
    return any(envelope.pattern.match(line) for envelope in _list_beginning_with(line[:1], True))


def contents(line: bytes) -> list[Inner]:
    """Return the lines in a whole-line envelope, by the one that knows most of them; none without an envelope."""
    readings = [envelope.read(line) for envelope in _list_beginning_with(line[:1], True)]
    return max(  # the more lines, the better, and the more is known of the first one
        readings,
        key=lambda inners: (len(inners), sum(value is not None for one in inners[:1] for value in one.stated[:3])),
        default=[],
    )


def layers(line: bytes) -> Iterator[bytes]:
    """Yield the line without its outermost prefix, then without the next one, and so on.

    Blanks at the end of a prefix may belong to the line: each number of them is tried.
    """
    for before, (text, _) in pairwise(peel_all(line)):
        front = before.text[: len(before.text) - len(text)]
        for blanks in range(len(front) - len(front.rstrip(b" ")) + 1):
            yield b" " * blanks + text


def texts(line: bytes) -> Iterator[bytes]:
    """Yield the line, the content of a whole-line envelope, and both without their prefixes."""
    for text in (line, *(inner.text.rstrip(b"\r\n") for inner in contents(line))):
        yield text
        yield from layers(text)


def without_trailer(message: bytes) -> bytes:
    """Return a message without what an envelope puts after it."""
    for sign, trailer in _list_trailers():
        if message.find(sign) >= 0 and (match := trailer.search(message)):
            message = message[: match.start()]
    return message


def without_entities(message: bytes) -> bytes:
    """Return a message out of a page of HTML or XML: ``0[0] -&gt; 1[1]``."""
    import html  # few logs are saved pages

    return encode(html.unescape(decode(message)))


_MARKS = {"ISO": ISO.decode(), "DAY": DAY.decode(), "BOM": "\ufeff", "␣": " ", "␉": "\t"}


@cache
def list_envelopes() -> dict[str, Envelope]:
    """Return all envelopes by name."""
    text, envelopes = (Path(__file__).parent / "envelopes.txt").read_text(encoding="utf-8"), {}
    for mark, meaning in _MARKS.items():
        text = text.replace(mark, meaning)
    for entry in text.split("\nenvelope: ")[1:]:
        name, *lines = entry.split("\n")
        keys = dict(line.split(": ", 1) for line in lines if ": " in line)
        first = re.sub("(.)-(.)", lambda ends: bytes(range(ord(ends[1]), ord(ends[2]) + 1)).decode(), keys["first"])
        sign = keys.get("sign", "").encode().decode("unicode_escape").encode("latin-1")
        envelopes[name] = Envelope(
            bytes(char.encode()[0] for char in first),
            compile_later(encode(keys["pattern"])),
            keys.get("reader", ""),
            (sign, compile_later(encode(keys["trailer"]))) if sign else None,
            entry,
        )
    return envelopes


@cache
def _list_beginning_with(first: bytes, is_whole: bool) -> list[Envelope]:
    """Return the envelopes that may begin with a byte; those of whole lines, or the prefixes."""
    return [one for one in list_envelopes().values() if first and first in one.first and bool(one.reader) == is_whole]


@cache
def _list_trailers() -> list[tuple[bytes, re.Pattern[bytes]]]:
    return [one.trailer for one in list_envelopes().values() if one.trailer]
