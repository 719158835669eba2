"""Makes the events of a production: what they share is computed once.

The result is that of :meth:`nccl_inspect.event.base.Event.build` with the values of the match, in about half the time.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, TypeAlias

from nccl_inspect.event.types import KINDS, Event
from nccl_inspect.util.records import slots
from nccl_inspect.util.text import decode

if TYPE_CHECKING:
    from nccl_inspect.grammar.production import Production

Maker: TypeAlias = Callable[[re.Match[bytes], bytes], Event]
"""The event of a match of a message."""


def is_plain(production: Production) -> bool:
    """Whether the fields of its events are those of its messages."""
    kind: Any = KINDS[production.event]
    return kind.arrange.__func__ is Event.arrange.__func__  # type: ignore[attr-defined]


def events(
    production: Production, same: Mapping[str, object], columns: Mapping[str, Sequence[object]], messages: Sequence[str]
) -> list[Event]:
    """Many events of a plain production.

    Args:
        production: of them all.
        same: the values of fields that are the same in all.
        columns: those of other fields, event by event.
        messages: what was printed.
    """
    kind: Any = KINDS[production.event]
    names = dict.fromkeys(name for name, _, _ in production.shape.fields)
    blank = kind.build(production, {**names, **same}, "")
    made: list[Event] = list(map(kind.__new__, repeat(kind, len(messages))))
    for name, _, put in slots(kind):
        values = messages if name == "message" else columns.get(name) or repeat(getattr(blank, name))
        deque(map(put, made, values), maxlen=0)
    return made


def maker(production: Production) -> Maker:
    """A function that makes the events of a production."""
    kind: Any = KINDS[production.event]
    shape = production.shape
    if not is_plain(production):
        return lambda match, message: kind.build(production, shape.values(match), decode(message))

    fields: dict[str, list[tuple[int, Callable[[bytes], object]]]] = {}
    for name, field, group in shape.fields:
        fields.setdefault(name, []).append((group - 1, field.read))
    # Names that begin with "_" are part of the pattern only; events do not have them.
    blank: Event = kind.build(production, dict.fromkeys(fields), "")
    puts = {name: put for name, _, put in slots(kind)}
    fixed = [(put, getattr(blank, name)) for name, put in puts.items() if name not in fields and name != "message"]
    read = [(puts[name], *sources[0]) for name, sources in fields.items() if len(sources) == 1 and name in puts]
    chosen = [(puts[name], sources) for name, sources in fields.items() if len(sources) > 1 and name in puts]
    put_message = puts["message"]

    def make(match: re.Match[bytes], message: bytes) -> Event:
        groups = match.groups()
        event: Event = kind.__new__(kind)
        for put, value in fixed:
            put(event, value)
        for put, group, value_of in read:
            data = groups[group]
            put(event, None if data is None else value_of(data))
        for put, options in chosen:
            values = [value_of(groups[group]) for group, value_of in options if groups[group] is not None]
            put(event, values[-1] if values else None)
        put_message(event, decode(message))
        return event

    return make
