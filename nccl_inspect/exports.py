"""Events as files: one writer for each format, each writes as events come and keeps no more than a batch of them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable
from pathlib import PurePath
from typing import Any, BinaryIO, NamedTuple

from nccl_inspect.errors import NcclInspectError, suggestion
from nccl_inspect.event_types import KINDS, Event

_Writer = Callable[[Iterable[Event], frozenset[str], BinaryIO], None]


class Format(NamedTuple):
    """How events are written."""

    write: _Writer
    """Takes the events, the kinds whose columns are wanted (all when empty), and where to write to."""
    suffixes: tuple[str, ...]
    text: bool = False
    """Whether a terminal can show it."""
    streams: bool = True
    """Whether it can be written to a pipe."""


def kinds_named(names: Iterable[str]) -> frozenset[str]:
    """The event classes that a user names.

    Raises:
        NcclInspectError: there is no such class.
    """
    by_lower = {name.lower(): name for name in KINDS if name != "Event"}
    names = tuple(names)
    for name in names:
        if name.lower() not in by_lower:
            hint = suggestion(name, by_lower.values()) or f"known are {', '.join(sorted(by_lower.values()))}"
            raise NcclInspectError(f"no event '{name}'", hint)
    return frozenset(by_lower[name.lower()] for name in names)


def format_of(target: str) -> str:
    """The format that a file name asks for.

    Raises:
        NcclInspectError: its suffix says nothing.
    """
    suffix = PurePath(target).suffix.lower()
    for name, form in FORMATS.items():
        if suffix in form.suffixes:
            return name
    known = ", ".join(form.suffixes[0] for form in FORMATS.values())
    raise NcclInspectError(f"{target}: its suffix names no format", f"known are {known}; or say --format")


def _parquet(events: Iterable[Event], kinds: frozenset[str], file: BinaryIO) -> None:
    from pyarrow import parquet

    from nccl_inspect import tables  # pyarrow takes its time to load: only where it is needed

    with parquet.ParquetWriter(file, tables.schema(kinds), compression="zstd") as writer:
        for batch in tables.batches(events, kinds):
            writer.write_batch(batch)


def _arrow(events: Iterable[Event], kinds: frozenset[str], file: BinaryIO) -> None:
    """The file format; a pipe gets the stream format, which needs no way back."""
    from pyarrow import ipc

    from nccl_inspect import tables

    new = ipc.new_file if file.seekable() else ipc.new_stream
    with new(file, tables.schema(kinds)) as writer:
        for batch in tables.batches(events, kinds):
            writer.write_batch(batch)


def _arrow_stream(events: Iterable[Event], kinds: frozenset[str], file: BinaryIO) -> None:
    from pyarrow import ipc

    from nccl_inspect import tables

    with ipc.new_stream(file, tables.schema(kinds)) as writer:
        for batch in tables.batches(events, kinds):
            writer.write_batch(batch)


def _csv(events: Iterable[Event], kinds: frozenset[str], file: BinaryIO) -> None:
    """A header, then a row for each event; lists are JSON, what an event does not say is empty."""
    from nccl_inspect import tables

    text = io.TextIOWrapper(file, "utf-8", newline="", write_through=True)
    writer = csv.DictWriter(text, tables.schema(kinds).names, lineterminator="\n")
    writer.writeheader()
    for event in events:
        writer.writerow({name: _cell(name, value) for name, value in tables.row(event).items()})
    text.detach()


def _cell(name: str, value: Any) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return _json(_named(name, value))
    return value


def _jsonl(events: Iterable[Event], _kinds: frozenset[str], file: BinaryIO) -> None:
    """An object for each event, with what it states only."""
    from nccl_inspect import tables

    for event in events:
        values = {name: _named(name, value) for name, value in tables.row(event).items()}
        file.write(_json(values).encode() + b"\n")


def _named(name: str, value: Any) -> Any:
    return dict(value) if name == "values" else value


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


FORMATS: dict[str, Format] = {
    "parquet": Format(_parquet, (".parquet", ".pq"), streams=False),
    "arrow": Format(_arrow, (".arrow", ".feather", ".ipc")),
    "arrow-stream": Format(_arrow_stream, (".arrows",)),
    "csv": Format(_csv, (".csv",), text=True),
    "jsonl": Format(_jsonl, (".jsonl", ".ndjson"), text=True),
}
"""By name, as ``--format`` has them."""
