"""Events as Arrow tables: one schema for all of them, with a column for every field that any event has.

Column types follow from the annotations of :mod:`nccl_inspect.event_types`; a field that an event does not have is
null. The columns depend on what is asked for (all, or those of some kinds) and never on what a log holds, so that the
tables of any logs fit together.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import islice
from typing import Any, get_type_hints

import pyarrow as pa

from nccl_inspect.event_types import KINDS, Event, Where

_BATCH = 20_000
_SCALARS = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
_NESTED = {
    "ranks": pa.list_(pa.int64()),
    "trees": pa.list_(pa.list_(pa.int64())),
    "devices": pa.list_(pa.list_(pa.string())),
    "values": pa.map_(pa.string(), pa.string()),
}
"""Fields that hold tuples."""
_FIRST = ("kind", *Where._fields, "dialect", "production", "message")
"""The columns that every table begins with."""
_RENAMED = {"kind": "plugin_kind"}
"""Fields whose name is taken: ``kind`` is the class of the event, of a PluginStatus also what sort of plugin it is."""


@cache
def schema(kinds: frozenset[str] = frozenset()) -> pa.Schema:
    """The schema: ``kind`` (the class), where the line stood, what every event has, then the classes' fields by name.

    Args:
        kinds: the classes whose fields are wanted; all when empty.

    Raises:
        TypeError: two classes give one name different types.
    """
    whole = _whole()
    wanted = {_RENAMED.get(name, name) for kind in kinds or KINDS for name in _fields(kind)}
    return pa.schema([column for column in whole if column.name in _FIRST or column.name in wanted])


@cache
def _whole() -> pa.Schema:
    columns: dict[str, pa.DataType] = {"kind": pa.string()}
    columns.update({name: _column(name, hint) for name, hint in get_type_hints(Where).items()})
    classes: list[type[Event]] = [Event, *sorted(KINDS.values(), key=lambda kind: kind.__name__)]
    for kind in classes:
        hints = get_type_hints(kind)
        for field in dataclasses.fields(kind):
            if field.name == "where":
                continue
            name, column = _RENAMED.get(field.name, field.name), _column(field.name, hints[field.name])
            if columns.setdefault(name, column) != column:
                raise TypeError(f"{kind.__name__}.{field.name} is {column}, elsewhere {columns[name]}")
    rest = sorted(columns.keys() - set(_FIRST))
    return pa.schema([(name, columns[name]) for name in (*_FIRST, *rest)])


@cache
def _fields(kind: str) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(KINDS[kind]) if field.name != "where")


def _column(name: str, hint: Any) -> pa.DataType:
    if name in _NESTED:
        return _NESTED[name]
    options = [option for option in getattr(hint, "__args__", (hint,)) if option is not type(None)]
    return _SCALARS[options[0]]


def batches(events: Iterable[Event], kinds: frozenset[str] = frozenset()) -> Iterator[pa.RecordBatch]:
    """The events as record batches of at most 20,000 rows, in their order.

    Args:
        events: as :func:`nccl_inspect.events` gives them.
        kinds: their classes, where these are known: then other classes have no columns.
    """
    stream = iter(events)
    while some := list(islice(stream, _BATCH)):
        yield _batch(some, schema(kinds))


def _batch(events: list[Event], columns: pa.Schema) -> pa.RecordBatch:
    """One batch; most columns of most batches hold nothing and cost nothing."""
    values: dict[str, list[Any]] = {}
    for index, event in enumerate(events):
        for name, value in row(event).items():
            if name not in values:
                values[name] = [None] * len(events)
            values[name][index] = value
    arrays = [
        pa.array(values[column.name], column.type) if column.name in values else pa.nulls(len(events), column.type)
        for column in columns
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=columns)


def table(events: Iterable[Event], kinds: frozenset[str] = frozenset()) -> pa.Table:
    """All events as one table; arguments as for :func:`batches`."""
    return pa.Table.from_batches(batches(events, kinds), schema=schema(kinds))


def row(event: Event) -> dict[str, Any]:
    """What an event states, by column; columns that it says nothing about are left out."""
    values: dict[str, Any] = {"kind": type(event).__name__}
    for name, value in zip(Where._fields, event.where, strict=True):
        if value is not None:
            values[name] = _plain(name, value)
    for name in _fields(type(event).__name__):
        value = getattr(event, name)
        if value is not None:
            values[_RENAMED.get(name, name)] = _plain(name, value)
    return values


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, str):
        if value.isascii():
            return value
        # Arrow text is UTF-8: what could not be decoded is shown as \xNN.
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return None  # a damaged or hostile line: no field of NCCL's is that large
    if name == "values":
        return [(key, None if item is None else _plain("", str(item))) for key, item in value]
    if name == "devices":
        return [[str(part) for part in device] for device in value]
    return value
