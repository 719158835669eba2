"""Grok patterns for Logstash, Elasticsearch ingest pipelines and others: one for each message, with its fields.

``%{NCCL_LINE}`` takes a line apart, ``%{NCCL_CHANNEL_P2P}`` a message; ``%{NCCL_EVENT_CHANNEL_CONNECT}`` any message
that states a connection. Grok knows no constants (``transport=P2P``) but where the text says them, no flags
(``read`` is ``/read`` or empty), no hex numbers and no lists: these are text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from nccl_inspect.grammar.production import Production
from nccl_inspect.grammar.shape import Shape
from nccl_inspect.grammar_exports import heads
from nccl_inspect.grammar_exports.events import is_shown, snake, specs, typed
from nccl_inspect.grammar_exports.patterns import BACKTRACKING, shapes, translated

USE = "name its folder in patterns_dir and match %{{NCCL_LINE}}, or a message: %{{NCCL_EVENT_CHANNEL_CONNECT}}"
_FILE = "nccl.grok"
_TYPES = {"": "NCCL_INT", "02": "NCCL_INT02"}
"""Field types that a pattern of their own stands for, so that grok makes numbers of them."""
_TAKEN = frozenset((*heads.FIELDS, "message"))
"""Names of the prefix: a field of a message that has such a name gets an underscore."""
_INTEGERS = frozenset(("pid", "tid", "device"))


def export(productions: Sequence[Production]) -> dict[str, str]:
    """One file of patterns."""
    return {_FILE: "\n".join(_lines(productions)) + "\n"}


def name(production: Production) -> str:
    """The pattern of a message: ``NCCL_CHANNEL_P2P``."""
    return f"NCCL_{re.sub('[^A-Z0-9]', '_', production.name.upper())}"


def field(name: str) -> str:
    """The name of a field, which must not be one of the prefix."""
    return f"{name}_" if name in _TAKEN else name


def _lines(productions: Sequence[Production]) -> Iterator[str]:
    yield "# Written by nccl-inspect grammar --export grok: what NCCL and its plugins print, as Grok patterns."
    yield "# A message: EVENT CONSTANTS; RELEASES. Patterns of messages end with the line."
    for spec, pattern in _TYPES.items():
        yield f"{pattern} (?:{_type(spec)})"
    yield rf"NCCL_NUMBER {heads.DEVICE}"
    yield f"NCCL_LEVEL (?:{heads.LEVEL})"
    yield "NCCL_END $"
    yield f"NCCL_HEAD {heads.head(_named)}"
    yield "NCCL_LINE ^%{NCCL_HEAD}(?: (?<message>.*))?%{NCCL_END}"
    nccl_productions = [production for production in productions if not production.foreign]
    for production in nccl_productions:
        constants = "".join(f" {key}={value}" for key, value in production.constants.items())
        releases = f"; {production.versions}" if production.versions else ""
        yield f"# {production.dialect}: {production.event}{constants}{releases}"
        yield f"{name(production)} {message(production)}"
    for event, own in typed(nccl_productions).items():
        yield f"NCCL_EVENT_{snake(event).upper()} (?:{'|'.join(f'%{{{name(production)}}}' for production in own)})"


def _named(name: str, pattern: str) -> str:
    if name == "level":
        return "%{NCCL_LEVEL:level}"
    return f"%{{NCCL_NUMBER:{name}:int}}" if name in _INTEGERS else f"(?<{name}>{pattern})"


def _type(spec: str) -> str:
    shape = shapes(Production("", "", "", "{x}" if not spec else f"{{x:{spec}}}"))[0]
    return translated(shape, BACKTRACKING, lambda _, text: text)


def message(production: Production) -> str:
    """The pattern of a message, to the end of the line.

    That end is a pattern of its own because pygrok continues only while there is a reference without a type.
    """
    ways = [_way(shape) for shape in shapes(production)]
    return (f"(?:{'|'.join(ways)})" if len(ways) > 1 else ways[0]) + "%{NCCL_END}"


def _way(shape: Shape) -> str:
    names = {group: name for name, _, group in shape.fields}
    kinds = specs(shape)

    def capture(group: int, text: str) -> str:
        own = names[group]
        if not is_shown(own):
            return f"(?:{text})"
        if kinds[own] in _TYPES:
            return f"%{{{_TYPES[kinds[own]]}:{field(own)}:int}}"
        return f"(?<{field(own)}>{text})"

    pattern = translated(shape, BACKTRACKING, capture)
    # Blanks at the ends of a pattern are lost when a file of patterns is read.
    pattern = re.sub(r"^ ", "[ ]", pattern)
    return re.sub(r" $", "[ ]", pattern)
