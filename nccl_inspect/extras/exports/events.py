"""Which messages an export gives as fields: those that become an event of their own, together with it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from nccl_inspect.event.types import KINDS
from nccl_inspect.grammar.notation import Shape, field_type, fields
from nccl_inspect.grammar.production import Production

_GENERAL = ("Message", "Notice")
"""Events that keep whatever their messages say."""


def typed(productions: Iterable[Production]) -> dict[str, list[Production]]:
    """Productions with NCCL's prefix by their event, for the events that have fields of their own."""
    by_event: dict[str, list[Production]] = {}
    for production in productions:
        if production.event not in _GENERAL and not production.foreign:
            by_event.setdefault(production.event, []).append(production)
    return {name: by_event[name] for name in KINDS if name in by_event}


def is_shown(name: str) -> bool:
    """Whether a field is part of the event: names that begin with ``_`` are read for the pattern only."""
    return not name.startswith("_")


def kind(spec: str) -> str:
    """Return what a field holds: ``integer``, ``float``, ``boolean``, ``list`` or ``string``."""
    if spec.startswith("*"):
        return "list"
    return {int: "integer", float: "float", bool: "boolean"}.get(field_type(spec).python, "string")


def specs(shape: Shape) -> dict[str, str]:
    """The type of each field of a shape, as its notation names it."""
    return {field.name: field.spec for field in fields(shape.nodes)}


def groups(form: Shape) -> dict[int, tuple[str, str]]:
    """The name and the type of the field of each group of a shape."""
    named = zip(form.fields, fields(form.nodes), strict=True)
    return {group: (field.name, field.spec) for (_, _, group), field in named}


def snake(name: str) -> str:
    """``ChannelConnect`` as ``channel_connect``."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def ordered(lists: Sequence[Sequence[str]]) -> list[str] | None:
    """One order of names that all lists keep; None where two contradict each other."""
    before: dict[str, set[str]] = {}
    for names in lists:
        for index, name in enumerate(names):
            before.setdefault(name, set()).update(names[:index])
    order: list[str] = []
    while len(order) < len(before):
        free = [name for name in before if name not in order and before[name] <= set(order)]
        if not free:
            return None
        order.append(free[0])
    return order
