"""What an envelope states about the line in it, and the reading of whole-line envelopes: quoted lines, CSV rows.

Envelopes (:mod:`nccl_inspect.ingest.envelopes`) are written in these terms.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from nccl_inspect.util.patterns import compile_later
from nccl_inspect.util.text import decode

ISO = rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: ?Z|[+-]\d\d:?\d\d)?"
"""A date and time by ISO 8601 or nearly so, as envelopes print them."""
PART = 1 << 14
"""Bytes at which container runtimes cut a line."""
_NEAR = 256
"""Bytes at the beginning of a block that show whether an envelope opens its lines."""
WORD = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_"
DAY = rb"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d"
"""A day and time as syslog prints them."""


class Stated(NamedTuple):
    """Holds what a launcher or collector says of a line."""

    time: str | None = None
    label: str | None = None
    """Pod, container, node or worker: what it calls the printer."""
    rank: int | None = None
    stream: str = ""
    partial: bool = False
    """The line continues in the next one of the same stream."""

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


class Inner(NamedTuple):
    """The line in an envelope."""

    text: bytes
    stated: Stated = NOTHING


class Parts:
    """Holds what shows that lines continue in the next one of the same stream.

    Args:
        texts: one of them is in such a line.
        near: what is near the beginning of each block that has such lines.
        least: bytes that such a line has at least.
        common: what all texts hold.
    """

    def __init__(self, *texts: bytes, near: bytes = b"", least: int = 0, common: bytes = b"") -> None:
        self.texts = texts
        self.least = least
        self._near = near
        self._common = common

    def are_in(self, block: bytes) -> bool:
        """Return whether a line of a block may be one."""
        if self._near not in block[:_NEAR] or (self.least and not _has_line_of(block, self.least)):
            return False
        # From the end, which takes half the time.
        return block.rfind(self._common) >= 0 and any(block.rfind(text) >= 0 for text in self.texts)


def _has_line_of(block: bytes, size: int) -> bool:
    """Return whether a line has at least that many bytes."""
    place = 0
    while len(block) - place > size:
        end = block.rfind(b"\n", place, place + size)
        if end < 0:
            return True
        place = end + 1
    return False


LOGTAG = Parts(b'"logtag":"P"', b'"logtag": "P"', b'"logtag" : "P"', near=b"{", common=b'"logtag"')
"""The tag of container runtimes, as collectors pass it on in JSON."""
Reader: TypeAlias = Callable[[bytes], list[Inner]]
"""Gives the lines in a whole-line envelope; none when the line is of another kind."""


class Prefix(NamedTuple):
    """A prefix is what a launcher or collector puts before a line."""

    first: bytes
    """The bytes with which it may begin; one byte excludes other envelopes."""
    pattern: re.Pattern[bytes]
    """It is matched at the start of a line; its groups ``time``, ``label``, ``rank`` and ``stream`` are kept."""
    samples: Mapping[bytes, Stated]
    """Prefixes, each with what is known from it."""
    trailer: tuple[bytes, re.Pattern[bytes]] | None = None
    """What is put after a message: a text that each holds, and the pattern."""
    parts: Parts | None = None
    """What lines hold that continue in the next one of the same stream."""


class Whole(NamedTuple):
    """A whole-line envelope holds one line of a log, or several."""

    first: bytes
    opening: re.Pattern[bytes]
    """How such a line opens."""
    read: Reader
    samples: Mapping[bytes, Stated]
    """Whole lines with ``LINE`` for the line."""
    parts: Parts | None = None
    is_fallback: bool = False
    """Whether it reads only what no other one knows."""


def worth(inners: list[Inner]) -> tuple[int, int]:
    """Return how much a reader knows of a line: the more lines in it, the better.

    Then the more it states of the first one.
    """
    return len(inners), sum(value is not None for inner in inners[:1] for value in inner.stated[:3])


_STRING = compile_later(rb"""[\s,\[]*(b?(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"))[\s,\]]*""")


def quoted_reader(line: bytes) -> list[Inner]:
    """Return the line that a string stands for, as JSON or Python writes it."""
    from ast import literal_eval  # few logs are such

    string = _STRING.fullmatch(line)
    try:
        value = literal_eval(decode(string[1])) if string else ""
    except (ValueError, SyntaxError):
        return []
    inner = value if isinstance(value, bytes) else text_of(value)
    return [Inner(inner)] if inner and inner != line else []


def quoted_text(value: bytes) -> bytes:
    """Return the bytes that a value stands for, which may be in quotes as JSON writes them."""
    if not value.startswith(b'"'):
        return value
    import json  # few logs have such

    try:
        return text_of(json.loads(decode(value), strict=False)) or b""
    except ValueError:
        return value[1:-1]


def text_of(value: Any) -> bytes | None:
    """Return the bytes that a value of JSON stands for; None when it is not a text."""
    if isinstance(value, list):  # journald writes bytes that are not UTF-8 as numbers
        small = value and all(isinstance(item, int) and 0 <= item < 256 for item in value)
        return bytes(value) if small else None
    if not isinstance(value, str):
        return None
    try:
        return value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return value.encode("utf-8", "replace")


TIME = compile_later((ISO + rb"|\d{10,19}").decode("ascii"))
"""What is nothing but a time."""
CSV = compile_later(rb'"|(?:' + ISO + rb"|\d{10,19}),(?!\d{3} )")
"""How a row of CSV opens that holds a log line: with a time, or with a quoted cell; no comma before thousandths."""
CSV_FIRST = b'"0123456789'


def csv_reader(line: bytes) -> list[Inner]:
    """Return the log line in a row: the cell of NCCL, else the longest that is not a time."""
    import csv  # only logs in CSV need it

    try:
        cells = next(csv.reader([decode(line)], strict=True), [])
    except csv.Error:
        return []
    times = [cell for cell in cells if TIME.fullmatch(cell)]
    texts = [cell for cell in cells if not TIME.fullmatch(cell)]
    if not texts:
        return []
    best = max(texts, key=lambda cell: ("NCCL " in cell, len(cell)))
    text = text_of(best)
    return [Inner(text, Stated(times[0] if times else None))] if text and text != line else []
