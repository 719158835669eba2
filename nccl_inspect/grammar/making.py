"""Makes the events of a production: what they share is computed once.

The result is that of :meth:`nccl_inspect.event.base.Event.build` with the values of the match, in about half the time.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from nccl_inspect.event.types import KINDS, Event, Message
from nccl_inspect.util.records import slots
from nccl_inspect.util.text import decode

if TYPE_CHECKING:
    from nccl_inspect.grammar.production import Production

Maker: TypeAlias = Callable[[re.Match[bytes], bytes], Event]
"""The event of a match of a message."""


def _is_arranged_by(kind: type[Event], production: Production) -> bool:
    own: Any = KINDS[production.event].arrange
    its: Any = kind.arrange
    return own.__func__ is its.__func__


def maker(production: Production) -> Maker:
    """A function that makes the events of a production."""
    kind: Any = KINDS[production.event]
    shape = production.shape
    if _is_arranged_by(Message, production):
        return _maker_in_one(production)
    if not _is_arranged_by(Event, production):
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
