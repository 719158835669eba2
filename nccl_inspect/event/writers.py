"""Events as files: one writer for each format, each writes as events come and keeps no more than a batch of them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import lru_cache, partial
from pathlib import PurePath
from tempfile import TemporaryFile
from typing import Any, BinaryIO, NamedTuple

from nccl_inspect.errors import NcclInspectError, suggestion
from nccl_inspect.event.base import PlacedEvent
from nccl_inspect.event.types import KINDS, Event, Where, list_fields, plain_value
from nccl_inspect.util.atomic_files import strip_compression

_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_REMEMBERED = 1 << 11  # texts that were written and are still known, of each kind
_Writer = Callable[[Iterable[PlacedEvent], frozenset[str], BinaryIO], None]


class Format(NamedTuple):
    """Holds how events are written."""

    write: _Writer  # takes the events, the kinds whose columns are wanted (all when empty), and where to write to
    suffixes: tuple[str, ...]
    text: bool = False  # whether a terminal can show it
    streams: bool = True  # whether it can be written to a pipe


def find_kinds(names: Iterable[str]) -> frozenset[str]:
    """Return the event classes that a user names."""
    by_lower = {name.lower(): name for name in KINDS if name != "Event"}
    names = tuple(names)
    for name in names:
        if name.lower() not in by_lower:
            hint = suggestion(name, by_lower.values()) or f"known are {', '.join(sorted(by_lower.values()))}"
            raise NcclInspectError(f"no event '{name}'", hint)
    return frozenset(by_lower[name.lower()] for name in names)


def format_of(target: str) -> str:
    """Return the format that a file name asks for."""
    inner = strip_compression(target)
    suffix = PurePath(inner).suffix.lower()
    for name, form in FORMATS.items():
        if suffix in form.suffixes and (form.text or inner == target):
            return name
    suffixes = ", ".join(form.suffixes[0] for form in FORMATS.values())
    raise NcclInspectError(f"{target}: its suffix names no format", f"known are {suffixes}; or say --format")


def _parquet(events: Iterable[PlacedEvent], kinds: frozenset[str], file: BinaryIO) -> None:
    """Write all columns of the kinds; without kinds those that hold something, which only the end of the log shows."""
    from pyarrow import parquet

    from nccl_inspect.event import arrow  # pyarrow takes its time to load: only where it is needed

    filled: set[str] = set()
    with ExitStack() as stack:
        first = file if kinds else stack.enter_context(TemporaryFile())
        with parquet.ParquetWriter(first, arrow.schema(kinds), compression="zstd") as writer:
            for batch in arrow.batches(events, kinds):
                writer.write_batch(batch)
                filled.update(name for name in batch.schema.names if batch.column(name).null_count < batch.num_rows)
        if kinds:
            return
        whole = parquet.ParquetFile(first)
        names = [name for name in whole.schema_arrow.names if name in filled or name in arrow.FIRST]
        groups = (whole.read_row_group(number, columns=names) for number in range(whole.num_row_groups))
        with parquet.ParquetWriter(file, arrow.schema(columns=tuple(names)), compression="zstd") as writer:
            for group in groups:
                writer.write_table(group)


def _arrow(events: Iterable[PlacedEvent], kinds: frozenset[str], file: BinaryIO, is_file: bool | None = None) -> None:
    """Write the file format; a pipe gets the stream format, which needs no way back."""
    from pyarrow import ipc

    from nccl_inspect.event import arrow

    new = ipc.new_file if (file.seekable() if is_file is None else is_file) else ipc.new_stream
    with new(file, arrow.schema(kinds)) as writer:
        for batch in arrow.batches(events, kinds):
            writer.write_batch(batch)


def _csv(events: Iterable[PlacedEvent], kinds: frozenset[str], file: BinaryIO) -> None:
    """Write a header, then a row for each event; lists are JSON, what an event does not say is empty."""
    from nccl_inspect.event import arrow

    names = arrow.schema(kinds).names
    places = {name: place for place, name in enumerate(names[1 + len(Where._fields) :])}
    blank: list[object] = [""] * len(places)

    def write_fields(event: Event) -> str:
        cells = blank.copy()
        for name, value in list_fields(event).items():
            if isinstance(value, bool):
                value = "true" if value else "false"
            cells[places[name]] = _json(value) if isinstance(value, list | tuple | dict) else value
        return _row(cells)

    file.write(f"{_row(names)}\n".encode())
    for line in _lines(events, lambda *begin: f"{_row(begin)},", lambda place: _row(place.values()), write_fields):
        file.write(line)


def _row(cells: Iterable[object]) -> str:
    row = io.StringIO()
    csv.writer(row, lineterminator="\n").writerow(cells)
    return row.getvalue()[:-1]


def _jsonl(events: Iterable[PlacedEvent], _kinds: frozenset[str], file: BinaryIO) -> None:
    """Write an object for each event, with what it states only."""
    lines = _lines(
        events,
        lambda kind, source: _json({"kind": kind, "source": source})[:-1] + ',"line":',
        lambda place: _json({name: value for name, value in place.items() if value is not None})[1:-1],
        lambda event: _json(list_fields(event))[1:],
    )
    for line in lines:
        file.write(line)


def _lines(
    events: Iterable[PlacedEvent],
    begun: Callable[[str, str], str],
    placed: Callable[[dict[str, Any]], str],
    stated: Callable[[Event], str],
) -> Iterator[bytes]:
    """Yield a line for each event: what lines have alike is written once, and all but the number of the line mostly is.

    The parts of a line are: kind and source, up to the number of the line; who printed it, and when; what it states.
    """
    write_begin = lru_cache(_REMEMBERED)(lambda kind, source: begun(kind, plain_value("source", source)))
    write_fields = lru_cache(_REMEMBERED)(stated)

    @lru_cache(_REMEMBERED)
    def write_place(where: tuple[Any, ...]) -> str:
        names = Where._fields[2:]
        return placed({name: plain_value(name, value) for name, value in zip(names, where, strict=True)})

    for where, event in events:
        begin = write_begin(type(event).__name__, where.source)
        yield f"{begin}{where.line},{write_place(where[2:])},{write_fields(event)}\n".encode()


FORMATS: dict[str, Format] = {  # by name, as `--format` has them
    "parquet": Format(_parquet, (".parquet", ".pq"), streams=False),
    "arrow": Format(_arrow, (".arrow", ".feather", ".ipc")),
    "arrow-stream": Format(partial(_arrow, is_file=False), (".arrows",)),
    "csv": Format(_csv, (".csv",), text=True),
    "jsonl": Format(_jsonl, (".jsonl", ".ndjson"), text=True),
}
