"""Lines of a log to recognised messages: the meeting point of ingest and grammar.

``vm:5599:5599 [4] NCCL INFO cudaDriverVersion 13000`` becomes its origin (host, pid, tid, device) and its parsed
message.
"""

import re
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from nccl_inspect.grammar.engine import Grammar, Parsed
from nccl_inspect.grammar.production import Production
from nccl_inspect.ingest import prefix
from nccl_inspect.ingest.prefix import Origin
from nccl_inspect.records import Record

_GLUED = re.compile(rb":\d+:\d+ \[-?\d+\] (?:.{1,200}:\d+ )?NCCL (?:INFO|WARN) |:\d+:\d+ \[-?\d+\]$", re.DOTALL)
"""The prefix of another line inside a message: two lines were run together."""
_REMEMBERED = 100_000
"""Distinct messages kept in memory; some (collective calls, pointers) never repeat, so there is a limit."""
_TAIL = 100
_TAIL_WIDTH = 400
_ENVELOPE_STARTS = frozenset(bytes([char]) for char in b"[0123456789")
"""What the prefixes of collectors begin with: most other lines are told from them by one byte."""


@dataclass(slots=True, eq=False, repr=False)
class Text(Record):
    """The part of a line after ``NCCL``: its level, and what the grammar makes of it."""

    level: str
    message: bytes
    parsed: Parsed | None
    damaged: bool = False


@dataclass(slots=True, eq=False, repr=False)
class Counts(Record):
    """How sound a source was."""

    lines: int = 0
    nccl_lines: int = 0
    typed_lines: int = 0
    unrecognised_lines: int = 0
    repaired_lines: int = 0
    damaged_lines: int = 0
    related_lines: int = 0
    """Lines of other programs (PyTorch, libfabric, nccl-tests) that the grammar knows."""
    tail: deque[tuple[int, bytes]] = field(default_factory=lambda: deque(maxlen=_TAIL))
    """The last lines that are not NCCL's, with their numbers: how a job ended often stands there."""


class Scanner:
    """Reads lines one after the other and calls ``sink(line number, origin, text)`` for each sound NCCL line.

    Args:
        grammar: what to recognise messages with.
    """

    def __init__(self, grammar: Grammar) -> None:
        self._grammar = grammar
        self._origins: dict[bytes, Origin | None] = {}
        self._texts: dict[bytes, Text] = {}
        self._foreign: list[tuple[bytes, Production]] = []
        self.productions: set[Production] = set()
        """The productions that recognised a line."""

    def scan(
        self,
        lines: Sequence[bytes],
        counts: Counts,
        sink: Callable[[int, Origin, Text], None],
        numbers: Sequence[int] | None = None,
    ) -> None:
        """Read lines.

        Args:
            lines: whole ones, without their line ends.
            counts: of the source; the numbers of the lines go on where it stands.
            sink: gets the number, the origin and the text of each sound line.
            numbers: of the lines, where they do not follow each other: torn lines that were put together.
        """
        self._foreign = self._grammar.foreign_in(b"\n".join(lines))
        if numbers is None:
            numbers = range(counts.lines + 1, counts.lines + len(lines) + 1)
            counts.lines += len(lines)
        for number, line in zip(numbers, lines, strict=True):
            found = prefix.split(line)
            if found is None:
                self._bare(number, line, counts, sink)
                continue
            head, rest = found
            try:
                origin = self._origins[head]
            except KeyError:
                origin = self._origin(head)
            try:
                text = self._texts[rest]
            except KeyError:
                text = self._text(rest)
            counts.nccl_lines += 1
            if origin is None or text.damaged:
                counts.damaged_lines += 1
                continue
            if text.parsed is None:
                counts.unrecognised_lines += 1
            else:
                counts.typed_lines += 1
            sink(number, origin, text)

    def _bare(self, number: int, line: bytes, counts: Counts, sink: Callable[[int, Origin, Text], None]) -> None:
        """A line without NCCL's prefix: some of NCCL's own have none, all others are counted and passed over."""
        plain = prefix.unwrapped(line) if line[:1] in _ENVELOPE_STARTS else line
        parsed = self._grammar.parse_bare(plain)
        if parsed is not None:
            counts.nccl_lines += 1
            counts.typed_lines += 1
            level = "INFO" if parsed.production.follows else "VERSION"
        else:
            counts.tail.append((number, line[:_TAIL_WIDTH]))
            parsed = self._grammar.parse_foreign(plain, self._foreign)
            if parsed is None:
                return
            counts.related_lines += 1
            level = "OTHER"
        self.productions.add(parsed.production)
        sink(number, prefix.NOBODY, Text(level, line, parsed))

    def _origin(self, head: bytes) -> Origin | None:
        origin = prefix.parse(head)
        if len(self._origins) >= _REMEMBERED:
            self._origins.clear()
        self._origins[head] = origin
        return origin

    def _text(self, rest: bytes) -> Text:
        level, _, message = rest.partition(b" ")
        glued = _GLUED.search(message) is not None
        parsed = None if glued else self._grammar.parse(message) or self._grammar.parse_cut(message)
        if parsed:
            self.productions.add(parsed.production)
        text = Text(level.decode("ascii"), message, parsed, glued)
        if len(self._texts) >= _REMEMBERED:
            self._texts.clear()
        self._texts[rest] = text
        return text
