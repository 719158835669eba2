"""Lines of a block by their places, and pieces of them compared eight bytes at a time. This module needs numpy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Rows: TypeAlias = NDArray[np.int64]
Bits: TypeAlias = NDArray[np.uint64]
Column: TypeAlias = NDArray[np.int32]

ZERO = bytes.maketrans(b"123456789", b"000000000")
_WORD = 8
_MIX, _AGAIN, _FOLD = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(32)
_USUAL = 64
"""Bytes up to which most pieces reach."""
_ROUNDS = 16
"""Of hashing; what still falls together then is sorted."""


class Block:
    """Lines of a log.

    Args:
        data: the lines with a line end between each two.
        like: a block with lines in the same places, if there is one.
    """

    def __init__(self, data: bytes, like: Block | None = None) -> None:
        self.data = data
        self.bytes = np.frombuffer(data, np.uint8)
        self.words: Bits = np.ndarray((max(len(data) - _WORD + 1, 0),), "<u8", data, strides=(1,))
        """The eight bytes from each place on."""
        places = (like.begin, like.end) if like else self._lines()
        self.begin: Rows = places[0]
        self.end: Rows = places[1]

    def _lines(self) -> tuple[Rows, Rows]:
        ends = np.flatnonzero(self.bytes == ord("\n"))
        return np.concatenate(([0], ends + 1)), np.concatenate((ends, [len(self.data)]))

    def pieces(self, begin: Rows, end: Rows) -> list[bytes]:
        """Some bytes, piece by piece."""
        data = self.data
        return [data[start:stop] for start, stop in zip(begin.tolist(), end.tolist(), strict=True)]

    def overwritten(self, begin: Rows, end: Rows, other: Block) -> Block:
        """The block with the bytes of another one in some pieces; one shorter than eight bytes stays as it is."""
        data = self.bytes.copy()
        words = np.ndarray(len(self.words), "<u8", data, strides=(1,))
        for place in range(0, int((end - begin).max(initial=0)), _WORD):
            rows = end - begin > max(place, _WORD - 1)
            at = np.minimum(begin[rows] + place, end[rows] - _WORD)
            words[at] = other.words[at]
        return Block(data.tobytes(), self)

    def first_in_lines(self, text: bytes) -> tuple[Rows, Rows]:
        """The lines that hold a text of up to eight bytes, and its first place in each.

        The last letter is looked for: that of NCCL's name is the rarest one in its lines.
        """
        place = len(text.rstrip()) - 1
        at = np.flatnonzero(self.bytes[place : len(self.words) + place] == text[place])
        at = at[self.has(at, text)]
        row = np.searchsorted(self.begin, at, side="right") - 1
        is_first = np.ones(len(at), bool)
        is_first[1:] = row[1:] != row[:-1]
        return row[is_first], at[is_first]

    def has(self, at: Rows, text: bytes) -> NDArray[np.bool_]:
        """Whether a text is at each place; eight bytes must follow it."""
        matches = np.ones(len(at), bool)
        for begin in range(0, len(text), _WORD):
            piece = text[begin : begin + _WORD]
            mask = np.uint64((1 << 8 * len(piece)) - 1)
            matches &= self.words[at + begin] & mask == np.uint64(int.from_bytes(piece, "little"))
        return matches

    def alike(self, begin: Rows, end: Rows) -> Rows:
        """For each piece the first one with the same bytes; none may be shorter than eight."""
        width = end - begin
        words: list[NDArray[Any]] = [width]
        mixed = width.astype(np.uint64)
        for place in range(0, int(width.max(initial=0)), _WORD):
            if place < _USUAL:
                word = self.words[np.minimum(begin + place, end - _WORD)]
            else:
                longer = np.flatnonzero(width > place)
                word = np.zeros(len(begin), np.uint64)
                word[longer] = self.words[np.minimum(begin[longer] + place, end[longer] - _WORD)]
            words.append(word)
            mixed ^= word
            mixed *= _MIX
            mixed ^= mixed >> _FOLD
        return first_alike(mixed, words)


def firsts(columns: Sequence[NDArray[Any]]) -> Rows:
    """For each row the first one that is the same in all columns."""
    mixed = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        mixed ^= column.astype(np.uint64)
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
    table = np.zeros(1 << bits, np.int64)
    left = np.arange(len(mixed))
    own: Sequence[NDArray[Any]] = columns
    """The columns of the rows that are left."""
    result = left
    for _ in range(_ROUNDS):
        mixed = mixed * _MIX
        slot = (mixed >> np.uint64(64 - bits)).astype(np.int64)
        table[slot[::-1]] = left[::-1]
        first = table[slot]
        same = np.ones(len(left), bool)
        for column, mine in zip(columns, own, strict=True):
            same &= mine == column[first]
        if len(left) == len(result):
            result = first.copy()
        result[left[same]] = first[same]
        left, mixed = left[~same], mixed[~same]
        if not len(left):
            return result
        own = [column[left] for column in columns]
        mixed ^= mixed >> _FOLD
        mixed *= _AGAIN
    _, first, number = np.unique(
        np.array([column[left] for column in columns]).T, axis=0, return_index=True, return_inverse=True
    )
    result[left] = left[first[number.ravel()]]
    return result


def number_of(first: Rows) -> tuple[Column, Rows]:
    """Groups of rows numbered by their first ones: the number of each row, and the first row of each group."""
    where = np.flatnonzero(first == np.arange(len(first)))
    number = np.zeros(len(first), np.int32)
    number[where] = np.arange(len(where))
    return number[first], where
