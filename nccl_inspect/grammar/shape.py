"""Compiled notation: a message shape that parses messages into named values and writes them back."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from nccl_inspect.errors import GrammarError
from nccl_inspect.grammar.notation import Choice, Field, Literal, Sequence
from nccl_inspect.grammar.types import FieldType, Value, field_type
from nccl_inspect.records import Record


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ListType(Record):
    """``{x:*frag}``: any number of a fragment, read as a tuple of its value or of the tuple of its values."""

    fragment: "Shape"

    @property
    def pattern(self) -> str:
        """Matches the list as a whole."""
        return f"(?:{self.fragment.bare})*"

    def read(self, data: bytes) -> Value:
        """The items of a matched list."""
        if self.fragment.is_numbers:
            items = self.fragment.regex.findall(data)
            return tuple(map(int, items)) if len(self.fragment.names) == 1 else tuple(tuple(map(int, i)) for i in items)
        found = []
        for match in self.fragment.regex.finditer(data):
            values = tuple(self.fragment.values(match).values())
            found.append(values[0] if len(values) == 1 else values)
        return tuple(found)

    def write(self, value: object) -> str:
        """The list as it is printed."""
        assert isinstance(value, tuple)
        names = self.fragment.names
        items = (item if len(names) > 1 else (item,) for item in value)
        return "".join(self.fragment.write(dict(zip(names, item, strict=True)), ()) for item in items)


class Shape:
    """Compiled notation: a pattern with one group for each field and for each option of each choice."""

    def __init__(self, nodes: Sequence, fragments: Mapping[str, "Shape"] | None = None) -> None:
        self.nodes = nodes
        self.fragments = fragments or {}
        self._fields: list[tuple[str, FieldType | ListType, int]] = []
        self._options: list[int] = []
        self._groups = 0
        self.pattern = self._compile(nodes, last=True)
        # In a list the groups of the fragment would only cost time.
        self.bare = re.sub(r"(?<!\\)\((?!\?)", "(?:", self.pattern)
        self.regex = re.compile(self.pattern.encode(), re.DOTALL)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the fields, each once, in the order in which they stand."""
        return tuple(dict.fromkeys(name for name, _, _ in self._fields))

    @property
    def is_numbers(self) -> bool:
        """Whether it holds numbers only, each under another name, all of them always."""
        kinds = [isinstance(kind, FieldType) and kind.read is int for _, kind, _ in self._fields]
        return all(kinds) and len(kinds) == self._groups == len(self.names)

    def _group(self) -> int:
        self._groups += 1
        return self._groups

    def _compile(self, nodes: Sequence, last: bool) -> str:
        parts = []
        for index, node in enumerate(nodes):
            ends = last and index == len(nodes) - 1
            match node:
                case Literal(text):
                    parts.append(re.escape(text))
                case Field(name, spec):
                    kind = self._type(spec)
                    self._fields.append((name, kind, self._group()))
                    lazy = "?" if isinstance(kind, FieldType) and kind.free and not ends else ""
                    parts.append(f"({kind.pattern}{lazy})")
                case Choice(options, optional):
                    branches = []
                    for option in options:
                        self._options.append(self._group())
                        branches.append(f"({self._compile(option, ends)})")
                    parts.append(f"(?:{'|'.join(branches)})" + ("?" if optional else ""))
        return "".join(parts)

    def _type(self, spec: str) -> FieldType | ListType:
        if not spec.startswith("*"):
            return field_type(spec)
        try:
            return ListType(self.fragments[spec[1:]])
        except KeyError:
            raise GrammarError(f"no such fragment: '{spec[1:]}'") from None

    def values(self, match: re.Match[bytes]) -> dict[str, Value]:
        """The named values of a match; a field in an option that was not taken is None."""
        groups = match.groups()
        values: dict[str, Value] = {}
        for name, kind, group in self._fields:
            data = groups[group - 1]
            if data is not None:
                values[name] = kind.read(data)
            elif name not in values:
                values[name] = None
        return values

    def taken(self, match: re.Match[bytes]) -> tuple[bool, ...]:
        """For each option of each choice, whether the message took it: what :meth:`write` needs besides the values."""
        return tuple(match[group] is not None for group in self._options)

    def free_spans(self, match: re.Match[bytes]) -> list[tuple[int, int]]:
        """Where the fields of a match stand that can be any text."""
        return [match.span(group) for _, kind, group in self._fields if isinstance(kind, FieldType) and kind.free]

    def write(self, values: Mapping[str, Value], taken: tuple[bool, ...]) -> str:
        """The text that has these values and takes these options."""
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


def _option_count(nodes: Sequence) -> int:
    count = 0
    for node in nodes:
        if isinstance(node, Choice):
            count += sum(1 + _option_count(option) for option in node.options)
    return count
