"""Lines that are JSON objects with a line of a log in them: what collectors and clouds write and export."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from nccl_inspect.ingest.lines.envelope_fields import TIME, Inner, Stated, text_of, worth
from nccl_inspect.util.patterns import compile_later
from nccl_inspect.util.text import decode

if TYPE_CHECKING:
    from json import JSONDecoder

JSON = compile_later(rb'[\s,]*(?:\[\s*)?(?:\{\s*"|"[@\w.]{1,40}"\s*:\s*")')
"""How a line with JSON opens: with an object, an array of such, or a member of an object that is spread over lines."""
JSON_FIRST = b'{[" \t,'
_MAX_DEPTH = 8
"""More than any path has names."""
_MAX_SHAPES = 100
_LONG = 16_384
"""Bytes of an object whose shape is not remembered: there are few, and they may have thousands of members."""
_MEMBER = compile_later(rb'[\s,]*("[@\w.]{1,40}"\s*:\s*".*")[\s,}\]]*', re.DOTALL)


class JsonReader:
    """A reader of JSON objects; all but the last argument are paths such as ``kubernetes.pod_name`` or ``events[].x``.

    Args:
        message: where the line stands.
        time: where its time stands; more than one place is separated by blanks.
        label: where the names of its printer stand; all that are there count.
        rank: where its rank stands.
        needs: a member that must be there as well.
        stream: where the name of its stream stands.
        parts: where it stands that the line continues in the next one of the same stream, and how: ``logtag=P``.
        size: a text of this many bytes without a line end continues in the next record.
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
        self._time, self._label, self._rank = time.split(), label.split(), rank.split()
        self._stream = stream.split()
        self._parts = [part.partition("=") for part in parts.split()]
        self._needs = needs
        first = (self._holder or self._member).strip(".")
        self._names = {first, first.partition(".")[0]}
        """One of them an object has in which this finds something."""
        self._size = size

    def __call__(self, line: bytes) -> list[Inner]:
        """Return the lines in an object."""
        return self.read(_document(line))

    def read(self, document: Any) -> list[Inner]:
        """Return the lines in what JSON stands for."""
        if self._holder:
            holder = at(document, self._holder.strip("."))
            records = holder if isinstance(holder, list) else []
        else:
            records = document if isinstance(document, list) else [document]
        return [inner for record in records for inner in self._record(record)]

    def may_read(self, document: Any) -> bool:
        """Return whether there may be lines in what JSON stands for, decided quickly."""
        return not isinstance(document, dict) or not self._names.isdisjoint(document)

    def _record(self, record: Any) -> Iterator[Inner]:
        if self._needs and at(record, self._needs) is None:
            return
        text = text_of(at(record, self._member))
        if text is not None:
            yield Inner(text, self._read_stated(record, text))

    def _read_stated(self, record: Any, text: bytes) -> Stated:
        times, ranks = _strings(record, self._time), _strings(record, self._rank)
        return Stated(
            times[0] if times else None,
            "/".join(_strings(record, self._label)) or None,
            int(ranks[0]) if ranks and ranks[0].isdecimal() else None,
            "".join(_strings(record, self._stream)),
            self._goes_on(record, text),
        )

    def _goes_on(self, record: Any, text: bytes) -> bool:
        if any(_strings(record, [place]) == [value] for place, _, value in self._parts):
            return True
        return 0 < self._size <= len(text) and not text.endswith(b"\n")


class JsonReaders:
    """Several readers: the one that knows most of an object reads it."""

    def __init__(self, readers: Sequence[JsonReader]) -> None:
        self._readers = readers
        self._best: dict[Hashable, JsonReader] = {}
        """By the shape of an object: objects of one collector are alike."""

    def __call__(self, line: bytes) -> list[Inner]:
        """Return the lines in an object."""
        document = _document(line)
        if len(line) > _LONG:
            return self._best_of(document).read(document)
        shape = _shape(document)
        reader = self._best.get(shape)
        if reader is None:
            if len(self._best) >= _MAX_SHAPES:
                self._best.clear()
            reader = self._best[shape] = self._best_of(document)
        return reader.read(document)

    def _best_of(self, document: Any) -> JsonReader:
        asked = [reader for reader in self._readers if reader.may_read(document)]
        return max(asked or self._readers[:1], key=lambda reader: worth(reader.read(document)))


def _shape(value: Any, depth: int = _MAX_DEPTH) -> Hashable:
    """Return what of an object decides how much a reader knows of it: the names in it, and whether there are values."""
    kind = type(value)
    if kind is str:
        return value.isdecimal() if value else None
    if value is None:
        return None
    if kind is dict:
        return (tuple(value), tuple([_shape(member, depth - 1) for member in value.values()])) if depth else dict
    if kind is list:
        records = [_shape(member, depth - 1) for member in value if isinstance(member, dict)] if depth else []
        return list, text_of(value) is None, tuple(records)
    return int, str(value).isdecimal()


def any_reader(line: bytes) -> list[Inner]:
    """Return the line in an object of an unknown kind: the text of NCCL, else the longest one that is not a time."""
    document = _document(line)
    texts = list(_all_texts(document)) if isinstance(document, dict) else []
    times = [text for text in texts if TIME.fullmatch(text)]
    messages = [text for text in texts if text not in times]
    if not messages:
        return []
    text = text_of(max(messages, key=lambda text: ("NCCL " in text, len(text))))
    return [Inner(text, Stated(times[0] if times else None))] if text else []


def _all_texts(record: dict[str, Any], depth: int = 3) -> Iterator[str]:
    for value in record.values():
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict) and depth:
            yield from _all_texts(value, depth - 1)


def _strings(record: Any, paths: Iterable[str]) -> list[str]:
    texts = [str(value) for path in paths if isinstance(value := at(record, path), str | int | float)]
    return [text if text.isascii() else decode(text_of(text) or b"") for text in texts]


def at(record: Any, path: str) -> Any:
    """Return the value at a path, None for nothing; a name with dots may be one name."""
    if not isinstance(record, dict):
        return None
    node = record.get(path, _ABSENT)
    if node is _ABSENT:
        if "." not in path:
            return None
        node = record
        for name in path.split("."):
            if not isinstance(node, dict) or name not in node:
                return None
            node = node[name]
    return None if node == "" else node


_ABSENT = object()


@lru_cache(maxsize=1)
def _document(line: bytes) -> Any:
    """Return the JSON in a line; several envelopes look at the same one. None when it is none."""
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
