"""Events as Arrow tables: one schema for all of them, with a column for every field that any event has.

Column types follow from the annotations of :mod:`nccl_inspect.event.types`; a field that an event does not have is
null. The columns depend on what is asked for (all, or those of some kinds) and never on what a log holds, so that the
tables of any logs fit together.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import chain, islice
from typing import Any, get_type_hints

import pyarrow as pa

from nccl_inspect.event.base import PlacedEvent
from nccl_inspect.event.types import KINDS, WHERE, Event, Where, list_columns, name_column, plain_value
from nccl_inspect.util.records import values

BATCH = 20_000
_SCALARS = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
_NESTED = {  # fields that hold tuples
    "ranks": pa.list_(pa.int64()),
    "trees": pa.list_(pa.list_(pa.int64())),
    "devices": pa.list_(pa.list_(pa.string())),
    "values": pa.map_(pa.string(), pa.string()),
}
_CONVERTED = ("values", "devices")  # those of them that hold what is written as text
FIRST = ("kind", *Where._fields, "dialect", "production", "message")  # the columns that every table begins with


@cache
def schema(kinds: frozenset[str] = frozenset(), columns: tuple[str, ...] = ()) -> pa.Schema:
    """Return the schema: ``kind`` (the class), place of the line, what every event has, the classes' fields by name.

    Args:
        kinds: the classes whose fields are wanted; all when empty.
        columns: only these; all when empty.

    A TypeError says that two classes give one name different types.
    """
    whole = _whole_schema()
    wanted = {name for kind in kinds or KINDS for name in list_columns(kind)}
    fields = [column for column in whole if column.name in FIRST or column.name in wanted]
    return pa.schema([column for column in fields if not columns or column.name in columns])


@cache
def _whole_schema() -> pa.Schema:
    columns: dict[str, pa.DataType] = {"kind": pa.string()}
    columns.update({name: _column(name, hint) for name, hint in get_type_hints(Where).items()})
    classes: list[type[Event]] = [Event, *sorted(KINDS.values(), key=lambda kind: kind.__name__)]
    for kind in classes:
        hints = get_type_hints(kind)
        for field in dataclasses.fields(kind):
            if field.name == WHERE:
                continue
            name, column = name_column(field.name), _column(field.name, hints[field.name])
            if columns.setdefault(name, column) != column:
                raise TypeError(f"{kind.__name__}.{field.name} is {column}, elsewhere {columns[name]}")
    rest = sorted(columns.keys() - set(FIRST))
    return pa.schema([(name, columns[name]) for name in (*FIRST, *rest)])


def _column(name: str, hint: Any) -> pa.DataType:
    if name in _NESTED:
        return _NESTED[name]
    options = [option for option in getattr(hint, "__args__", (hint,)) if option is not type(None)]
    return _SCALARS[options[0]]


def batches(events: Iterable[PlacedEvent], kinds: frozenset[str] = frozenset()) -> Iterator[pa.RecordBatch]:
    """Yield the events in their order as batches of at most 20,000 rows, with columns for some kinds, or for all."""
    stream, columns = iter(events), schema(kinds)
    while some := list(islice(stream, BATCH)):
        # Each event is converted once, those of a class together, wherever lines state it.
        by_kind: dict[type[Event], dict[int, Event]] = {}
        for _, event in some:
            by_kind.setdefault(type(event), {})[id(event)] = event
        numbers = {number: at for at, number in enumerate(chain.from_iterable(by_kind.values()))}
        places = pa.array([numbers[id(event)] for _, event in some])
        groups: list[dict[str, Sequence[Any]]] = []  # what events of one class state, by column
        for kind, alike in by_kind.items():
            stated = zip(*map(values, alike.values()), strict=True)
            groups.append(dict(zip(list_columns(kind.__name__), stated, strict=True)))
            groups[-1][WHERE] = groups[-1]["kind"] = [kind.__name__] * len(alike)
        wheres = dict(zip(Where._fields, zip(*(where for where, _ in some), strict=True), strict=True))
        arrays = []
        for column in columns:
            if column.name in wheres:
                arrays.append(_array(column, wheres[column.name]))
            elif any(column.name in group for group in groups):
                own = [
                    _array(column, group[column.name])
                    if column.name in group
                    else pa.nulls(len(group["kind"]), column.type)
                    for group in groups
                ]
                arrays.append(pa.concat_arrays(own).take(places))
            else:  # most columns of most batches hold nothing and cost nothing
                arrays.append(pa.nulls(len(some), column.type))
        yield pa.RecordBatch.from_arrays(arrays, schema=columns)


def _array(column: pa.Field, column_values: Sequence[Any]) -> pa.Array:
    """Return a column; the few values that Arrow does not take as they are are looked for where there are some."""
    if column.name not in _CONVERTED:
        try:
            return pa.array(column_values, column.type)
        except (UnicodeEncodeError, OverflowError, pa.ArrowInvalid):
            pass
    return pa.array([plain_value(column.name, value) for value in column_values], column.type)


def table(events: Iterable[PlacedEvent], kinds: frozenset[str] = frozenset()) -> pa.Table:
    """Return all events as one table; arguments as for :func:`batches`."""
    return pa.Table.from_batches(batches(events, kinds), schema=schema(kinds))
