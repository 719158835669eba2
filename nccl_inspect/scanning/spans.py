"""Lines of a block by their places, and pieces of them compared eight bytes at a time. This module needs numpy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Rows: TypeAlias = NDArray[np.int64]
Bits: TypeAlias = NDArray[np.uint64]
Column: TypeAlias = NDArray[np.int32]
Mask: TypeAlias = NDArray[np.bool_]

ZERO = bytes.maketrans(b"123456789", b"000000000")
_WORD = 8
_MIX, _AGAIN, _FOLD = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(32)
_ALL, _HIGH, _LOW, _CARRY = (1 << 64) - 1, 0xF0F0F0F0F0F0F0F0, np.uint64(0x0F0F0F0F0F0F0F0F), 0x1010101010101010
_PAST_NINE = np.uint64(0x0606060606060606)
"""What makes a digit carry, if it is more than nine."""
_ZEROS, _SEVEN_BITS, _EIGHTH_BIT, _UP_TO_NINE = (
    np.uint64(byte * 0x0101010101010101) for byte in (0x30, 0x7F, 0x80, 0x76)
)
_FIRST = np.array([(1 << 8 * size) - 1 for size in range(_WORD + 1)], np.uint64)
"""What is left of a word that ends after some of its bytes."""
_USUAL = 64
"""Bytes up to which most pieces reach: those of longer ones are looked at in further steps."""
_ROUNDS = 16
"""Of hashing; what still falls together then is sorted."""


class Block:
    """Lines of a log.

    Args:
        data: the lines with a line end between each two.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.bytes = np.frombuffer(data, np.uint8)
        self.words: Bits = np.ndarray((max(len(data) - _WORD + 1, 0),), "<u8", data, strides=(1,))
        """The eight bytes from each place on."""
        ends = np.flatnonzero(self.bytes == ord("\n"))
        self.begin: Rows = np.concatenate(([0], ends + 1))
        self.end: Rows = np.concatenate((ends, [len(data)]))

    def pieces(self, begin: Rows, end: Rows) -> list[bytes]:
        """Return some bytes, piece by piece."""
        data = self.data
        return [data[start:stop] for start, stop in zip(begin.tolist(), end.tolist(), strict=True)]

    def windows(self, begin: Rows, width: int) -> NDArray[np.uint8]:
        """Return the bytes from each place on, row by row."""
        # One copy for each row, however many bytes it has: words alone take the same time each.
        rows = np.ndarray((len(self.data) - width + 1,), f"V{width}", self.data, strides=(1,))[begin]
        letters: NDArray[np.uint8] = rows.view(np.uint8).reshape(-1, width)
        return letters

    def first_in_lines(self, text: bytes) -> tuple[Rows, Rows]:
        """Return the lines that hold a text of up to eight bytes, and its first place in each.

        The last letter is looked for: that of NCCL's name is the rarest one in its lines.
        """
        place = len(text.rstrip()) - 1
        at = np.flatnonzero(self.bytes[place : len(self.words) + place] == text[place])
        at = at[self.has(at, text)]
        if len(at) == len(self.begin) and ((at >= self.begin) & (at < self.end)).all():  # mostly there is one in each
            return np.arange(len(at)), at
        row = np.searchsorted(self.begin, at, side="right") - 1
        is_first = np.ones(len(at), bool)
        is_first[1:] = row[1:] != row[:-1]
        return row[is_first], at[is_first]

    def has(self, at: Rows, text: bytes) -> Mask:
        """Return whether a text is at each place; eight bytes must follow it."""
        matches = np.ones(len(at), bool)
        for begin in range(0, len(text), _WORD):
            piece = text[begin : begin + _WORD]
            mask = np.uint64((1 << 8 * len(piece)) - 1)
            matches &= self.words[at + begin] & mask == np.uint64(int.from_bytes(piece, "little"))
        return matches

    def has_form(self, at: Rows, form: bytes) -> Mask:
        """Return whether a text of this form is at each place: any digits where it has zeros, eight bytes or more."""
        if not len(at):  # the block may be shorter
            return np.zeros(0, bool)
        wrong, rows = np.zeros(len(at), np.uint64), self.windows(at, len(form))
        for begin in (*range(0, len(form) - _WORD, _WORD), len(form) - _WORD):
            piece = form[begin : begin + _WORD]
            digits = int.from_bytes(bytes(0xFF * (byte == ord("0")) for byte in piece), "little")
            words: Bits = np.ndarray((len(at),), "<u8", rows, begin, (len(form),)).copy()
            other = words ^ np.uint64(int.from_bytes(piece, "little"))
            other &= np.uint64(~digits & _ALL | digits & _HIGH)
            wrong |= other
            if digits:
                words &= _LOW
                words += _PAST_NINE
                words &= np.uint64(digits & _CARRY)
                wrong |= words
        fits: Mask = wrong == 0
        return fits

    def alike(self, *spans: tuple[Rows, Rows], also: NDArray[Any] | None = None) -> Rows:
        """For each row the first one with the same bytes in all spans, and with the same of something else.

        Eight bytes must follow where a span begins.
        """
        columns: list[NDArray[Any]] = [] if also is None else [also]
        for begin, end in spans:
            columns += self._words_in(begin, end)
        return firsts(columns)

    def shaped(self, begin: Rows, end: Rows) -> Rows:
        """For each of some pieces the first one that differs in digits only."""
        width, *words = self._words_in(begin, end)
        return firsts([width, *map(_without_digits, words)])

    def _words_in(self, begin: Rows, end: Rows) -> Iterator[NDArray[Any]]:
        """Yield the widths of some pieces, and the words that cover them, with zeros behind their ends."""
        width = end - begin
        yield width
        most = int(width.max(initial=0))
        for place in range(0, most, _USUAL):
            size = -(-min(most - place, _USUAL) // _WORD) * _WORD
            if not place:
                yield from self._words_of(begin, width, size)
                continue
            longer = np.flatnonzero(width > place)
            words = np.zeros((size // _WORD, len(begin)), np.uint64)
            words[:, longer] = self._words_of(begin[longer] + place, width[longer] - place, size)
            yield from words

    def _words_of(self, begin: Rows, width: Rows, size: int) -> Bits:
        """Return the first bytes of some pieces, word by word, with zeros behind their ends."""
        most = len(self.data) - size
        letters = self.windows(np.minimum(begin, most), size) if most >= 0 else np.zeros((len(begin), size), np.uint8)
        for row in np.flatnonzero(begin > most).tolist():  # the last pieces of a block have fewer bytes behind them
            letters[row] = np.frombuffer(self.data[begin[row] :].ljust(size, b"\0"), np.uint8)
        words: Bits = np.ascontiguousarray(letters.view("<u8").T)  # they are read one by one
        for place in range(int(width.min(initial=size)) // _WORD, size // _WORD):
            words[place] &= _FIRST.take(width - place * _WORD, mode="clip")
        return words


def _without_digits(words: Bits) -> Bits:
    """Words with zeros for digits."""
    high = words ^ _ZEROS
    other = ((high & _SEVEN_BITS) + _UP_TO_NINE | high) & _EIGHTH_BIT
    digits = (_EIGHTH_BIT ^ other) >> np.uint64(7)
    digits *= np.uint64(0xFF)
    without: Bits = words & ~digits | _ZEROS & digits
    return without


def firsts(columns: Sequence[NDArray[Any]]) -> Rows:
    """For each row the first one that is the same in all columns."""
    mixed = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        mixed ^= column.astype(np.uint64, copy=False)
        mixed *= _MIX
        mixed ^= mixed >> _FOLD
    return first_alike(mixed, columns)


def first_alike(mixed: Bits, columns: Sequence[NDArray[Any]]) -> Rows:
    """For each row the first one that is the same in all columns.

    Args:
        mixed: of each row a number that is the same for rows that are the same.
        columns: what rows have.
    """
    bits = max(8, len(mixed).bit_length() + 1)
    table = np.empty(1 << bits, np.int64)  # only what was put into it is read
    rows = result = np.arange(len(mixed))
    values: Sequence[NDArray[Any]] = columns
    """The columns of the rows that are not settled yet."""
    for _ in range(_ROUNDS):
        mixed = mixed * _MIX
        slot = (mixed >> np.uint64(64 - bits)).astype(np.int64)
        table[slot[::-1].copy()] = rows[::-1].copy()  # the first one of each comes last; copies are written faster
        first = table.take(slot)
        other = np.zeros(len(rows), bool)
        for column, value in zip(columns, values, strict=True):
            other |= value != column.take(first)
        if len(rows) == len(result):
            result = first
        else:
            result[rows] = first
        again = np.flatnonzero(other)
        if not len(again):
            return result
        rows, mixed = rows[again], mixed[again]
        values = [column[rows] for column in columns]
        mixed ^= mixed >> _FOLD
        mixed *= _AGAIN
    _, first, number = np.unique(
        np.array([column[rows] for column in columns]).T, axis=0, return_index=True, return_inverse=True
    )
    result[rows] = rows[first[number.ravel()]]
    return result


def number_of(first: Rows) -> tuple[Column, Rows]:
    """Groups of rows numbered by their first ones: the number of each row, and the first row of each group."""
    where = np.flatnonzero(first == np.arange(len(first)))
    number = np.zeros(len(first), np.int32)
    number[where] = np.arange(len(where))
    return number[first], where


def weights_of(widths: Sequence[int]) -> NDArray[np.int64]:
    """Return what digits count in numbers of these widths: a row for each digit, a column for each number."""
    weights = np.zeros((sum(widths), len(widths)), np.int64)
    row = 0
    for column, width in enumerate(widths):
        for power in reversed(range(width)):
            weights[row, column] = 10**power
            row += 1
    return weights
