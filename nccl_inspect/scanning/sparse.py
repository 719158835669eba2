"""Lines of a block of which few are NCCL's: those worth a look, and the last of the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import compress

from nccl_inspect.ingest.lines import tracebacks
from nccl_inspect.scanning.counts import TAIL
from nccl_inspect.util.named_tuples import NamedTuple

DIGITS = b"0123456789"
_NAME = b"NCCL "
_USUAL = b" NCCL INFO "
_MAX_SHAPES = 20_000
_SHAPE_WIDTH = 500
_FEW = 5
"""Texts that are looked for one by one in less time than lines are compared."""
_WIDTH = 8
"""Bytes of such a text, which is part of several signs."""
_TRIES = 8
"""Blocks in which other lines than NCCL's have rare letters; then all lines are compared."""


class Picked(NamedTuple):
    """What is worth a look in a block."""

    size: int
    """How many lines the block has."""
    lines: list[tuple[int, bytes]]
    """Those worth a look, with their places."""
    signs: bytes
    """What they look like."""


class _Letters(NamedTuple):
    """What the lines of other programs consist of."""

    common: bytes
    """Their letters, with all digits: a line with others may hold a sign."""
    texts: list[bytes]
    """One is in each sign that consists of them, too."""


class Sieve:
    """Passes over lines of other programs that mean nothing, by what they look like without their digits.

    Args:
        signs: what makes lines worth a look, besides NCCL's name.
    """

    def __init__(self, signs: Iterable[bytes]) -> None:
        self._signs = {*signs, tracebacks.MARK, _NAME}
        self._shapes = sorted({sign.translate(None, DIGITS) for sign in self._signs})
        """What the signs look like."""
        self._idle: set[bytes] = set()
        """What lines look like that mean nothing."""
        self._letters: _Letters | None = None
        self._tries = 0

    def picked(self, text: bytes) -> Picked:
        """What is worth a look in a block."""
        found = self._by_letters(text) if self._letters else None
        if found is None:
            found = self._by_shapes(text)
            self._tries += 1
            self._letters = self._learned() if self._tries <= _TRIES else None
        return found

    def is_idle(self, line: bytes) -> bool:
        """Whether a line means nothing."""
        shape = line.translate(None, DIGITS)
        return shape in self._idle or not self._worth({shape})

    def _by_letters(self, text: bytes) -> Picked | None:
        """The same in half of the time; None where a line that is not NCCL's may be worth a look."""
        assert self._letters is not None
        if any(text.rfind(part) >= 0 for part in self._letters.texts):
            return None
        rare = text.translate(None, self._letters.common).split(b"\n")
        places = list(compress(range(len(rare)), rare))
        lines = _named(text, len(places))
        if len(lines) != len(places):
            return None
        return Picked(len(rare), list(zip(places, lines, strict=True)), b"\n".join(lines).translate(None, DIGITS))

    def _learned(self) -> _Letters | None:
        """The letters of lines that mean nothing; None where too many signs consist of them."""
        idle = b"\n".join(self._idle)
        letters = {*idle, *DIGITS} - {*b"\n"}
        texts = _shared([sign for sign in self._signs if letters.issuperset(sign)], idle)
        return _Letters(bytes(letters), texts) if len(texts) <= _FEW and _NAME not in texts else None

    def _by_shapes(self, text: bytes) -> Picked:
        shapes = text.translate(None, DIGITS).split(b"\n")
        worth = self._worth(set(shapes) - self._idle)
        places = list(compress(range(len(shapes)), map(worth.__contains__, shapes)))
        lines = _named(text, len(places))
        if len(lines) < len(places):  # others were chosen as well, or digits stand in the name
            every = text.split(b"\n")
            lines = [every[place] for place in places]
        return Picked(len(shapes), list(zip(places, lines, strict=True)), b"\n".join(worth))

    def _worth(self, fresh: set[bytes]) -> set[bytes]:
        """Those of some shapes that hold something that makes a line worth a look; the others are remembered."""
        together = b"\n".join(fresh)
        signs = [sign for sign in self._shapes if sign in together]
        worth = {shape for shape in fresh if any(sign in shape for sign in signs)} if signs else set()
        if len(self._idle) > _MAX_SHAPES:
            self._idle.clear()
        self._idle.update(shape for shape in fresh if shape not in worth and len(shape) < _SHAPE_WIDTH)
        return worth


def _shared(signs: Iterable[bytes], idle: bytes) -> list[bytes]:
    """Some texts of which one is in each sign, and none in what lines look like that mean nothing."""
    left, texts = set(signs), list[bytes]()
    while left and len(texts) <= _FEW:
        parts = Counter(part for sign in left for part in {sign, *_parts(sign)} if part == sign or part not in idle)
        texts.append(max(parts, key=lambda part: (parts[part], part)))
        left = {sign for sign in left if texts[-1] not in sign}
    return texts


def _parts(sign: bytes) -> Iterator[bytes]:
    return (sign[at : at + _WIDTH] for at in range(len(sign) - _WIDTH + 1))


def _named(text: bytes, size: int) -> list[bytes]:
    """The lines that hold NCCL's name, if there are that many at most.

    Most are lines of its usual level, which are found faster.
    """
    lines = _with(_USUAL, text) if size else []
    return _with(_NAME, text) if len(lines) < size else lines


def _with(name: bytes, text: bytes) -> list[bytes]:
    """The lines that hold a text; they are searched from the end, which takes a third of the time."""
    lines = []
    at = len(text)
    while (at := text.rfind(name, 0, at)) >= 0:
        end = text.find(b"\n", at)
        at = text.rfind(b"\n", 0, at) + 1
        lines.append(text[at : end if end >= 0 else len(text)])
    lines.reverse()
    return lines


def with_tail(text: bytes, size: int, picked: Sequence[tuple[int, bytes]]) -> Iterator[tuple[int, bytes, bool]]:
    """The picked lines, and as many of the last others as are kept, in their order; each with whether it was picked."""
    taken = {index for index, _ in picked}
    begin = _begin_of_tail(size, taken)
    ending = _last(text, size - begin)
    for index, line in picked:
        if index < begin:
            yield index, line, True
    for index, line in enumerate(ending, begin):
        yield index, line, index in taken


def _last(text: bytes, size: int) -> list[bytes]:
    """The last lines."""
    at = len(text)
    for _ in range(size):
        at = text.rfind(b"\n", 0, at)
        if at < 0:
            break
    return text[at + 1 :].split(b"\n")


def with_frames(
    text: bytes, picked: Sequence[tuple[int, bytes]], tracing: tracebacks.Open
) -> Iterator[tuple[int, bytes, bool]]:
    """The same, and all that follows while tracebacks have not ended: who takes a line tells that by ``tracing``."""
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
    """From where on there are as many lines that were not taken as are kept."""
    begin, others = size, 0
    while begin and others < TAIL:
        begin -= 1
        others += begin not in taken
    return begin
