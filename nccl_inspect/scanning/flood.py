"""A block of which most lines are the same: a few errors that NCCL prints again and again, maybe in turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator
from typing import NamedTuple

from nccl_inspect.ingest.sources.blocks import Lines

_LOOK = 1 << 16
"""Bytes of a block that show what most of it is."""
_SAMPLES = 64
_SAME = 4
"""Lines are a flood when at most one in this many is distinct."""


class Repeats(NamedTuple):
    """The lines of a block, by what they say."""

    numbers: Counter[bytes]
    """How often each came."""
    size: int
    """Of them all."""
    cycle: list[bytes]
    """The lines that come in turn, or all of them."""
    end: list[bytes]
    """The last lines: at least as many."""

    def places(self) -> tuple[dict[bytes, int], dict[bytes, int]]:
        """Return how many lines come before the first of each kind, and how many after the last one."""
        return _places(self.cycle, self.numbers), _places(reversed(self.end), self.numbers)

    def last_of(self, lines: Container[bytes]) -> Iterator[tuple[int, bytes]]:
        """Yield those of some kinds from the last one on, each with how many lines come after it."""
        if not lines:
            return
        back = 0
        while back < self.size:
            for line in reversed(self.end if back == 0 else self.cycle):
                if back < self.size and line in lines:
                    yield back, line
                back += 1


def found(block: Lines) -> Repeats | None:
    """Return what a block repeats; None when it does not."""
    text = block.text
    middle = max(0, len(text) - _LOOK) // 2  # a flood may begin after what a job prints first
    sample = text[middle : middle + _LOOK].split(b"\n")
    if len(sample) < _SAMPLES or len(set(sample)) * _SAME > len(sample):
        return None
    width = _cycle(text)
    if width:
        cycle, rest = text[: width - 1].split(b"\n"), text[len(text) // width * width :].split(b"\n")
        times = len(text) // width
        if rest == cycle[: len(rest)]:  # else the last line is a part of one
            numbers = Counter({line: number * times for line, number in Counter(cycle).items()})
            numbers.update(rest)
            return Repeats(numbers, times * len(cycle) + len(rest), cycle, [*cycle, *rest])
    lines = block.lines
    numbers = Counter(lines)
    return Repeats(numbers, len(lines), lines, lines) if len(numbers) * _SAME <= len(lines) else None


def _cycle(text: bytes) -> int:
    """The bytes of the lines that come in turn up to the end of a text; 0 when there are none."""
    first = text[: text.find(b"\n", _LOOK // 16) + 1]
    width = text.find(first, 1) if first else -1
    while 0 < width < _LOOK and text[width - 1 : width] != b"\n":
        width = text.find(first, width + 1)
    return width if 0 < width < _LOOK and _is_periodic(text, width) else 0


def _is_periodic(text: bytes, width: int) -> bool:
    """Whether each byte is the same as that ``width`` bytes before; compared in parts, which are not copied."""
    some = text[: _LOOK // width * width]
    end = len(text) // len(some) * len(some)
    again = (text.startswith(some, at) for at in range(0, end, len(some)))
    return some.startswith(some[width:]) and all(again) and some.startswith(text[end:])


def _places(lines: Iterable[bytes], wanted: Iterable[bytes]) -> dict[bytes, int]:
    """Return how many lines come before the first of each kind."""
    left = set(wanted)
    places = {}
    for place, line in enumerate(lines):
        if line in left:
            places[line] = place
            left.remove(line)
            if not left:
                break
    return places
