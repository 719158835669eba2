"""Events as Arrow tables: one schema for all of them, with a column for every field that any event has.

Column types follow from the annotations of :mod:`nccl_inspect.event_types`; a field that an event does not have is
null.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import islice
from typing import Any, get_type_hints

import pyarrow as pa

from nccl_inspect.event_types import KINDS, Event, Where

_BATCH = 50_000
_SCALARS = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
_NESTED = {
    "ranks": pa.list_(pa.int64()),
    "trees": pa.list_(pa.list_(pa.int64())),
    "devices": pa.list_(pa.list_(pa.string())),
    "values": pa.map_(pa.string(), pa.string()),
}
"""Fields that hold tuples."""


@cache
def schema() -> pa.Schema:
    """The schema: ``kind`` (the class), where the line stood, what every event has, then all classes' fields by name.

    Raises:
        TypeError: two classes give one name different types.
    """
    columns: dict[str, pa.DataType] = {"kind": pa.string()}
    columns.update({name: _column(name, hint) for name, hint in get_type_hints(Where).items()})
    kinds: list[type[Event]] = [Event, *sorted(KINDS.values(), key=lambda kind: kind.__name__)]
    for kind in kinds:
        hints = get_type_hints(kind)
        for field in dataclasses.fields(kind):
            if field.name == "where":
                continue
            column = _column(field.name, hints[field.name])
            if columns.setdefault(field.name, column) != column:
                raise TypeError(f"{kind.__name__}.{field.name} is {column}, elsewhere {columns[field.name]}")
    first = ["kind", *Where._fields, "dialect", "production", "message"]
    rest = sorted(columns.keys() - set(first))
    return pa.schema([(name, columns[name]) for name in (*first, *rest)])


def _column(name: str, hint: Any) -> pa.DataType:
    if name in _NESTED:
        return _NESTED[name]
    options = [option for option in getattr(hint, "__args__", (hint,)) if option is not type(None)]
    return _SCALARS[options[0]]


def batches(events: Iterable[Event]) -> Iterator[pa.RecordBatch]:
    """The events as record batches of at most 50,000 rows, in their order.

    Args:
        events: as :func:`nccl_inspect.events` gives them.
    """
    stream = iter(events)
    while rows := [_row(event) for event in islice(stream, _BATCH)]:
        yield pa.RecordBatch.from_pylist(rows, schema=schema())


def table(events: Iterable[Event]) -> pa.Table:
    """All events as one table."""
    return pa.Table.from_batches(batches(events), schema=schema())


def _row(event: Event) -> dict[str, Any]:
    values = {field.name: getattr(event, field.name) for field in dataclasses.fields(event)}
    row = {name: _plain(name, value) for name, value in (*event.where._asdict().items(), *values.items())}
    del row["where"]
    row["kind"] = type(event).__name__
    return row


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, str):
        # Arrow text is UTF-8: what could not be decoded is shown as \xNN.
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return None  # a damaged or hostile line: no field of NCCL's is that large
    if name == "values":
        return [(key, None if item is None else _plain("", str(item))) for key, item in value]
    if name == "devices":
        return [[str(part) for part in device] for device in value]
    return value
