"""YAML and JSON as plain text values that know their lines.

Only the events of PyYAML's safe parser are used: tags construct nothing, and the targets of aliases are shared, not
copied. How much a document may hold and how much its aliases may stand for is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Any

from nccl_inspect.util.records import Record

MAX_BYTES = 32 << 20
MAX_VALUES = 2_000_000  # values of a file, with all that its aliases stand for
MAX_DEPTH = 100
_JSON_LINE = re.compile(rb"[ \t\[\]{}\r]|$")
_NULL = ("", "~", "null", "Null", "NULL")
_TRUE = ("true", "yes", "on", "y")
_MERGE = "<<"


class Node(Record):
    """A value of a document: a text, a mapping, a sequence, or nothing at all."""

    line: int = 0  # of its first character, from 1; 0 for what is not there
    column: int = 0
    text: str | None = None  # of a scalar as it is written, without quotes; None for null and for all else
    entries: dict[str, Node] = field(default_factory=dict)
    elements: list[Node] = field(default_factory=list)
    kind: str = ""  # `scalar`, `mapping` or `sequence`; empty for what is not there
    is_flow: bool = False  # written in brackets, as all of JSON is: indentation means nothing there

    def __bool__(self) -> bool:
        return bool(self.kind)

    def at(self, *keys: str) -> Node:
        """Return the node under these keys; an empty node where there is none."""
        node = self
        for key in keys:
            node = node.entries.get(key, ABSENT)
        return node

    def word(self, *keys: str) -> str:
        """Return the text under these keys, empty where there is none."""
        return self.at(*keys).text or ""

    def number(self, *keys: str) -> int | None:
        """Return the whole number under these keys."""
        text = self.word(*keys)
        return int(text) if text.lstrip("-").isascii() and text.lstrip("-").isdigit() and len(text) < 16 else None

    def is_true(self, *keys: str) -> bool:
        """Return whether the value under these keys is true."""
        return self.word(*keys).lower() in _TRUE

    def words(self, *keys: str) -> list[str]:
        """Return the texts of the sequence under these keys."""
        return [element.text for element in self.at(*keys).elements if element.text]


ABSENT = Node()


def documents(data: bytes) -> list[Node]:
    """Return the documents of a file, YAML or JSON; a ValueError says that it is neither, or holds too much."""
    import yaml  # takes some time to load, and most jobs have no such file

    if len(data) > MAX_BYTES:
        raise ValueError(f"larger than {MAX_BYTES >> 20} MB")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return list(_Reader(yaml.parse(data.decode("utf-8-sig", "replace"), Loader=loader)).read())
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark else ""
        raise ValueError(f"no YAML{where}: {getattr(error, 'problem', None) or type(error).__name__}") from None


class _Reader:
    """Makes nodes of events, and counts what aliases would expand to."""

    def __init__(self, events: Iterator[Any]) -> None:
        self._events = events
        self._anchors: dict[str, tuple[Node, int]] = {}  # each with the number of values in it
        self._values = 0

    def read(self) -> Iterator[Node]:
        """Yield the documents."""
        for event in self._events:
            name = type(event).__name__
            if name == "DocumentStartEvent":
                self._anchors = {}
            elif not name.startswith(("Stream", "Document")):
                yield self._make_node(event)

    def _make_node(self, event: Any, depth: int = 0) -> Node:
        kind = type(event).__name__
        if kind == "AliasEvent":
            if event.anchor not in self._anchors:
                raise ValueError(f"the alias *{event.anchor[:40]} stands for nothing, or for itself")
            node, size = self._anchors[event.anchor]
            self._count(size)
            return node
        before = self._values
        self._count(1)
        if depth >= MAX_DEPTH:
            raise ValueError(f"nested more than {MAX_DEPTH} deep")
        node = Node(event.start_mark.line + 1, event.start_mark.column)
        if kind == "ScalarEvent":
            node.kind = "scalar"
            node.text = None if not event.style and event.value in _NULL else event.value
        else:
            node.kind = "mapping" if kind == "MappingStartEvent" else "sequence"
            node.is_flow = bool(event.flow_style)
            while not type(inner := next(self._events)).__name__.endswith("EndEvent"):
                child = self._make_node(inner, depth + 1)
                if node.kind == "sequence":
                    node.elements.append(child)
                    continue
                value = self._make_node(next(self._events), depth + 1)
                if child.kind == "scalar" and child.text == _MERGE:
                    for name, entry in ((n, e) for part in (value, *value.elements) for n, e in part.entries.items()):
                        node.entries.setdefault(name, entry)
                elif child.kind == "scalar":
                    node.entries[child.text or ""] = value
        if event.anchor:
            self._anchors[event.anchor] = node, self._values - before
        return node

    def _count(self, number: int) -> None:
        self._values += number
        if self._values > MAX_VALUES:
            raise ValueError(f"it holds, or its aliases stand for, more than {MAX_VALUES:,} values")


def join_keys(path: str, key: str) -> str:
    """Return the path of a key below another path."""
    return f"{path}.{key}" if path else key


def is_json(head: bytes) -> bool:
    """Return whether first bytes are JSON from the first line to the last: in a log other lines follow it."""
    return bool(head.strip()) and has_only(_JSON_LINE, head)


def has_only(line: re.Pattern[bytes], head: bytes) -> bool:
    """Return whether first bytes consist of such lines; the last one may be cut."""
    lines = head.split(b"\n")
    return all(map(line.match, lines[:-1] if len(lines) > 1 else lines))


def slot(node: Node, path: str, keys: Sequence[str]) -> tuple[Node, str, list[str]]:
    """Return where a value under these keys belongs: the innermost node that is there, its path, the missing keys."""
    left = list(keys)
    while left and node.at(left[0]).kind in ("mapping", "sequence"):
        node, path = node.at(left[0]), join_keys(path, left.pop(0))
    return node, path, left
