"""Puts torn lines together again.

Since 2.13 NCCL does not flush standard output after each line (src/debug.cc). On a pipe or file, stdio then writes
blocks of 4,096 bytes: a block ends inside a line, a block of another process follows at once, and the rest of the line
opens the *next* block of the first process, often hundreds of lines later::

    vm:5983:6067 [4] NCCL INFO ncclCommSplit comm … parent 0x55fbe88vm:5985:5985 [6] NCCL INFO cudaDriverVersion 13000
    …
     19600 splitCount 1 color 2 key 4 - Init COMPLETE

Blocks are found again by their size and by the prefixes inside; shorter ones occur only at explicit flushes and end
with a line. This needs the bytes as they were written: where a collector rewrote the lines, the blocks are gone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

from nccl_inspect.ingest.lines.prefix import MARK
from nccl_inspect.ingest.sources.streams import BLOCK
from nccl_inspect.util.levels import ANY
from nccl_inspect.util.patterns import compile_later
from nccl_inspect.util.records import Record

LOOK_AHEAD = 4 << 20  # bytes that decide whether a source is torn
_BLOCK = 4096
_SAMPLE = 1 << 18
_MAX_HOSTS = 32
_FEW_HOSTS = 8
_LEAST = 4  # bytes with which names of hosts begin that are worth a search
_MAX_HEADS = 10_000  # lines that wait for their end; then the oldest one is given as it is
_PREFIX = re.compile(
    rb"^(?:\[\d[\d/:., TZ+-]{5,40}\] |\d{9,11}(?:\.\d{1,9})? )?([^\s:\[\]]+):(\d+):\d+ (?:\[-?\d+\] )?"
    rb"(?:[^\n]{1,200}:\d+ (?:\([^()\n]*\) )?)?NCCL (?:" + ANY + rb")",
    re.MULTILINE,
)
Owner: TypeAlias = tuple[bytes, bytes]  # host and pid; empty for text of unknown origin
_NOBODY: Owner = (b"", b"")


class Numbered(NamedTuple):
    """A line with the number that its beginning has in the source."""

    number: int
    line: bytes
    repaired: bool = False  # whether it was put together from two places
    cut: bool = False  # whether its end is missing


class Mended(Record):
    """Holds what a scanner has to know of lines that do not simply follow each other."""

    numbers: Sequence[int]
    """The number of each line: where its beginning stands, or which one in the order of reading it is."""
    lines: int  # line ends in the source so far
    repaired: int = 0  # lines put together in the source so far
    examples: Sequence[Numbered] = ()  # those of this block, and lines whose end is missing
    stands: Sequence[int] | None = None  # where each line stands, when its number is that of the order of reading


class LineReader:
    """Takes the bytes of a source as they come, and gives lines that are made of one or several of its own."""

    def __init__(self) -> None:
        self.lines = 0  # lines seen
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[Numbered]:
        """Yield what is whole by now."""
        self.lines += data.count(b"\n")
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._rest = self._rest[:BLOCK]
        for line in lines:
            yield from self._take(line)

    def finish(self) -> Iterator[Numbered]:
        """Yield what is left at the end of the source."""
        if self._rest:
            self.lines += 1
            yield from self._take(self._rest)
        yield from self._end()

    def _take(self, line: bytes) -> Iterator[Numbered]:
        """Take in a line, and give what ends with it or before."""
        raise NotImplementedError

    def _end(self) -> Iterator[Numbered]:
        """Give what has not ended."""
        raise NotImplementedError


class _Head(NamedTuple):
    """The beginning of a line whose end has not come yet."""

    text: bytes
    number: int
    end: int  # where in the source it broke off


class Rejoiner(LineReader):
    """Takes the bytes of a source as they come and gives whole lines."""

    def __init__(self, lines: int = 0) -> None:
        super().__init__()
        self.repaired = 0  # lines put together from two places
        self.lines = lines  # line ends seen
        self._offset = 0
        self._heads: dict[Owner, _Head] = {}
        self._last_torn: Owner = _NOBODY

    def feed(self, data: bytes) -> Iterator[Numbered]:
        """Yield the lines that are whole by now."""
        self._rest += data
        at = 0
        while len(self._rest) - at >= _BLOCK:
            end = at + self._size(self._rest[at : at + _BLOCK])
            yield from self._block(self._rest[at:end])
            at = end
        self._rest = self._rest[at:]

    def finish(self) -> Iterator[Numbered]:
        """Yield the lines that are left at the end of the source; heads without an end come as they are."""
        while self._rest:
            end = self._size(self._rest[:_BLOCK])
            block, self._rest = self._rest[:end], self._rest[end:]
            yield from self._block(block)
        for head in sorted(self._heads.values(), key=lambda head: head.number):
            yield Numbered(head.number, head.text, cut=True)
        self._heads.clear()

    def _size(self, data: bytes) -> int:
        """Return how many of the bytes one process wrote: up to the first line of another one."""
        prefixes = _PREFIX.finditer(data)
        first = next(prefixes, None)
        if first is None:
            return len(data)
        owner = self._complete_owner(first) or (first[1], first[2])
        if first.start() and owner not in self._heads and self._last_torn in self._heads:
            return first.start()  # the end of the line torn last was flushed by itself
        starts = {first.start()}
        for other in prefixes:
            if other.groups() == owner:
                starts.add(other.start())
                continue
            before = data.rfind(b"\n", 0, other.start() - 1) + 1
            is_tail = other.groups() in self._heads and before not in starts and before > first.start()
            return before if is_tail else other.start()
        return len(data)

    def _block(self, block: bytes) -> Iterator[Numbered]:
        """Yield the lines of what one process wrote at once."""
        first = _PREFIX.search(block)
        owner = self._complete_owner(first) or (first[1], first[2]) if first else _NOBODY
        number, begin, texts = self.lines + 1, self._offset, block.split(b"\n")
        self.lines += len(texts) - 1
        self._offset += len(block)
        whose = owner if owner in self._heads else self._last_torn
        may_go_on = not first or first.start() or self._complete_owner(first)  # what has no prefix may end a head
        if may_go_on and (head := self._heads.pop(whose, None)):
            text = (head.text + texts[0])[:BLOCK]
            self.repaired += head.end != begin
            if len(texts) == 1:
                self._heads[whose] = _Head(text, head.number, self._offset)
                return
            yield Numbered(head.number, text, head.end != begin)
            number += 1
            del texts[0]
        yield from (Numbered(place, text) for place, text in enumerate(texts[:-1], number))
        if texts[-1]:  # the block ends inside a line
            if old := self._heads.get(owner):
                yield Numbered(old.number, old.text, cut=True)
            self._heads[owner] = _Head(texts[-1], self.lines + 1, self._offset)
            self._last_torn = owner
            if len(self._heads) > _MAX_HEADS:
                oldest = self._heads.pop(next(iter(self._heads)))
                yield Numbered(oldest.number, oldest.text, cut=True)

    def _complete_owner(self, match: re.Match[bytes]) -> Owner | None:
        """Return the host and pid that a cut prefix continues: the block before may end in the time or the host."""
        for owner, head in self._heads.items() if match.start() == 0 else ():
            if owner[1] == match[2] and owner[0].endswith(match[1]):
                whole = _PREFIX.fullmatch(head.text + match[0])
                if whole and whole.groups() == owner:
                    return owner
        return None


def is_torn(head: bytes) -> bool:
    """Return whether the beginning of a source shows torn lines, and whether putting them together makes it sounder."""
    glued = _count_glued_lines(head)
    if not glued:
        return False
    rejoiner = Rejoiner()
    lines = [*rejoiner.feed(head), *rejoiner.finish()]
    return _count_glued_lines(b"\n".join(numbered.line for numbered in lines)) < glued


def _count_glued_lines(text: bytes) -> int:
    """Count the lines of one process in which the prefix of another one begins."""
    sample = text[:_SAMPLE]
    if (printer := _PREFIX.search(sample)) is None:
        return 0
    begin, lines, hosts = b"%b:" % printer[1], sample.removesuffix(b"\n"), {printer[1]}
    if lines.count(b"\n" + begin) + lines.startswith(begin) <= lines.count(b"\n"):  # not those of one process
        hosts = set(sorted({match[1] for match in _PREFIX.finditer(lines)})[:_MAX_HOSTS])
    # Whether a host may stand inside a line; of many hosts only what all begin with tells that.
    first, last = min(hosts), max(hosts)
    width = len(os.path.commonprefix([first, last]))  # noqa: RUF071 - a part of a name
    if width >= _LEAST and not _is_inside(text, first[:width]):
        return 0
    if len(hosts) <= _FEW_HOSTS and not any(_is_inside(text, host + b":") for host in hosts):
        return 0
    names = b"|".join(map(re.escape, sorted(hosts, key=len, reverse=True)))
    pattern = rb"(?m)^(?:%b):\d[^\n]*?[^\n](?:%b):\d+:\d+ \[-?\d+\] (?:[^\n]{1,200}:\d+ )?NCCL " % (names, names)
    return len(re.findall(pattern, text))


def _is_inside(text: bytes, word: bytes) -> bool:
    """Return whether a word is anywhere but at the beginning of a line: 20 times as fast as a pattern."""
    return text.count(word) > text.count(b"\n" + word) + text.startswith(word)


_WIDTHS = range(40, 401)
_FEW = 5  # broken lines that are enough, if nearly all lines of full width are
_SHARE = 0.8
_KINDS = 3  # different messages among them: those of one kind may have the same length anyway
_KIND = 16
_VALUES = compile_later(rb"0x[0-9a-f]+|\d+")
_OWN = compile_later(rb":\d{1,10}:\d{1,10} \[|^\[?\d{4}-\d\d-\d\d|^[\w.-]{1,100}:\d{1,10}:\d{1,10} ")
"""Text that marks a line as not continuing the one before."""


def wrap_reader(head: bytes) -> Folded | None:
    """Return what puts the lines of a source that begins so together; None when they were not broken at one width."""
    lines = [line.rstrip() for line in head.split(b"\n")[:-1]]
    width = max(map(len, lines), default=0)
    if width not in _WIDTHS:
        return None
    full = [place for place, line in enumerate(lines[:-1]) if len(line) == width]
    broken = [lines[place] for place in full if _goes_on(lines[place + 1])]
    if len(full) < _FEW or len(broken) < _SHARE * len(full):
        return None
    kinds = {_VALUES.sub(b"", line.partition(MARK)[2])[:_KIND] for line in broken if MARK in line}
    return Folded(width) if len(kinds) >= _KINDS else None


def _goes_on(line: bytes) -> bool:
    return line != b"" and _OWN.search(line) is None


class Folded(LineReader):
    """Gives lines as they were before they were broken at a width."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self._width = width
        self._open: list[bytes] = []  # the pieces of a line that may continue
        self._number = 0

    def _take(self, line: bytes) -> Iterator[Numbered]:
        line = line.rstrip()
        # A line that reaches to the edge may continue; a blank there is not copied.
        if not (self._open and len(self._open[-1]) >= self._width - 1 and _goes_on(line)):
            yield from self._end()
        self._number += 1
        self._open.append(line)
        if len(self._open) * self._width > BLOCK:
            yield from self._end()

    def _end(self) -> Iterator[Numbered]:
        if self._open:
            *pieces, last = self._open
            text = b"".join(piece.ljust(self._width) for piece in pieces) + last
            yield Numbered(self._number - len(pieces), text)
            self._open = []
