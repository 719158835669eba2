"""Exports that are JSON over many lines, or one array in one line: split into their records, one line for each.

``gcloud logging read --format=json``, ``aws logs get-log-events``, the results of Logs Insights, Elasticsearch, Loki,
Datadog and Azure Monitor are such documents. JSON with one object in each line is none: its lines are read as they are.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain
from typing import Any, NamedTuple

from nccl_inspect.ingest.envelopes.readers import MESSAGES, choose_name, flatten
from nccl_inspect.ingest.lines.torn import LineReader, Numbered
from nccl_inspect.ingest.sources.streams import BLOCK
from nccl_inspect.util.text import decode, encode

_OPENING = re.compile(rb'\s*(?:"|\[\s*(?:[\[{"]|\Z)|\{\s*(?:"|\Z))')
_VALUE = re.compile(r'\[\s*(?:[\[{"\]]|\Z)|\{\s*(?:["}]|\Z)|"')
_OPEN_STRING = re.compile(rb'"(?:[^"\\]|\\.)*\\?', re.DOTALL)
_BETWEEN = re.compile(r"[\s,]*")
_SCALAR = re.compile(r"(?:-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null)(?=[\s,\]}]|\Z)")
_COLON = re.compile(r"\s*:")
_BLANK = re.compile(r"\s*\Z")
_CLOSERS = frozenset("]}")
_OPENERS = frozenset('[{"')
_CONTEXT = ("columns", "fields", "stream")
"""Members that say what the lists beside them mean: names of columns, labels of a stream."""
_MARK = "NCCL "
_MOST = 4  # records per line that is not one: with fewer, the file is a log that begins with some JSON
_MAX_DEPTH = 8  # arrays and objects around the records
_DONE = 1 << 16  # characters that were read and are still kept
_MAX_RECORD = BLOCK
_MAX_TEXT = 8 << 20  # the longest string: a log that is one string is longer than a record


class _Frame(NamedTuple):
    """An array or object whose contents are read one by one."""

    sign: str
    context: dict[str, Any]


def reader(head: bytes, turned: bool = False) -> Document | None:
    """Return the splitter for a source that begins so; None when it is not a document with log lines."""
    if not _OPENING.match(head):
        return None
    first, _, rest = head.lstrip().partition(b"\n")
    try:
        value = json.loads(decode(first), strict=False)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict) and rest.strip() and (_path(dict(flatten(value))) or not _try_head(first).records):
        return None  # an object in each line, or one line that is JSON
    has_lines = "\n" in value if isinstance(value, str) else _OPEN_STRING.fullmatch(first)
    if first.startswith(b'"') and not has_lines:
        return None  # lines in quotes
    trial = _try_head(head)
    return Document(turned, trial.paths) if trial.records > _MOST * trial.others else None


def _try_head(head: bytes) -> Document:
    trial = Document()
    deque(chain(trial.feed(head), trial.finish()), maxlen=0)
    return trial


class Document(LineReader):
    """Takes the bytes of a document as they come and gives its records, each as a line with the number of its message.

    What is not JSON is given as it is, and so is the rest of a document that breaks off.

    Args:
        turned: whether the lines will be read from the last one on; those of one record then come turned round.
        paths: where the message is in records of a kind that no envelope knows.
    """

    def __init__(self, turned: bool = False, paths: Iterable[str] = ()) -> None:
        self.paths = list(paths)
        self._path = ""  # where the message of the record before stood
        self._step = -1 if turned else 1
        self.lines = self.records = self.others = 0  # lines seen; records given, and lines given as they are
        self._is_in_line = False
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._json = json.JSONDecoder(strict=False)
        self._text = ""
        self._at = 0
        self._since = 0  # where what was not given begins: in the same line as ``_at``
        self._number = 1  # of the line in which ``_at`` is
        self._key: str | None = None
        self._frames: list[_Frame] = []
        self._wanted = 0  # characters to wait for before parsing is tried again

    def feed(self, data: bytes) -> Iterator[Numbered]:
        """Yield the records that are whole by now."""
        self.lines += data.count(b"\n")
        self._is_in_line = not data.endswith(b"\n")
        self._forget(max(self._since, self._at - _MAX_RECORD))
        self._text += self._decoder.decode(data)
        if len(self._text) - self._at >= self._wanted:
            yield from self._records(ended=False)

    def finish(self) -> Iterator[Numbered]:
        """Yield the records that are left at the end of the source."""
        self.lines += self._is_in_line
        yield from self._records(ended=True)
        self._text = ""

    def _records(self, ended: bool) -> Iterator[Numbered]:
        while (lines := self._next(ended)) is not None:
            yield from lines
            if self._since > _DONE:
                self._forget(self._since)

    def _forget(self, done: int) -> None:
        """Drop the beginning of the text: what is not JSON makes ``json`` scan all that precedes it."""
        self._text = self._text[done:]
        self._at, self._since = self._at - done, max(self._since - done, 0)

    def _next(self, ended: bool) -> list[Numbered] | None:
        """Return what the next piece of the text gives; None when more of it must come first."""
        between = _BETWEEN.match(self._text, self._at)
        self._go_to(between.end() if between else self._at)
        sign = self._text[self._at : self._at + 1]
        if not sign:
            return None
        if sign in _CLOSERS and self._frames:
            self._frames.pop()
            self._go_to(self._at + 1)
            return []
        if sign in _OPENERS if self._frames else _VALUE.match(self._text, self._at):
            return self._value(sign, ended)
        scalar = _SCALAR.match(self._text, self._at) if self._frames else None
        if scalar and (ended or scalar.end() < len(self._text)):
            self._key = None
            self._go_to(scalar.end())
            return []
        return self._as_it_is(ended)

    def _value(self, sign: str, ended: bool) -> list[Numbered] | None:
        """Return a string, or an array or object, whole or entered."""
        try:
            value, end = self._json.raw_decode(self._text, self._at)
        except RecursionError:
            return self._as_it_is(ended)
        except ValueError:
            left = len(self._text) - self._at
            if not ended and left < (_MAX_TEXT if sign == '"' else _MAX_RECORD):
                self._wanted = 2 * left
                return None
            if sign != '"':
                return self._enter(sign) if len(self._frames) < _MAX_DEPTH else self._as_it_is(ended)
            text, line_end, _ = self._text[self._at :].rpartition("\\n")  # a string without an end: its whole lines
            with suppress(ValueError):
                value = json.loads(text + '"', strict=False) if line_end else ""
                if _MARK in value:
                    return self._read_value('"', value, len(self._text))
            return self._as_it_is(ended)
        if isinstance(value, str) and self._key is None:
            colon = _COLON.match(self._text, end)
            if colon is None and not ended and _BLANK.match(self._text, end):
                return None
            if colon and not (self._frames and self._frames[-1].sign == "{"):
                return self._as_it_is(ended)  # the name of a member outside of an object: no part of a document
            if colon:
                self._key = value
                self._go_to(colon.end())
                return []
        return self._read_value(sign, value, end)

    def _read_value(self, sign: str, value: Any, end: int) -> list[Numbered]:
        """Return what a whole value gives."""
        record: Any = None
        if self._key in _CONTEXT:
            self._frames[-1].context[self._key] = value
        elif isinstance(value, str):  # the text of a line
            record = value if _MARK in value or (self._frames and self._key is None) else None
        else:
            row = self._row(value) if isinstance(value, list) else value
            record = row if isinstance(row, dict) and self._place_of_message(row) else None
            if record is None and isinstance(value, dict | list) and value and len(self._frames) < _MAX_DEPTH:
                return self._enter(sign)
        lines = [] if record is None else self._lines(value, record, end)
        self._go_to(end)
        self._since = end if lines else self._since
        self._key = None
        return lines

    def _enter(self, sign: str) -> list[Numbered]:
        self._frames.append(_Frame(sign, {}))
        self._key = None
        self._go_to(self._at + 1)
        return []

    def _place_of_message(self, record: dict[str, Any]) -> str:
        """Return where the message of a record stands; empty when it is none."""
        fields = dict(flatten(record))
        if not self._path or not isinstance(fields.get(self._path), str):
            marked = (path for path, value in fields.items() if isinstance(value, str) and _MARK in value)
            self._path = _path(fields) or next((path for path in self.paths if path in fields), "")
            if not self._path and (path := next(marked, "")):
                self.paths.append(path)
                self._path = path
        return self._path

    def _row(self, row: list[Any]) -> dict[str, Any] | None:
        """Return a row of a table as an object: by its column names, or as Loki's streams and Insights have it."""
        if row and all(isinstance(cell, dict) and cell.keys() >= {"field", "value"} for cell in row):
            return {str(cell["field"]): cell["value"] for cell in row}
        context = dict(chain.from_iterable(frame.context.items() for frame in self._frames))
        names = context.get("columns") or context.get("fields")
        if isinstance(names, list) and len(names) == len(row):
            names = [name.get("name", "") if isinstance(name, dict) else name for name in names]
            return dict(zip(map(str, names), row, strict=True))
        if "stream" in context and len(row) > 1 and all(isinstance(cell, str) for cell in row[:2]):
            return {"timestamp": row[0], "line": row[1], "labels": context["stream"]}
        return None

    def _lines(self, value: Any, record: Any, end: int) -> list[Numbered]:
        """Return a record as a line, or as one for each line of its message."""
        source = self._text[self._at : end]
        if isinstance(record, str):
            self.records += _MARK in record
            return [Numbered(self._number, encode(line)) for line in _split_lines(record)[:: self._step]]
        self.records += 1
        path = self._place_of_message(record)
        marked = source.find(_MARK)
        at = marked if marked >= 0 else max(source.find(f'"{path.rpartition(".")[2]}"'), 0)
        number = self._number + source.count("\n", 0, at)
        texts = _split_lines(str(dict(flatten(record))[path]))[:: self._step]
        if len(texts) > 1:
            return [Numbered(number, _dump_record({**record, path: text})) for text in texts]
        line = encode(source.replace("\n", " ").replace("\r", " ")) if record is value else _dump_record(record)
        return [Numbered(number, line)]

    def _as_it_is(self, ended: bool) -> list[Numbered] | None:
        """Return the rest of a line that is not JSON."""
        end = self._text.find("\n", self._at)
        if end < 0:
            if not ended and len(self._text) - self._at < _MAX_RECORD:
                return None
            end = len(self._text)
        lines = [Numbered(self._number, encode(self._text[self._since : end])[:BLOCK].rstrip(b"\r"))]
        self._go_to(end)
        self._since = end
        self._key = None
        self.others += 1
        return lines

    def _go_to(self, place: int) -> None:
        ends = self._text.count("\n", self._at, place)
        if ends:
            self._number += ends
            self._since = self._text.rindex("\n", self._at, place) + 1
        self._at = place
        self._wanted = 0


def _split_lines(text: str) -> list[str]:
    return text.rstrip("\r\n").split("\n")


def _dump_record(record: dict[str, Any]) -> bytes:
    return encode(json.dumps(record, ensure_ascii=False))


def _path(fields: Mapping[str, Any]) -> str:
    """Return where the message of a record stands, as far as an envelope shows; empty when none does."""
    return next((path for path in MESSAGES if isinstance(fields.get(path), str)), "")


_UNIT = re.compile(r" \[[^\]]*\]$")  # what Azure puts after a name: ``TimeGenerated [UTC]``
_MAX_ROW = 1 << 17  # bytes of the longest row; after that a quote that does not end is taken for text


def table_reader(head: bytes, turned: bool = False) -> Sheet | None:
    """Return what reads a source that begins so; None when it has no line that names columns."""
    line = decode(head.partition(b"\n")[0]).rstrip("\r")
    delimiter = max(",;\t", key=line.count)
    try:
        names = [_UNIT.sub("", name) for name in _cells(line, delimiter)]
    except csv.Error:
        return None
    return Sheet(names, delimiter, turned) if set(names) & set(MESSAGES) else None


def _cells(text: str, delimiter: str) -> list[str]:
    return next(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True), [])


class Sheet(LineReader):
    """Gives the rows of a table, each as a line; one that does not fit the columns as it is.

    Args:
        names: of the columns.
        delimiter: between cells.
        turned: whether the lines will be read from the last one on; those of one row then come turned round.
    """

    def __init__(self, names: list[str], delimiter: str, turned: bool = False) -> None:
        super().__init__()
        self._step = -1 if turned else 1
        self._names = names
        self._messages = [name for name in MESSAGES if name in names]  # the columns that may hold the lines
        self._delimiter = delimiter
        self._row: list[bytes] = []  # the lines of a row that has not ended
        self._size = self._quotes = self._number = 0

    def _take(self, line: bytes) -> Iterator[Numbered]:
        self._number += 1
        if self._number == 1:
            return
        self._row.append(line.rstrip(b"\r"))
        self._size += len(line) + 1
        self._quotes += line.count(b'"')
        if self._quotes % 2 == 0:
            yield from self._read_cells() or self._end()
            self._row, self._size, self._quotes = [], 0, 0
        elif self._size > _MAX_ROW:
            yield from self._end()

    def _end(self) -> Iterator[Numbered]:
        yield from (Numbered(number, line) for number, line in enumerate(self._row, self._number - len(self._row) + 1))
        self._row, self._size, self._quotes = [], 0, 0

    def _read_cells(self) -> list[Numbered]:
        """Return the row as a line, or as one for each line of its message; none when it does not fit."""
        try:
            cells = _cells(decode(b"\n".join(self._row)), self._delimiter)
        except csv.Error:
            return []
        if len(cells) != len(self._names):
            return []
        row = dict(zip(self._names, cells, strict=True))
        column = choose_name({name: encode(row[name]) for name in self._messages})
        number, texts = self._number - len(self._row) + 1, _split_lines(row[column])[:: self._step]
        return [Numbered(number, _dump_record({**row, column: text})) for text in texts]
