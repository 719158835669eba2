"""Exports as CSV with a line of column names: each row becomes an object with these names, in one line.

Logs Insights, Google Cloud Logging, Azure Monitor, Datadog, Kibana, Splunk and Grafana write them, with columns in any
order. Rows without such a line are read by :mod:`nccl_inspect.ingest.envelopes.csv_export`.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator

from nccl_inspect.ingest.exports.json_documents import message_paths
from nccl_inspect.ingest.lines.torn import Numbered
from nccl_inspect.ingest.sources.streams import BLOCK
from nccl_inspect.util.text import decode, encode

_UNIT = re.compile(r" \[[^\]]*\]$")
"""What Azure puts after a name: ``TimeGenerated [UTC]``."""
_MAX_ROW = 1 << 17
"""Bytes of the longest row; after that a quote that does not end is taken for text."""


def reader(head: bytes, turned: bool = False) -> Sheet | None:
    """Return what reads a source that begins so; None when it has no line that names columns."""
    line = decode(head.partition(b"\n")[0]).rstrip("\r")
    delimiter = max(",;\t", key=line.count)
    try:
        names = [_UNIT.sub("", name) for name in _cells(line, delimiter)]
    except csv.Error:
        return None
    return Sheet(names, delimiter, turned) if set(names) & set(message_paths()) else None


def _cells(text: str, delimiter: str) -> list[str]:
    return next(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True), [])


class Sheet:
    """Takes the bytes of a table as they come and gives its rows, each as a line.

    A row that does not fit the columns is given as it is.

    Args:
        names: of the columns.
        delimiter: between cells.
        turned: whether the lines will be read from the last one on; those of one row then come turned round.
    """

    def __init__(self, names: list[str], delimiter: str, turned: bool = False) -> None:
        self._step = -1 if turned else 1
        self.lines = 0
        """Line ends seen."""
        self._names = names
        self._message = next(name for name in message_paths() if name in names)
        self._delimiter = delimiter
        self._rest = b""
        self._row: list[bytes] = []
        """The lines of a row that has not ended."""
        self._size = 0
        """Their bytes, with line ends."""
        self._quotes = 0
        self._number = 0
        """Of the line read last."""

    def feed(self, data: bytes) -> Iterator[Numbered]:
        """The rows that are whole by now."""
        self.lines += data.count(b"\n")
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._rest = self._rest[:BLOCK]
        for line in lines:
            yield from self._line(line)

    def finish(self) -> Iterator[Numbered]:
        """The rows that are left at the end of the source."""
        if self._rest:
            yield from self._line(self._rest)
        yield from self._given_up()

    def _line(self, line: bytes) -> Iterator[Numbered]:
        self._number += 1
        if self._number == 1:
            return
        self._row.append(line.rstrip(b"\r"))
        self._size += len(line) + 1
        self._quotes += line.count(b'"')
        if self._quotes % 2 == 0:
            row = self._taken()
            yield from self._cells(decode(b"\n".join(row)), self._number - len(row) + 1) or self._plain(row)
        elif self._size > _MAX_ROW:
            yield from self._given_up()

    def _taken(self) -> list[bytes]:
        """The lines of the row, which ends here."""
        row, self._row = self._row, []
        self._size = self._quotes = 0
        return row

    def _cells(self, text: str, number: int) -> list[Numbered]:
        """A row as a line, or as one for each line of its message; none when it does not fit."""
        try:
            cells = _cells(text, self._delimiter)
        except csv.Error:
            return []
        if len(cells) != len(self._names):
            return []
        row = dict(zip(self._names, cells, strict=True))
        texts = row[self._message].rstrip("\r\n").split("\n")[:: self._step]
        return [
            Numbered(number, encode(json.dumps({**row, self._message: message}, ensure_ascii=False)))
            for message in texts
        ]

    def _plain(self, lines: list[bytes]) -> list[Numbered]:
        first = self._number - len(lines) + 1
        return [Numbered(number, line) for number, line in enumerate(lines, first)]

    def _given_up(self) -> Iterator[Numbered]:
        yield from self._plain(self._taken())
