"""Makes the events of a production: what they share is computed once.

The result is that of :meth:`nccl_inspect.event.base.Event.build` with the values of the match, in about half the time.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, TypeAlias

from nccl_inspect.event.types import KINDS, Event, Message
from nccl_inspect.util.records import slots
from nccl_inspect.util.text import decode

if TYPE_CHECKING:
    from nccl_inspect.grammar.production import Production

Maker: TypeAlias = Callable[[re.Match[bytes], bytes], Event]
"""The event of a match of a message."""


def is_plain(production: Production) -> bool:
    """Whether the fields of its events are those of its messages, or one field has them all."""
    return _is_arranged_by(Event, production) or _is_arranged_by(Message, production)


def _is_arranged_by(kind: type[Event], production: Production) -> bool:
    own: Any = KINDS[production.event].arrange
    its: Any = kind.arrange
    return own.__func__ is its.__func__


def blank(production: Production, same: Mapping[str, object]) -> Event:
    """Return what events of a plain production have in common.

    Args:
        production: of them all.
        same: the values of fields that are the same in all.
    """
    names = dict.fromkeys(name for name, _, _ in production.shape.fields)
    return KINDS[production.event].build(production, {**names, **same}, "")


def events(common: Event, columns: Mapping[str, Sequence[object]], messages: Sequence[str]) -> list[Event]:
    """Many events of a plain production.

    Args:
        common: what they have in common: see :func:`blank`.
        columns: the values of other fields, event by event.
        messages: what was printed.
    """
    kind: Any = type(common)
    size = len(messages)
    if isinstance(common, Message):
        listed = (zip(repeat(name), columns.get(name) or repeat(value, size)) for name, value in common.values)
        columns = {"values": list(zip(*listed, strict=True))}
    made: list[Event] = list(map(kind.__new__, repeat(kind, size)))
    for name, put in slots(kind).items():
        values = messages if name == "message" else columns.get(name) or repeat(getattr(common, name))
        deque(map(put, made, values), maxlen=0)
    return made


def maker(production: Production) -> Maker:
    """A function that makes the events of a production."""
    kind: Any = KINDS[production.event]
    shape = production.shape
    if _is_arranged_by(Message, production):
        return _maker_in_one(production)
    if not is_plain(production):
        return lambda match, message: kind.build(production, shape.values(match), decode(message))

    fields: dict[str, list[tuple[int, Callable[[bytes], object]]]] = {}
    for name, field, group in shape.fields:
        fields.setdefault(name, []).append((group - 1, field.read))
    # Names that begin with "_" are part of the pattern only; events do not have them.
    blank: Event = kind.build(production, dict.fromkeys(fields), "")
    puts = slots(kind)
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


def _maker_in_one(production: Production) -> Maker:
    """Return the same where one field has all fields of the message."""
    kind: Any = KINDS[production.event]
    shape = production.shape
    blank: Event = kind.build(production, {}, "")
    puts = dict(slots(kind))
    put_message, put_values = puts.pop("message"), puts.pop("values")
    fixed = [(put, getattr(blank, name)) for name, put in puts.items()]

    def make(match: re.Match[bytes], message: bytes) -> Event:
        event: Event = kind.__new__(kind)
        for put, value in fixed:
            put(event, value)
        put_values(event, kind.arrange(shape.values(match))["values"])
        put_message(event, decode(message))
        return event

    return make
