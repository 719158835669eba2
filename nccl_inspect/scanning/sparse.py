"""Lines of a block of which few are NCCL's: those worth a look, and the last of the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import compress
from typing import TYPE_CHECKING, NamedTuple

from nccl_inspect.ingest.lines import tracebacks
from nccl_inspect.ingest.sources.blocks import Lines
from nccl_inspect.ingest.sources.streams import BLOCK
from nccl_inspect.scanning.counts import TAIL

if TYPE_CHECKING:
    from nccl_inspect.scanning.grams import Grams


_LOOK = 1 << 16  # bytes of a block that show what most of it is
_SAMPLES = 64
_SAME = 4  # lines are a flood when at most one in this many is distinct


class Repeats(NamedTuple):
    """The lines of a block, by what they say."""

    numbers: Counter[bytes]  # how often each came
    size: int  # of them all
    cycle: list[bytes]  # the lines that come in turn, or all of them
    end: list[bytes]  # the last lines: at least as many

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


def find_repeats(block: Lines) -> Repeats | None:
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
    """Return the bytes of the lines that come in turn up to the end of a text; 0 when there are none."""
    first = text[: text.find(b"\n", _LOOK // 16) + 1]
    width = text.find(first, 1) if first else -1
    while 0 < width < _LOOK and text[width - 1 : width] != b"\n":
        width = text.find(first, width + 1)
    if not 0 < width < _LOOK:
        return 0
    # Each byte is the same as that so many before; compared in parts, which are not copied.
    some = text[: _LOOK // width * width]
    end = len(text) // len(some) * len(some)
    again = (text.startswith(some, at) for at in range(0, end, len(some)))
    return width if some.startswith(some[width:]) and all(again) and some.startswith(text[end:]) else 0


def find_first(lines: Iterable[bytes], wanted: Iterable[bytes]) -> dict[bytes, int]:
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


DIGITS = b"0123456789"
_NAME = b"NCCL "
_USUAL = b" NCCL INFO "
_MAX_SHAPES = 20_000
_SHAPE_WIDTH = 500
_LARGE = BLOCK // 2  # bytes of a block that are worth loading numpy, where letters do not tell
_WASTE = 1 << 12  # bytes of a block in which one line may be looked at for nothing


class Picked(NamedTuple):
    """Holds what is worth a look in a block."""

    size: int  # how many lines the block has
    lines: list[tuple[int, bytes]]  # those worth a look, with their places
    signs: bytes  # what they look like


class Sieve:
    """Passes over lines of other programs that mean nothing.

    They are compared by what they look like without their digits; from the second large block on, such a block is
    searched for all signs at once, with numpy.

    Args:
        signs: gives what makes lines worth a look, besides NCCL's name; logs of NCCL's lines do without.
    """

    def __init__(self, signs: Callable[[], Iterable[bytes]]) -> None:
        self._given = signs
        self._idle: set[bytes] = set()  # what lines look like that mean nothing
        self._has_begun = False
        self._grams: Grams | None = None

    @cached_property
    def _signs(self) -> set[bytes]:
        return {*self._given(), tracebacks.MARK, _NAME}

    @cached_property
    def _shapes(self) -> list[bytes]:
        """Return what the signs look like."""
        return sorted({sign.translate(None, DIGITS) for sign in self._signs})

    def pick_lines(self, text: bytes) -> Picked:
        """Return what is worth a look in a block."""
        found = self._by_grams(text) if self._has_begun and len(text) >= _LARGE else None
        self._has_begun = True
        if found:
            return found
        # Else what holds a sign, compared for each distinct look of lines only.
        shapes = text.translate(None, DIGITS).split(b"\n")
        worth = self._worth(set(shapes) - self._idle)
        places = list(compress(range(len(shapes)), map(worth.__contains__, shapes)))
        # Most are lines of NCCL's usual level, which are found faster.
        lines = _with(_USUAL, text) if places else []
        lines = _with(_NAME, text) if len(lines) < len(places) else lines
        if len(lines) < len(places):  # others were chosen as well, or digits stand in the name
            every = text.split(b"\n")
            lines = [every[place] for place in places]
        return Picked(len(shapes), list(zip(places, lines, strict=True)), b"\n".join(worth))

    def is_idle(self, line: bytes) -> bool:
        """Return whether a line means nothing."""
        shape = line.translate(None, DIGITS)
        return shape in self._idle or not self._worth({shape})

    def _by_grams(self, text: bytes) -> Picked | None:
        """Return what holds a sign, whatever the other lines look like; None without numpy."""
        try:
            from nccl_inspect.scanning.grams import Grams  # this loads numpy
        except ImportError:
            return None
        if self._grams is None:
            self._grams = Grams(self._signs, text[:BLOCK])
        size, found = self._grams.lines(text)
        picked = [(place, line) for place, line in found if _NAME in line or not self.is_idle(line)]
        if (len(found) - len(picked)) * _WASTE > len(text):
            self._grams = None  # what is common has changed
        return Picked(size, picked, b"\n".join([line for _, line in picked]).translate(None, DIGITS))

    def _worth(self, fresh: set[bytes]) -> set[bytes]:
        """Return those of some shapes that hold something that makes a line worth a look; the others are remembered."""
        together = b"\n".join(fresh)
        signs = [sign for sign in self._shapes if sign in together]
        worth = {shape for shape in fresh if any(sign in shape for sign in signs)} if signs else set()
        if len(self._idle) > _MAX_SHAPES:
            self._idle.clear()
        self._idle.update(shape for shape in fresh if shape not in worth and len(shape) < _SHAPE_WIDTH)
        return worth


def _with(name: bytes, text: bytes) -> list[bytes]:
    """Return the lines that hold a text; they are searched from the end, which takes a third of the time."""
    lines = []
    at = len(text)
    while (at := text.rfind(name, 0, at)) >= 0:
        end = text.find(b"\n", at)
        at = text.rfind(b"\n", 0, at) + 1
        lines.append(text[at : end if end >= 0 else len(text)])
    lines.reverse()
    return lines


def with_tail(
    text: bytes, size: int, picked: Sequence[tuple[int, bytes]]
) -> tuple[list[tuple[int, bytes]], Iterator[tuple[int, bytes, bool]]]:
    """Return the picked lines before the tail, and the tail with as many others as are kept, each marked if picked."""
    taken = {index for index, _ in picked}
    begin = _begin_of_tail(size, taken)
    ending = enumerate(text.rsplit(b"\n", size - begin)[begin - size :], begin)
    early = [(index, line) for index, line in picked if index < begin]
    return early, ((index, line, index in taken) for index, line in ending)


def with_frames(
    text: bytes, picked: Sequence[tuple[int, bytes]], tracing: tracebacks.Open
) -> Iterator[tuple[int, bytes, bool]]:
    """Yield the picked lines, these, and all that follows while tracebacks have not ended."""
    lines = text.split(b"\n")
    taken = {index for index, _ in picked}
    begin = _begin_of_tail(len(lines), taken)
    at = 0
    for index in (*(index for index, _ in picked if index < begin), *range(begin, len(lines))):
        while tracing and at < index:
            yield at, lines[at], False
            at += 1
        yield index, lines[index], index in taken
        at = index + 1


def _begin_of_tail(size: int, taken: Container[int]) -> int:
    """Return from where on there are as many lines that were not taken as are kept."""
    begin, others = size, 0
    while begin and others < TAIL:
        begin -= 1
        others += begin not in taken
    return begin
