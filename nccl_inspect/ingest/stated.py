"""What an envelope states about the line in it, and the reading of whole-line envelopes: JSON objects, CSV rows.

Envelopes (:mod:`nccl_inspect.ingest.envelopes`) are written in these terms.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from nccl_inspect.text import decode

if TYPE_CHECKING:
    from json import JSONDecoder

ISO = rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: ?Z|[+-]\d\d:?\d\d)?"
"""A date and time by ISO 8601 or nearly so, as envelopes print them."""
PART = 1 << 14
"""Bytes at which container runtimes cut a line."""
DAY = rb"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d"
"""A day and time as syslog prints them."""


class Stated(NamedTuple):
    """What a launcher or collector says of a line."""

    time: str | None = None
    label: str | None = None
    """Pod, container, node or worker: what it calls the printer."""
    rank: int | None = None
    stream: str = ""
    partial: bool = False
    """The line goes on in the next one of the same stream."""

    def within(self, outer: Stated) -> Stated:
        """This and what an envelope around it states; the inner one was nearer to the printer."""
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


Reader: TypeAlias = Callable[[bytes], list[Inner]]
"""Gives the lines in a whole-line envelope; none when the line is of another kind."""

JSON = re.compile(rb'[\s,]*(?:\[\s*)?(?:\{\s*"|"[@\w.]{1,40}"\s*:\s*")')
"""How a line with JSON opens: with an object, an array of such, or a member of an object that is spread over lines."""
JSON_FIRST = b'{[" \t,'
_MEMBER = re.compile(rb'[\s,]*("[@\w.]{1,40}"\s*:\s*".*")[\s,}\]]*', re.DOTALL)


class JsonReader:
    """A reader of JSON objects; all but the last argument are paths such as ``kubernetes.pod_name`` or ``events[].x``.

    Args:
        message: where the line stands.
        time: where its time stands; more than one place is separated by blanks.
        label: where the names of its printer stand; all that are there count.
        rank: where its rank stands.
        needs: a member that must be there as well.
        stream: where the name of its stream stands.
        parts: where ``P`` says that the line goes on in the next one of the same stream.
        size: a text of so many bytes that does not end its line goes on, too.
    """

    def __init__(
        self,
        message: str,
        *,
        time: str = "",
        label: str = "",
        rank: str = "",
        needs: str = "",
        stream: str = "",
        parts: str = "",
        size: int = 0,
    ) -> None:
        self.message = message
        self._holder, _, self._member = message.rpartition("[].")
        self.needle = f'{self._member.rpartition(".")[2]}"'.encode()
        self._time, self._label, self._rank = time.split(), label.split(), rank.split()
        self._stream, self._parts = stream.split(), parts.split()
        self._needs = needs
        self._size = size

    def __call__(self, line: bytes) -> list[Inner]:
        """The lines in an object."""
        document = _document(line) if self.needle in line else None
        if document is None:
            return []
        if self._holder:
            holders = at(document, self._holder.strip("."))
            records = [item for found in holders if isinstance(found, list) for item in found]
        else:
            records = document if isinstance(document, list) else [document]
        return [inner for record in records for inner in self._record(record)]

    def _record(self, record: Any) -> Iterator[Inner]:
        if not isinstance(record, dict) or (self._needs and not at(record, self._needs)):
            return
        for text in map(_text, at(record, self._member)):
            if text is not None:
                yield Inner(text, self._stated(record, text))

    def _stated(self, record: Any, text: bytes) -> Stated:
        times, ranks = _strings(record, self._time), _strings(record, self._rank)
        return Stated(
            times[0] if times else None,
            "/".join(_strings(record, self._label)) or None,
            int(ranks[0]) if ranks and ranks[0].isdecimal() else None,
            "".join(_strings(record, self._stream)),
            self._goes_on(record, text),
        )

    def _goes_on(self, record: Any, text: bytes) -> bool:
        if self._parts and _strings(record, self._parts) == ["P"]:
            return True
        return 0 < self._size <= len(text) and not text.endswith(b"\n")


def any_reader(line: bytes) -> list[Inner]:
    """The line in an object of an unknown kind: the text of NCCL, else the longest one that is no time."""
    document = _document(line)
    texts = list(_all_texts(document)) if isinstance(document, dict) else []
    times = [text for text in texts if _TIME.fullmatch(text)]
    said = [text for text in texts if text not in times]
    if not said:
        return []
    text = _text(max(said, key=lambda text: ("NCCL " in text, len(text))))
    return [Inner(text, Stated(times[0] if times else None))] if text else []


def _all_texts(record: dict[str, Any], depth: int = 3) -> Iterator[str]:
    for value in record.values():
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict) and depth:
            yield from _all_texts(value, depth - 1)


_STRING = re.compile(rb"""[\s,\[]*(b?(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"))[\s,\]]*""")


def quoted_reader(line: bytes) -> list[Inner]:
    """The line that a string stands for, as JSON or Python writes it."""
    from ast import literal_eval  # few logs are such

    string = _STRING.fullmatch(line)
    try:
        found = literal_eval(decode(string[1])) if string else ""
    except (ValueError, SyntaxError):
        return []
    inner = found if isinstance(found, bytes) else _text(found)
    return [Inner(inner)] if inner and inner != line else []


def _strings(record: Any, paths: Iterable[str]) -> list[str]:
    return [str(value) for path in paths for value in at(record, path) if isinstance(value, str | int | float)]


def _text(value: Any) -> bytes | None:
    if isinstance(value, list):  # journald writes bytes that are not UTF-8 as numbers
        small = value and all(isinstance(item, int) and 0 <= item < 256 for item in value)
        return bytes(value) if small else None
    if not isinstance(value, str):
        return None
    try:
        return value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return value.encode("utf-8", "replace")


def at(record: Any, path: str) -> list[Any]:
    """What stands at a path: nothing or one value; a name with dots may be one name."""
    found = record
    if isinstance(found, dict) and path in found:
        return [] if found[path] in (None, "") else [found[path]]
    if "." not in path:
        return []
    for name in path.split("."):
        if not isinstance(found, dict) or name not in found:
            return []
        found = found[name]
    return [] if found in (None, "") else [found]


@lru_cache(maxsize=1)
def _document(line: bytes) -> Any:
    """The JSON in a line; several envelopes look at the same one. None when it is none."""
    text = line.strip(b" \t\r,")
    if member := _MEMBER.fullmatch(line):
        text = b"{" + member[1] + b"}"
    for shortened in (text, text.lstrip(b"["), text.rstrip(b"]")):
        try:
            return _decoder().decode(decode(shortened))
        except (ValueError, RecursionError):
            continue
    return None


@cache
def _decoder() -> JSONDecoder:
    import json  # only logs in JSON need it

    return json.JSONDecoder(strict=False)


_TIME = re.compile((ISO + rb"|\d{10,19}").decode("ascii"))
CSV = re.compile(rb'"|(?:' + ISO + rb"|\d{10,19}),(?!\d{3} )")
"""How a row of CSV opens that holds a log line: with a time, or with a quoted cell; no comma before thousandths."""
CSV_FIRST = b'"0123456789'


def csv_reader(line: bytes) -> list[Inner]:
    """The log line in a row: the cell of NCCL, else the longest that is no time."""
    import csv  # only logs in CSV need it

    try:
        cells = next(csv.reader([decode(line)], strict=True), [])
    except csv.Error:
        return []
    times = [cell for cell in cells if _TIME.fullmatch(cell)]
    texts = [cell for cell in cells if not _TIME.fullmatch(cell)]
    if not texts:
        return []
    best = max(texts, key=lambda cell: ("NCCL " in cell, len(cell)))
    text = _text(best)
    return [Inner(text, Stated(times[0] if times else None))] if text and text != line else []
