"""Compiled notation: a message shape that parses messages into named values and writes them back.

Matching takes time in proportion to the length of the message, whatever it holds, though Python's matcher tries again
wherever it can. Three things see to it. What ends at the first place where the next free text can begin is never tried
again (an atomic group), as with wildcards of a shell: if the rest fits after a later place, it fits after the first. A
run of characters that what follows cannot begin with is never given back (possessive). Any other run is limited in
length.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property

from nccl_inspect.errors import GrammarError
from nccl_inspect.grammar.notation import Choice, Field, Literal, Node, Sequence, fields, leads
from nccl_inspect.grammar.types import FieldType, Value, field_type
from nccl_inspect.util.records import Frozen, frozen

_MAX_RUN = 512
"""Characters of a name whose end depends on the rest of the message."""


@frozen
class ListType(Frozen):
    """``{x:*frag}``: any number of a fragment, read as a tuple of its value or of the tuple of its values."""

    fragment: Shape

    @property
    def pattern(self) -> str:
        """Matches the list as a whole."""
        return f"(?:{self.fragment.bare})*"

    def read(self, data: bytes) -> Value:
        """The items of a matched list."""
        if self.fragment.is_numbers:
            items = self.fragment.regex.findall(data)
            return _numbers(items) if items and isinstance(items[0], tuple) else tuple(map(int, items))
        rows = []
        for match in self.fragment.regex.finditer(data):
            values = tuple(self.fragment.values(match).values())
            rows.append(values[0] if len(values) == 1 else values)
        return tuple(rows)

    def write(self, value: object) -> str:
        """The list as printed."""
        assert isinstance(value, tuple)
        names = self.fragment.names
        items = (dict(zip(names, item if len(names) > 1 else (item,), strict=True)) for item in value)
        return "".join(self.fragment.write(item, tuple(_taken(self.fragment.nodes, item))) for item in items)


def _numbers(items: list[tuple[bytes, ...]]) -> tuple[tuple[int, ...], ...]:
    """The numbers of each item; most items differ only in the first one, the channel."""
    cache: dict[tuple[bytes, ...], tuple[int, ...]] = {}
    rows = []
    for item in items:
        rest = item[1:]
        numbers = cache.get(rest)
        if numbers is None:
            numbers = cache[rest] = tuple(map(int, rest))
        rows.append((int(item[0]), *numbers))
    return tuple(rows)


class Shape:
    """Compiled notation: a pattern with one group for each field and for each option of each choice.

    Args:
        nodes: the result of :func:`nccl_inspect.grammar.notation.parse`.
        fragments: shapes that may repeat, by name.
        whole: whether nothing follows: False for a fragment.
    """

    def __init__(self, nodes: Sequence, fragments: Mapping[str, Shape] | None = None, whole: bool = True) -> None:
        self.nodes = nodes
        self.fragments = fragments or {}
        self._whole = whole
        self._searching = False
        """Whether free text precedes: then each position is tried for what follows."""
        self.fields: list[tuple[str, FieldType | ListType, int]] = []
        """The name, type and group of each field; options may share a name."""
        self._options: list[int] = []
        self._groups = 0
        self.pattern = self._compile(nodes, last=True)
        self.regex = re.compile(self.pattern.encode(), re.DOTALL)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the fields, each once, in order."""
        return tuple(dict.fromkeys(name for name, _, _ in self.fields))

    @cached_property
    def is_numbers(self) -> bool:
        """Whether all fields are numbers with different names, none of them optional."""
        kinds = [isinstance(kind, FieldType) and kind.read is int for _, kind, _ in self.fields]
        return all(kinds) and len(kinds) == self._groups == len(self.names)

    @cached_property
    def bare(self) -> str:
        """The pattern without groups: in a list, those of the fragment would only cost time."""
        return re.sub(r"(?<!\\)\((?!\?)", "(?:", self.pattern)

    def _group(self) -> int:
        self._groups += 1
        return self._groups

    def _compile(self, nodes: Sequence, last: bool) -> str:
        parts: list[str] = []
        free: int | None = None
        """The position in ``parts`` of the free text whose end is open."""
        for index, node in enumerate(nodes):
            rest = nodes[index + 1 :]
            if _has_free(node):
                if free is not None and (ahead := _ahead(nodes[index:], last and self._whole)):
                    parts[free:] = [f"(?>{''.join(parts[free:])}(?={'|'.join(ahead)}))"]
                free = len(parts) if isinstance(node, Field) else None
            match node:
                case Literal(text):
                    parts.append(re.escape(text))
                case Field(name, spec):
                    kind = self._type(spec)
                    self.fields.append((name, kind, self._group()))
                    parts.append(f"({self._matched(kind, rest, last)})")
                    self._searching |= _has_free(node)
                case Choice(options, optional):
                    branches = []
                    for option in options:
                        self._options.append(self._group())
                        branches.append(f"({self._compile(option, last and not rest)})")
                    parts.append(f"(?:{'|'.join(branches)})" + ("?" if optional else ""))
        return "".join(parts)

    def _matched(self, kind: FieldType | ListType, rest: Sequence, last: bool) -> str:
        """The pattern of a field that ``rest`` follows."""
        final = last and not rest and self._whole
        if isinstance(kind, ListType):
            return kind.pattern
        if kind.free:
            return kind.pattern if final else f"{kind.pattern}?"
        if not kind.run:
            return kind.pattern
        start, least = kind.pattern[: -len(kind.run) - 1], int(kind.pattern.endswith("+"))
        run = kind.run
        if item := [text for text in self._item(rest, last) if re.match(kind.run, text)]:
            run = f"(?:(?!{_any(item)}){run})"  # it ends where an item of the list begins
        following = leads(rest) if rest else [""]
        if final or not any(text == "" or re.match(kind.run, text) for text in following):
            return f"{start}{run}{{{least},{_MAX_RUN}}}+" if self._searching else f"{start}{run}{'*+'[least]}+"
        return f"{start}{run}{{{least},{_MAX_RUN}}}"

    def _item(self, rest: Sequence, last: bool) -> list[str]:
        """The beginning of a list item, if one may follow."""
        if rest:
            first = rest[0]
            if isinstance(first, Field) and first.spec.startswith("*"):
                return leads(self.fragments[first.spec[1:]].nodes)
            return []
        return leads(self.nodes) if last and not self._whole else []

    def _type(self, spec: str) -> FieldType | ListType:
        if not spec.startswith("*"):
            return field_type(spec)
        try:
            return ListType(self.fragments[spec[1:]])
        except KeyError:
            raise GrammarError(f"no such fragment: '{spec[1:]}'") from None

    def values(self, match: re.Match[bytes]) -> dict[str, Value]:
        """The named values of a match; fields of options not taken are None."""
        groups = match.groups()
        values: dict[str, Value] = {}
        for name, kind, group in self.fields:
            data = groups[group - 1]
            if data is not None:
                values[name] = kind.read(data)
            elif name not in values:
                values[name] = None
        return values

    def taken(self, match: re.Match[bytes]) -> tuple[bool, ...]:
        """Whether the message took each option of each choice: :meth:`write` needs it besides the values."""
        return tuple(match[group] is not None for group in self._options)

    def free_spans(self, match: re.Match[bytes]) -> list[tuple[int, int]]:
        """The spans of the free-text fields of a match."""
        return [match.span(group) for _, kind, group in self.fields if isinstance(kind, FieldType) and kind.free]

    def open_spans(self, match: re.Match[bytes]) -> list[tuple[int, int]]:
        """The spans of the word and free-text fields of a match, in order."""
        open_ = [
            match.span(group)
            for _, kind, group in self.fields
            if isinstance(kind, FieldType) and (kind.free or kind.run)
        ]
        return sorted(span for span in open_ if span[0] >= 0)

    def write(self, values: Mapping[str, Value], taken: tuple[bool, ...]) -> str:
        """The text with these values and options."""
        text, used = self._write(self.nodes, values, taken, 0)
        assert used == len(taken)
        return text

    def _write(self, nodes: Sequence, values: Mapping[str, Value], taken: tuple[bool, ...], at: int) -> tuple[str, int]:
        parts = []
        for node in nodes:
            match node:
                case Literal(text):
                    parts.append(text)
                case Field(name, spec):
                    parts.append(self._type(spec).write(values[name]))
                case Choice(options, _):
                    for option in options:
                        chosen = taken[at]
                        size = _option_count(option)
                        if chosen:
                            text, _end = self._write(option, values, taken, at + 1)
                            parts.append(text)
                        at += 1 + size
        return "".join(parts), at


def _has_free(node: Node) -> bool:
    """Whether a node contains free text."""
    return any(field.spec in ("t", "e") for field in fields((node,)))


def _ahead(nodes: Sequence, last: bool) -> list[str] | None:
    """The possible beginnings of nodes, as patterns; None if unknown."""
    if not nodes:
        return [r"\Z"] if last else None
    first = nodes[0]
    if isinstance(first, Field):
        return [""]
    if isinstance(first, Choice) and first.optional:
        after = _ahead(nodes[1:], last)
        texts = [text for option in first.options for text in leads(option)]
        return None if after is None or "" in texts else [*map(re.escape, texts), *after]
    texts = leads(nodes)
    return None if "" in texts else list(map(re.escape, texts))


def _any(texts: list[str]) -> str:
    return "|".join(map(re.escape, texts))


def _taken(nodes: Sequence, values: Mapping[str, Value]) -> Iterator[bool]:
    """The options of an item of a list: those whose fields have a value."""
    for node in nodes:
        for option in node.options if isinstance(node, Choice) else ():
            yield any(values[field.name] is not None for field in fields(option))
            yield from _taken(option, values)


def _option_count(nodes: Sequence) -> int:
    count = 0
    for node in nodes:
        if isinstance(node, Choice):
            count += sum(1 + _option_count(option) for option in node.options)
    return count
